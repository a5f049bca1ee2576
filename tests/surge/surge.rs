//! Critical traffic triples in front of an upstream that bears 400 requests a second, three times in one
//! run: without limits, with limits that stand still, and with elastic ones and priorities.
//!
//! All three get the same requests. 295 a second are guaranteed in calm, 495 in the surge, and ten greedy
//! users ask for 600 where 80 are guaranteed to them.

use crate::alone;
use crate::plot;
use crate::record::{Part, Record, Span, mean};
use crate::server::Capacity;
use crate::site::Site;
use crate::traffic::{Kind, Source};

const SEED: u64 = 4;
pub const CAPACITY: Capacity = Capacity {
    workers: 8,
    millis: 20.0,
};
/// Plans of the greedy users and what these multiply the rate of 4 a second with.
const GREEDY: [(&str, f64); 10] = [
    ("free", 1.0),
    ("free", 1.0),
    ("free", 1.0),
    ("free", 1.0),
    ("plus", 2.0),
    ("plus", 2.0),
    ("plus", 2.0),
    ("plus", 2.0),
    ("max", 4.0),
    ("max", 4.0),
];
const RATE: f64 = 4.0;
/// Seconds of its window.
const WINDOW: f64 = 2.0;

const GATEWAY: &str = "
identity:
  user: { header: x-user, from: [127.0.0.0/8] }
  plan: { header: x-plan, from: [127.0.0.0/8], default: free }
plans: { free: { multiply: 1 }, plus: { multiply: 2 }, max: { multiply: 4 } }
";

/// How requests are held back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Nothing,
    Static,
    Tollgate,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Variant::Nothing => "no limits",
            Variant::Static => "static limits",
            Variant::Tollgate => "tollgate: elastic limits and priorities",
        }
    }

    fn policies(self) -> [(&'static str, String); 4] {
        let route = |kind: Kind, more: &str| {
            let name = kind.as_str();
            (name, format!("match: /{name}/**\nupstream: up\n{more}"))
        };
        let (first, last) = match self {
            Variant::Tollgate => ("priority: critical\n", "priority: low\n"),
            _ => ("", ""),
        };
        let throttle = match self {
            Variant::Nothing => None,
            Variant::Static => Some("hard"),
            Variant::Tollgate => Some("elastic, while: upstream.load < 0.95, at_most: 32/2s"),
        };
        let limit = throttle.map(|throttle| {
            format!("limits: {{ share: {{ key: user, rate: 8/2s, plans: true, throttle: {throttle} }} }}\n")
        });
        [
            route(Kind::Critical, first),
            route(Kind::Normal, ""),
            route(Kind::Low, last),
            route(Kind::Elastic, &limit.unwrap_or_default()),
        ]
    }
}

/// One variant's run.
pub struct Run {
    pub name: &'static str,
    pub record: Record,
    pub calm: Span,
    pub surge: Span,
    /// Seconds from the end of the surge until the factor was above 1.2 again.
    back: f64,
}

/// 100 critical requests a second in calm, 815 in all.
fn sources(surge: bool) -> Vec<Source> {
    let critical = if surge { 300.0 } else { 100.0 };
    let steady = [
        Source::many(Kind::Critical, critical),
        Source::many(Kind::Normal, 75.0),
        Source::many(Kind::Low, 40.0),
    ];
    let greedy = GREEDY
        .iter()
        .enumerate()
        .map(|(user, (plan, _))| Source::greedy(user, plan, 60.0));
    steady.into_iter().chain(greedy).collect()
}

/// They begin one after the other, or all would use up their windows at the same moments.
fn beginning() -> Vec<Source> {
    let mut sources = sources(false);
    let each = WINDOW / GREEDY.len() as f64;
    let greedy = sources.iter_mut().filter(|s| s.kind == Kind::Elastic);
    greedy
        .enumerate()
        .for_each(|(user, source)| source.from = each * user as f64);
    sources
}

fn run(variant: Variant) -> Run {
    let site = Site::start(CAPACITY, SEED, GATEWAY, &variant.policies());
    let (mut calm, mut surge, mut recovery) = (None, None, None);
    // Where nothing is steered there is nothing to settle.
    let (settle, seconds) = match variant {
        Variant::Tollgate => (8.0, 8.0),
        _ => (3.0, 4.0),
    };
    let record = site.run(async |traffic| {
        traffic.flow(&beginning(), settle).await;
        calm = Some(traffic.flow(&sources(false), seconds).await);
        surge = Some(traffic.flow(&sources(true), 8.0).await);
        let back = |factor: Option<f64>| factor.is_some_and(|factor| factor > 1.2);
        if variant == Variant::Tollgate {
            let calm = sources(false);
            let until = traffic.flow_until(&calm, 15.0, |now| back(now.factor));
            recovery = Some(until.await);
        }
        traffic.flow(&sources(false), 2.0).await;
    });
    Run {
        name: variant.name(),
        record,
        calm: calm.unwrap(),
        surge: surge.unwrap(),
        back: recovery.map_or(0.0, Span::seconds),
    }
}

