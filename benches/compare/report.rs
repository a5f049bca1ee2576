//! The report: one table of all measurements. A measurement that something else on the machine disturbed is left out,
//! and never averaged in.

use std::fmt::{self, Write as _};

use crate::Failure;
use crate::case::Case;
use crate::config::program_version;
use crate::cpu::{Cores, CpuSnapshot};
use crate::load::Tally;
use crate::options::{Options, Subject};
use crate::shape::CONNECTIONS;

/// The largest share of one core that other processes may use during a clean measurement.
const MAX_FOREIGN_SHARE: f64 = 0.06;

/// The measurement of one proxy in one round: the sum of its slices. Times are in nanoseconds.
#[derive(Default)]
pub struct Measure {
    elapsed: u64,
    /// The CPU time of the proxy.
    proxy: u64,
    /// The CPU time of the whole machine without this process and all proxies. It is counted in ticks, so it may be a
    /// little below zero.
    foreign: i64,
    responses: u64,
    strays: u64,
}

impl Measure {
    /// Adds a slice: what happened between two snapshots.
    pub fn add(&mut self, before: &CpuSnapshot, after: &CpuSnapshot, tally: &Tally) {
        let proxy = after.proxy - before.proxy;
        let ours = proxy + after.own - before.own;
        self.elapsed += after.at.since(before.at).0;
        self.proxy += proxy;
        self.foreign += (after.machine - before.machine) as i64 - ours as i64;
        self.responses += tally.responses;
        self.strays += tally.strays;
    }

    /// Checks that the proxy did what the case is about. An error if too many responses had another status.
    pub fn verify(&self, case: Case, options: &Options) -> Result<(), String> {
        let max_strays = case.max_strays(options.seconds * options.proxies.len() as u64);
        if self.strays > max_strays {
            let (strays, all) = (self.strays, self.responses);
            return Err(format!(
                "{strays} of {all} answers were not {}",
                case.status()
            ));
        }
        Ok(())
    }

    /// The CPU time of the proxy per response, in microseconds.
    fn cost(&self) -> f64 {
        self.proxy as f64 / 1e3 / self.responses as f64
    }

    /// Responses per second.
    fn rate(&self) -> f64 {
        self.responses as f64 * 1e9 / self.elapsed as f64
    }

    /// The share of one core that other processes used.
    fn foreign(&self) -> f64 {
        self.foreign as f64 / self.elapsed as f64
    }

    fn is_clean(&self) -> bool {
        self.foreign().abs() <= MAX_FOREIGN_SHARE
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

/// The measurements of one round, one for each proxy in the order of the options.
pub struct Round(pub Vec<Measure>);

/// The figures that are counted once for a proxy in a case.
pub struct Counts {
    /// Resident memory in bytes, at the end of the rounds.
    pub resident: u64,
    /// Calls into the kernel per request.
    pub syscalls: Option<f64>,
    /// Instructions in user space per request.
    pub instructions: Option<f64>,
}

/// All figures of one case. Those of a round and the counts are in the order of the options' proxies.
pub struct Outcome {
    pub case: Case,
    pub rounds: Vec<Round>,
    pub counts: Vec<Counts>,
}

impl Outcome {
    /// The ratio of the CPU time of one proxy to that of a reference, over the rounds where both are clean.
    pub fn ratio(&self, index: usize, reference: usize) -> Option<Spread> {
        let pairs = self
            .rounds
            .iter()
            .filter_map(|r| Some((r.0.get(index)?, r.0.get(reference)?)))
            .filter(|(own, reference)| own.is_clean() && reference.is_clean())
            .map(|(own, reference)| own.cost() / reference.cost());
        Spread::of(pairs.collect())
    }

    /// The CPU time per request of the proxy at `index`, in microseconds, and the number of clean rounds.
    pub fn cost(&self, index: usize) -> (Option<Spread>, usize) {
        let measures = self.rounds.iter().filter_map(|r| r.0.get(index));
        let clean: Vec<_> = measures
            .filter(|m| m.is_clean())
            .map(|m| m.cost())
            .collect();
        let count = clean.len();
        (Spread::of(clean), count)
    }

    /// The table's cells for the proxy at `index`. `own` is the index of tollgate.
    fn table_row(&self, index: usize, own: Option<usize>) -> String {
        let clean: Vec<_> = self
            .rounds
            .iter()
            .filter_map(|r| r.0.get(index))
            .filter(|m| m.is_clean())
            .collect();
        let rate = Spread::of(clean.iter().map(|m| m.rate()).collect());
        let counts = &self.counts[index];
        let own = own.filter(|&own| own != index);
        [
            format_figure(self.cost(index).0),
            format_figure(self.ratio(index, 0)),
            format_figure(own.and_then(|own| self.ratio(own, index))),
            format_figure(rate.map(|s| format!("{:.0}", s.median))),
            format_figure(counts.syscalls.map(|n| format!("{n:.2}"))),
            format_figure(counts.instructions.map(|n| format!("{n:.0}"))),
            format!("{:.1}", counts.resident as f64 / 1024.0 / 1024.0),
            format!("{} of {}", clean.len(), self.rounds.len()),
        ]
        .join(" | ")
    }
}

/// A figure as text; `-` if there is none.
pub fn format_figure(figure: Option<impl fmt::Display>) -> String {
    figure.map_or("-".to_owned(), |figure| figure.to_string())
}

/// The table of all cases, with the versions, the cores and the options that it was measured with.
pub fn markdown(options: &Options, cores: &Cores, outcomes: &[Outcome]) -> Result<String, Failure> {
    let mut text = String::from("# What a request costs\n\n");
    let mut versions = Vec::new();
    for &subject in &options.proxies {
        let version = program_version(subject)?;
        if !versions.contains(&version) {
            writeln!(text, "- {version}")?;
            versions.push(version);
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
        for (index, subject) in options.proxies.iter().enumerate() {
            let row = outcome.table_row(index, own);
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

/// The median and the range of some figures.
pub struct Spread {
    pub median: f64,
    pub min: f64,
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
