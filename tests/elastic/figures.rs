//! What a part of a simulation came to.

use std::fmt;

use tollgate::base::clock::Nanos;
use tollgate::limit::pressure::RequestClass;

use super::world::{BASE, World};

/// See the file.
#[derive(Clone)]
pub struct Figures {
    workers: f64,
    seconds: f64,
    busy: f64,
    /// By class.
    asked: [u32; 3],
    admitted: [u32; 3],
    /// Latencies of critical requests in nanoseconds.
    critical: Vec<u64>,
    /// Borrowed requests admitted, by greedy key.
    borrowed: [f64; BASE.len()],
    factors: f64,
    steps: f64,
}

impl Figures {
    pub fn new(world: World) -> Figures {
        Figures {
            workers: world.workers as f64,
            seconds: 0.0,
            busy: 0.0,
            asked: [0; 3],
            admitted: [0; 3],
            critical: Vec::new(),
            borrowed: [0.0; BASE.len()],
            factors: 0.0,
            steps: 0.0,
        }
    }

    pub fn pass(&mut self, seconds: f64, busy: usize) {
        self.seconds += seconds;
        self.busy += seconds * busy as f64;
    }

    pub fn asked(&mut self, class: RequestClass, admitted: bool) {
        self.asked[class as usize] += 1;
        self.admitted[class as usize] += u32::from(admitted);
    }

    pub fn borrowed(&mut self, key: usize) {
        self.borrowed[key] += 1.0;
    }

    pub fn served(&mut self, class: RequestClass, span: Nanos) {
        if class == RequestClass::Critical {
            self.critical.push(span.0);
        }
    }

    pub fn factor(&mut self, factor: f64) {
        self.factors += factor;
        self.steps += 1.0;
    }

    /// Mean over time and gateways.
    pub fn mean_factor(&self) -> f64 {
        self.factors / self.steps
    }

    /// Per cent of those of the class that were within their limits; 100 when there were none.
    pub fn admitted(&self, class: RequestClass) -> f64 {
        match self.asked[class as usize] {
            0 => 100.0,
            asked => 100.0 * f64::from(self.admitted[class as usize]) / f64::from(asked),
        }
    }

    /// Critical requests served a second.
    pub fn critical_rate(&self) -> f64 {
        self.critical.len() as f64 / self.seconds
    }

    /// The latency in milliseconds that this share of critical requests did not exceed.
    pub fn latency(&self, share: f64) -> f64 {
        let mut all = self.critical.clone();
        if all.is_empty() {
            return 0.0;
        }
        let at = ((all.len() - 1) as f64 * share) as usize;
        *all.select_nth_unstable(at).1 as f64 / 1_000_000.0
    }

    /// Per cent of the workers' time.
    pub fn utilisation(&self) -> f64 {
        100.0 * self.busy / self.seconds / self.workers
    }

    /// Borrowed requests admitted a second.
    pub fn lent(&self) -> f64 {
        self.borrowed.iter().sum::<f64>() / self.seconds
    }

    /// Jain's index of what each key borrowed over its base limit: 1 is in proportion to the plans.
    pub fn fairness(&self) -> f64 {
        let shares = self
            .borrowed
            .iter()
            .zip(BASE)
            .map(|(lent, base)| lent / base);
        let (sum, squares) = shares.fold((0.0, 0.0), |(sum, squares), share| {
            (sum + share, squares + share * share)
        });
        sum * sum / (BASE.len() as f64 * squares)
    }
}

/// A row of the table.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let admitted = RequestClass::ALL.map(|class| self.admitted(class));
        write!(
            f,
            "used {:5.1} %  critical {:5.1} % p50 {:5.1} p99 {:5.1} ms  normal {:5.1} %  low {:5.1} %  \
             borrowed {:5.1}/s  m {:4.2}",
            self.utilisation(),
            admitted[0],
            self.latency(0.5),
            self.latency(0.99),
            admitted[1],
            admitted[2],
            self.lent(),
            self.mean_factor(),
        )
    }
}