impl Run {
    fn print(&self) {
        println!("\n{}", self.name);
        println!("          answered a second                     critical");
        println!(
            "       s  critical normal   low elastic   all  served    p50    p99 ms  factor  load level"
        );
        let zero = self.surge.from;
        for (second, part) in self.record.seconds(zero) {
            let from = second + zero;
            let span = Span {
                from,
                to: from + 1.0,
            };
            self.row(&format!("{second:8}"), &part, span);
        }
        self.row("    calm", &self.record.part(self.calm), self.calm);
        self.row("   surge", &self.record.part(self.surge), self.surge);
    }

    fn row(&self, name: &str, part: &Part<'_>, span: Span) {
        let rates = Kind::ALL.map(|kind| part.of(kind).rate());
        let critical = part.of(Kind::Critical);
        let latency = |share| critical.latency(share).unwrap_or_default();
        let moments = self.record.moments(span);
        let known = |mean: Option<f64>| mean.map_or("     -".into(), |mean| format!("{mean:6.2}"));
        println!(
            "{name}  {:8.1} {:6.1} {:5.1} {:7.1} {:5.0}  {:5.1}% {:6.1} {:9.1}  {}{}{}",
            rates[0],
            rates[1],
            rates[2],
            rates[3],
            rates.iter().sum::<f64>(),
            critical.served(),
            latency(0.5),
            latency(0.99),
            known(mean(moments.clone().map(|moment| moment.factor))),
            known(mean(moments.clone().map(|moment| moment.load))),
            known(mean(moments.map(|moment| moment.level))),
        );
    }

    /// Critical requests of the span, but for those that suffered from a pause of the machine; and the share
    /// of all that did not.
    fn critical(&self, span: Span) -> (Part<'_>, f64) {
        let (part, share) = self.record.undisturbed(span);
        (part.of(Kind::Critical), share)
    }
}

fn p99(part: &Part<'_>) -> f64 {
    part.latency(0.99).unwrap_or(f64::NAN)
}

/// Runs that are tried until one is as it should be: a machine that others take the processors from serves
/// nobody in time.
const ATTEMPTS: usize = 3;

#[test]
fn critical_traffic_triples() {
    let _alone = alone();
    let nothing = run(Variant::Nothing);
    let standing = run(Variant::Static);
    nothing.print();
    standing.print();
    for attempt in 1..=ATTEMPTS {
        let tollgate = run(Variant::Tollgate);
        tollgate.print();
        let held = tollgate.holds(&[&nothing, &standing]);
        let calm = p99(&tollgate.critical(tollgate.calm).0);
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/surge.svg");
        let runs = [&nothing, &standing, &tollgate];
        std::fs::write(path, plot::draw(&runs, 2.0 * calm)).unwrap();
        println!("drawn in {path}");
        match held {
            Ok(()) => return,
            Err(why) if attempt < ATTEMPTS => println!("once more: {why}"),
            Err(why) => panic!("{why}"),
        }
    }
}

impl Run {
    /// What is promised of a surge, beside the runs of others.
    fn holds(&self, others: &[&Run]) -> Result<(), String> {
        let (calm, calm_share) = self.critical(self.calm);
        let (surge, surge_share) = self.critical(self.surge);
        let served = surge.served();
        let (calm, surge) = (p99(&calm), p99(&surge));
        println!(
            "\nlet alone by the machine: {calm_share:.2} of calm, {surge_share:.2} of the surge"
        );
        println!(
            "critical: p99 {calm:.0} ms in calm, {surge:.0} ms in the surge, {served:.1} % served"
        );
        println!("the factor is back after {:.1} s", self.back);
        let all = [
            (
                calm_share.min(surge_share) >= 0.3,
                "the machine has too much else to do",
            ),
            (surge <= 2.0 * calm, "critical requests wait"),
            (served >= 98.0, "critical requests are shed"),
            (self.back <= 15.0, "nothing is lent again"),
        ];
        let waits = |other: &&Run| p99(&other.record.part(other.surge).of(Kind::Critical));
        let worse = others.iter().all(|other| waits(other) > 2.0 * surge);
        let all = all.into_iter().chain([(worse, "others are no worse")]);
        let broken: Vec<_> = all
            .filter(|(held, _)| !held)
            .map(|(_, what)| what)
            .collect();
        match broken.is_empty() {
            true => self.cut_back(),
            false => Err(broken.join(", ")),
        }
    }

    /// In the later half of the surge greedy users have no more than what is guaranteed to them. What a user
    /// lacks of it was shed, and not all of it: they are normal, and some normal requests are served.
    fn cut_back(&self) -> Result<(), String> {
        let later = self.surge.later_half();
        let part = self.record.part(later).of(Kind::Elastic);
        let guaranteed: f64 = GREEDY
            .iter()
            .map(|(_, plan_factor)| plan_factor * RATE)
            .sum();
        let all = part.rate();
        if !(0.2..=1.1).contains(&(all / guaranteed)) {
            return Err(format!("{all}/s of {guaranteed}/s"));
        }
        for (user, (_, plan_factor)) in GREEDY.iter().enumerate() {
            let own = part.of_user(user);
            let (served, shed) = (own.with(200), own.with(503));
            let guaranteed = plan_factor * RATE * later.seconds();
            println!("user {user}: {served} served, {shed} shed, {guaranteed:.0} guaranteed");
            if served + shed < 0.9 * guaranteed {
                return Err(format!("user {user} is refused what is guaranteed"));
            }
        }
        Ok(())
    }
}
