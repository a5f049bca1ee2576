//! What a request costs here and in other proxies: the same client and the same upstream around each
//! proxy in turn, CPU time read from the kernel. Never a wall-clock gate; `benches/README.md` says
//! why.

mod case;
mod chart;
mod config;
mod counts;
mod cpu;
mod floor;
mod load;
mod message;
mod options;
mod poll;
mod proxy;
mod report;
mod scale;
mod shape;
mod upstream;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{Resource, getrlimit, setrlimit};
use tollgate::base::clock::{Clock, Nanos};

use case::Case;
use cpu::{Cores, Snapshot};
use load::{Client, Until};
use options::Options;
use proxy::{Proxy, Under};
use report::{Counts, Measure, Outcome, Round};
use shape::Shape;
use upstream::Upstream;

/// What any step of the comparison fails with; the message names the step.
type Failure = Box<dyn Error + Send + Sync>;

/// Load before the first round, so that connections and caches are warm.
const WARM_UP: Nanos = Nanos::from_millis(500);

/// How long one proxy is loaded before it is the next one's turn.
const SLICE: Nanos = Nanos::from_millis(200);

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "floor") {
        return ended(floor::run(&words[1..]));
    }
    match Options::parse(words.into_iter()) {
        Ok(Some(options)) if options.scale.is_empty() => ended(compare(&options)),
        Ok(Some(options)) => ended(scale::scale(&options)),
        Ok(None) => {
            eprintln!("compare measures only when it is run as `cargo bench --bench compare`");
            ExitCode::SUCCESS
        }
        Err(mistake) => {
            eprintln!("compare: {mistake}\n\n{}", options::USAGE);
            ExitCode::from(2)
        }
    }
}

fn ended(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("compare: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every case and writes the report. Whatever was started ends when this returns.
fn compare(options: &Options) -> Result<(), Failure> {
    // Ten thousand connections take as many descriptors on each side.
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    setrlimit(Resource::Nofile, limits)?;
    let cores = Cores::divide(options.workers)?;
    cores.pin_client()?;
    let mut outcomes = Vec::new();
    for &case in &options.cases {
        let upstream = Upstream::start(case.answer())?;
        outcomes.push(outcome(options, case, &cores, &upstream)?);
    }
    let text = report::markdown(options, &cores, &outcomes)?;
    let folder = config::target_folder()?;
    write(&folder.join("compare.md"), &text)?;
    write(
        &folder.join("compare.svg"),
        &chart::svg(options, &outcomes)?,
    )?;
    println!(
        "{text}\nwritten to {}/compare.md and compare.svg",
        folder.display()
    );
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Ok(std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// A proxy and the client that loads it.
struct Contender {
    label: String,
    proxy: Proxy,
    client: Client,
}

/// Starts all proxies of a case, measures them in rounds and counts what is asked for.
fn outcome(
    options: &Options,
    case: Case,
    cores: &Cores,
    upstream: &Upstream,
) -> Result<Outcome, Failure> {
    let clock = Clock::system();
    let mut contenders = Vec::new();
    for &subject in &options.proxies {
        let shape = Shape::of(case, options.workers);
        let address = upstream.address();
        let proxy = Proxy::start(subject, case, address, shape, cores, Under::Nothing)?;
        let mut client = Client::new(proxy.address(), case, &shape)?;
        client
            .run(&clock, Until::Passed(WARM_UP))
            .map_err(|e| format!("{}: {e}", proxy.name()))?;
        contenders.push(Contender {
            label: format!("{} {}", case.name(), subject.name()),
            proxy,
            client,
        });
    }
    let rounds = rounds(options, case, &mut contenders, &clock)?;
    let mut counts = Vec::new();
    for Contender { proxy, client, .. } in &mut contenders {
        counts.push(Counts {
            resident: cpu::resident(&proxy.processes()?)?,
            syscalls: match options.syscalls {
                true => Some(counts::syscalls(proxy, client, &clock)?),
                false => None,
            },
            instructions: None,
        });
    }
    drop(contenders);
    if options.instructions {
        for (&subject, counts) in options.proxies.iter().zip(&mut counts) {
            eprintln!("{}: instructions of {}", case.name(), subject.name());
            counts.instructions = counts::instructions(subject, case, upstream.address(), cores)?;
        }
    }
    Ok(Outcome {
        case,
        rounds,
        counts,
    })
}

/// Measures in all rounds, and says what is found.
fn rounds(
    options: &Options,
    case: Case,
    contenders: &mut [Contender],
    clock: &Clock,
) -> Result<Vec<Round>, Failure> {
    let mut rounds = Vec::new();
    for number in 1..=options.rounds {
        let round = round(options, case, contenders, clock)?;
        for (contender, measure) in contenders.iter().zip(&round.0) {
            let (label, all) = (&contender.label, options.rounds);
            eprintln!("{label:20} {number}/{all}  {measure}");
        }
        rounds.push(round);
    }
    Ok(rounds)
}

/// Loads the proxies in turn, a slice of time each, until each had its seconds. The slices are
/// short, and three or more change their order, so that a slow second of the machine meets all
/// proxies alike; none comes right after itself, for it would find its caches warm.
fn round(
    options: &Options,
    case: Case,
    contenders: &mut [Contender],
    clock: &Clock,
) -> Result<Round, Failure> {
    let slices = Nanos::from_secs(options.seconds).0 / SLICE.0;
    let mut measures: Vec<_> = contenders.iter().map(|_| Measure::default()).collect();
    let processes = contenders
        .iter()
        .map(|contender| contender.proxy.processes())
        .collect::<Result<Vec<_>, _>>()?;
    for slice in 0..slices {
        let mut turns: Vec<_> = contenders
            .iter_mut()
            .zip(&mut measures)
            .enumerate()
            .collect();
        let first = slice as usize % turns.len().max(1);
        turns.rotate_left(first);
        if slice % 2 == 1 {
            turns.reverse();
        }
        for (turn, (Contender { proxy, client, .. }, measure)) in turns {
            let before = Snapshot::take(&processes, turn, clock)?;
            let tally = client
                .run(clock, Until::Passed(SLICE))
                .map_err(|e| format!("{}: {e}", proxy.name()))?;
            measure.add(&before, &Snapshot::take(&processes, turn, clock)?, &tally);
        }
    }
    for (contender, measure) in contenders.iter().zip(&measures) {
        measure
            .verify(case, options)
            .map_err(|e| format!("{}: {e}", contender.proxy.name()))?;
    }
    Ok(Round(measures))
}
