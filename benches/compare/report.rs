//! From measurements to one table. A measurement that something else on the machine disturbed is
//! left out, never averaged in.

use std::fmt::{self, Write as _};

use crate::Failure;
use crate::case::Case;
use crate::config::version;
use crate::cpu::{Cores, Snapshot};
use crate::load::Tally;
use crate::options::{Options, Subject};
use crate::shape::CONNECTIONS;

/// Share of one core that others may use during a clean measurement.
const FOREIGN_MAX: f64 = 0.06;

/// One proxy in one round: the sum of its slices, times in nanoseconds.
#[derive(Default)]
pub struct Measure {
    elapsed: u64,
    /// CPU time of the proxy.
    proxy: u64,
    /// CPU time of the whole machine less this process's and all proxies'. Ticks make it coarse, so
    /// that it may be a little below zero.
    foreign: i64,
    answers: u64,
    strays: u64,
}

impl Measure {
    /// What happened between two snapshots.
    pub fn add(&mut self, before: &Snapshot, after: &Snapshot, tally: &Tally) {
        let proxy = after.proxy - before.proxy;
        let ours = proxy + after.own - before.own;
        self.elapsed += after.at.since(before.at).0;
        self.proxy += proxy;
        self.foreign += (after.machine - before.machine) as i64 - ours as i64;
        self.answers += tally.answers;
        self.strays += tally.strays;
    }

    /// Whether the proxy did what the case is about.
    pub fn verify(&self, case: Case, options: &Options) -> Result<(), String> {
        let strays = case.strays(options.seconds * options.proxies.len() as u64);
        if self.strays > strays {
            let (strays, all) = (self.strays, self.answers);
            return Err(format!(
                "{strays} of {all} answers were not {}",
                case.status()
            ));
        }
        Ok(())
    }

    /// CPU time of the proxy per answer, in microseconds.
    fn cost(&self) -> f64 {
        self.proxy as f64 / 1e3 / self.answers as f64
    }

    /// Answers per second.
    fn rate(&self) -> f64 {
        self.answers as f64 * 1e9 / self.elapsed as f64
    }

    /// Share of one core.
    fn foreign(&self) -> f64 {
        self.foreign as f64 / self.elapsed as f64
    }

    fn is_clean(&self) -> bool {
        self.foreign().abs() <= FOREIGN_MAX
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cost, rate, foreign) = (self.cost(), self.rate(), self.foreign());
        let verdict = if self.is_clean() { "" } else { ", discarded" };
        write!(
            f,
            "{cost:6.2} us/req {rate:7.0} req/s, foreign {:4.1} %{verdict}",
            foreign * 100.0
        )
    }
}

/// Every proxy once, in the order of the options.
pub struct Round(pub Vec<Measure>);

/// What is counted once for a proxy in a case.
pub struct Counts {
    /// Bytes, at the end of the rounds.
    pub resident: u64,
    /// Calls into the kernel per request.
    pub syscalls: Option<f64>,
    /// Instructions in user space per request.
    pub instructions: Option<f64>,
}

/// Everything about one case; rounds and counts are in the order of the options' proxies.
pub struct Outcome {
    /// What was asked.
    pub case: Case,
    /// What was measured.
    pub rounds: Vec<Round>,
    /// What was counted.
    pub counts: Vec<Counts>,
}

impl Outcome {
    /// CPU time of the proxy at one place as a ratio to that at another, round by round where both
    /// are clean.
    pub fn ratio(&self, place: usize, to: usize) -> Option<Spread> {
        let pairs = self
            .rounds
            .iter()
            .filter_map(|r| Some((r.0.get(place)?, r.0.get(to)?)))
            .filter(|(own, reference)| own.is_clean() && reference.is_clean())
            .map(|(own, reference)| own.cost() / reference.cost());
        Spread::of(pairs.collect())
    }

    /// CPU time per request of the proxy at `place`, in microseconds, and in how many rounds.
    pub fn cost(&self, place: usize) -> (Option<Spread>, usize) {
        let measures = self.rounds.iter().filter_map(|r| r.0.get(place));
        let clean: Vec<_> = measures
            .filter(|m| m.is_clean())
            .map(|m| m.cost())
            .collect();
        let count = clean.len();
        (Spread::of(clean), count)
    }

    /// The figures of the proxy at `place`; `own` is where tollgate is.
    fn row(&self, place: usize, own: Option<usize>) -> String {
        let clean: Vec<_> = self
            .rounds
            .iter()
            .filter_map(|r| r.0.get(place))
            .filter(|m| m.is_clean())
            .collect();
        let rate = Spread::of(clean.iter().map(|m| m.rate()).collect());
        let counts = &self.counts[place];
        let own = own.filter(|&own| own != place);
        [
            shown(self.cost(place).0),
            shown(self.ratio(place, 0)),
            shown(own.and_then(|own| self.ratio(own, place))),
            shown(rate.map(|s| format!("{:.0}", s.median))),
            shown(counts.syscalls.map(|n| format!("{n:.2}"))),
            shown(counts.instructions.map(|n| format!("{n:.0}"))),
            format!("{:.1}", counts.resident as f64 / 1024.0 / 1024.0),
            format!("{} of {}", clean.len(), self.rounds.len()),
        ]
        .join(" | ")
    }
}

/// A figure, or that there is none.
pub fn shown(figure: Option<impl fmt::Display>) -> String {
    figure.map_or("-".to_owned(), |figure| figure.to_string())
}

/// The table of all cases, and what it was measured with.
pub fn markdown(options: &Options, cores: &Cores, outcomes: &[Outcome]) -> Result<String, Failure> {
    let mut text = String::from("# What a request costs\n\n");
    let mut known = Vec::new();
    for &subject in &options.proxies {
        let version = version(subject)?;
        if !known.contains(&version) {
            writeln!(text, "- {version}")?;
            known.push(version);
        }
    }
    writeln!(
        text,
        "- {cores}\n- workers: {}, connections: {CONNECTIONS}, rounds: {}, seconds each: {}\n",
        options.workers, options.rounds, options.seconds
    )?;
    let reference = options.proxies.first().map_or("nothing", |s| s.name());
    writeln!(
        text,
        "| case | proxy | CPU us/req (min-max) | ratio to {reference} | tollgate's ratio to it \
         | req/s | syscalls/req | instructions/req | resident MiB | clean rounds |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    )?;
    let own = options
        .proxies
        .iter()
        .position(|&subject| subject == Subject::Tollgate);
    for outcome in outcomes {
        for (place, subject) in options.proxies.iter().enumerate() {
            let row = outcome.row(place, own);
            writeln!(
                text,
                "| {} | {} | {row} |",
                outcome.case.name(),
                subject.name()
            )?;
        }
    }
    Ok(text)
}

/// Median, least and greatest of some figures.
pub struct Spread {
    /// In the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Option<Spread> {
        figures.sort_by(f64::total_cmp);
        let (&min, &max) = (figures.first()?, figures.last()?);
        let half = figures.len() / 2;
        let median = match figures.len() % 2 {
            0 => (figures[half - 1] + figures[half]) / 2.0,
            _ => figures[half],
        };
        Some(Spread { median, min, max })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.min, self.max)
    }
}
