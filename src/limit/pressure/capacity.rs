//! The capacity: how many open requests an upstream serves without a standing queue, as one gateway's share. This file
//! moves it by one control step at a time, and never refuses anything itself.
//!
//! After Netflix' Gradient2 (concurrency-limits), the capacity follows the gradient: the latency without a queue
//! divided by the latency now. A headroom makes it try for more. Each of several gateways has its part of the capacity
//! and of the headroom, so that all together queue no more than one would alone.
//!
//! The headroom is 2.1 times the fourth root of the whole capacity: 4.4 requests where 20 are served. Gradient2 and
//! Envoy have the square root, about the same there. But with the square root a capacity settles in proportion to
//! (1 - gradient)^-2. Of two gateways whose baselines differ by a tenth, one then has four times the other's share, and
//! the other sheds critical requests. With the fourth root it is two and a half times.
//!
//! Until the first queue the capacity grows by a tenth a step while it is used, like TCP's slow start. Otherwise it
//! would take minutes to find out that an upstream serves hundreds at once.

/// A median above this many baselines is a queue. Less would be chance: medians of the pool are off by a tenth.
const QUEUE_SLOWNESS: f64 = 1.5;
/// The least gradient. With [`CAPACITY_SMOOTHING`] a step takes at most a tenth of the capacity, however slow it was.
const MIN_GRADIENT: f64 = 0.5;
/// The share of the way to its new value that the capacity moves in a step.
const CAPACITY_SMOOTHING: f64 = 0.2;
/// The share of the capacity that must be open for it to grow, because unused capacity cannot be observed. It is lower
/// than the load up to which the elastic factor rises, or neither would ever find what the upstream bears.
const MIN_BUSY_SHARE: f64 = 0.7;
/// The headroom of all gateways together where their whole capacity is 1, in requests.
const HEADROOM_FACTOR: f64 = 2.1;
/// The headroom before the first queue, as a share of the capacity.
const START_HEADROOM_SHARE: f64 = 0.5;
/// The first capacity of all gateways together, in requests.
const INITIAL_CAPACITY: f64 = 32.0;

/// The capacity for one gateway.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// The capacity in open requests.
    requests: f64,
    /// Whether no queue was seen yet.
    is_starting: bool,
}

impl Capacity {
    /// The share of one of `gateways` gateways before the first step: at least 2, and at most `max_open` requests.
    pub(crate) fn new(gateways: f64, max_open: f64) -> Capacity {
        Capacity {
            requests: (INITIAL_CAPACITY / gateways).max(2.0).min(max_open),
            is_starting: true,
        }
    }

    /// The capacity in open requests.
    pub(crate) fn get(&self) -> f64 {
        self.requests
    }

    /// Advances the capacity by a control step. `slowness` is the median latency divided by the baseline, and `open`
    /// the mean of open requests. Without a queue, a capacity that is not used stays. It is always from 1 to `max_open`.
    pub(crate) fn step(&mut self, slowness: f64, open: f64, gateways: f64, max_open: f64) {
        let gradient = (QUEUE_SLOWNESS / slowness).clamp(MIN_GRADIENT, 1.0);
        if gradient < 1.0 {
            self.is_starting = false;
        } else if open <= self.requests * MIN_BUSY_SHARE {
            return;
        }
        let headroom = if self.is_starting {
            self.requests * START_HEADROOM_SHARE
        } else {
            HEADROOM_FACTOR * (self.requests * gateways).powf(0.25) / gateways
        };
        self.requests += CAPACITY_SMOOTHING * (gradient * self.requests + headroom - self.requests);
        self.requests = self.requests.clamp(1.0, max_open.max(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity_after(steps: usize, slowness: f64, load: f64, gateways: f64) -> f64 {
        let mut capacity = Capacity::new(gateways, 1_000.0);
        // One queue ends the start.
        capacity.step(1.6, 0.0, gateways, 1_000.0);
        for _ in 0..steps {
            let open = load * capacity.get();
            capacity.step(slowness, open, gateways, 1_000.0);
        }
        capacity.get()
    }

    #[test]
    fn grows_only_while_it_is_used() {
        let first = capacity_after(0, 1.0, 0.0, 1.0);
        assert_eq!(capacity_after(100, 1.0, 0.69, 1.0), first);
        assert!(capacity_after(100, 1.0, 0.71, 1.0) > first + 50.0);
        assert_eq!(capacity_after(10_000, 1.0, 0.9, 1.0), 1_000.0);
    }

    #[test]
    fn a_queue_shrinks_it_to_what_the_headroom_feeds() {
        // It settles where (1 - 1.5 / 2) capacity = 2.1 capacity^(1/4).
        assert!((capacity_after(1_000, 2.0, 1.0, 1.0) - 17.1).abs() < 0.1);
        assert!((capacity_after(1_000, 2.0, 1.0, 4.0) - 17.1 / 4.0).abs() < 0.1);
        assert_eq!(capacity_after(1_000, 50.0, 1.0, 16.0), 1.0);
    }

    #[test]
    fn starts_fast() {
        let mut capacity = Capacity::new(1.0, 1_000.0);
        (0..24).for_each(|_| capacity.step(1.0, 900.0, 1.0, 1_000.0));
        assert!(capacity.get() > 300.0, "{}", capacity.get());
        assert_eq!(Capacity::new(16.0, 1_000.0).get(), 2.0);
        assert_eq!(Capacity::new(1.0, 1.0).get(), 1.0);
    }
}
