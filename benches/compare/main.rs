//! What a request costs in tollgate and in other proxies. The same client and upstream stand around each proxy in turn,
//! and CPU time is read from the kernel. Wall-clock time is never a gate; `benches/README.md` says why.

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
use cpu::{Cores, CpuSnapshot};
use load::{Client, Until};
use options::Options;
use proxy::{Proxy, Under};
use report::{Counts, Measure, Outcome, Round};
use shape::Shape;
use upstream::Upstream;

/// The failure of any step of the comparison; the message names the step.
type Failure = Box<dyn Error + Send + Sync>;

/// The time of load before the first round, so that connections and caches are warm.
const WARM_UP_TIME: Nanos = Nanos::from_millis(500);

/// The time for which one proxy is loaded before the next one.
const SLICE_TIME: Nanos = Nanos::from_millis(200);

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "floor") {
        return exit_code(floor::run(&words[1..]));
    }
    match Options::parse(words.into_iter()) {
        Ok(Some(options)) if options.scale.is_empty() => exit_code(compare(&options)),
        Ok(Some(options)) => exit_code(scale::run_scale(&options)),
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

fn exit_code(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("compare: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every case and writes the report. All processes and threads that it starts have ended when it returns.
fn compare(options: &Options) -> Result<(), Failure> {
    // Ten thousand connections take as many descriptors on each side.
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    setrlimit(Resource::Nofile, limits)?;
    let cores = Cores::divide(options.workers)?;
    cores.pin_client()?;
    let mut outcomes = Vec::new();
    for &case in &options.cases {
        let upstream = Upstream::start(case.response())?;
        outcomes.push(measure_case(options, case, &cores, &upstream)?);
    }
    let text = report::markdown(options, &cores, &outcomes)?;
    let folder = config::target_folder()?;
    write_file(&folder.join("compare.md"), &text)?;
    write_file(
        &folder.join("compare.svg"),
        &chart::draw_svg(options, &outcomes)?,
    )?;
    println!(
        "{text}\nwritten to {}/compare.md and compare.svg",
        folder.display()
    );
    Ok(())
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    Ok(std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// A proxy and the client that loads it.
struct Contender {
    label: String,
    proxy: Proxy,
    client: Client,
}

/// Starts all proxies of a case, measures them in rounds, and counts what the options ask for.
fn measure_case(
    options: &Options,
    case: Case,
    cores: &Cores,
    upstream: &Upstream,
) -> Result<Outcome, Failure> {
    let clock = Clock::system();
    let mut contenders = Vec::new();
    for &subject in &options.proxies {
        let shape = Shape::for_case(case, options.workers);
        let address = upstream.address();
        let proxy = Proxy::start(subject, case, address, shape, cores, Under::Nothing)?;
        let mut client = Client::new(proxy.address(), case, &shape)?;
        client
            .run(&clock, Until::Passed(WARM_UP_TIME))
            .map_err(|e| format!("{}: {e}", proxy.name()))?;
        contenders.push(Contender {
            label: format!("{} {}", case.name(), subject.name()),
            proxy,
            client,
        });
    }
    let rounds = measure_rounds(options, case, &mut contenders, &clock)?;
    let mut counts = Vec::new();
    for Contender { proxy, client, .. } in &mut contenders {
        counts.push(Counts {
            resident: cpu::resident_bytes(&proxy.processes()?)?,
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

/// Measures all rounds, and prints each measure.
fn measure_rounds(
    options: &Options,
    case: Case,
    contenders: &mut [Contender],
    clock: &Clock,
) -> Result<Vec<Round>, Failure> {
    let mut rounds = Vec::new();
    for number in 1..=options.rounds {
        let round = measure_round(options, case, contenders, clock)?;
        for (contender, measure) in contenders.iter().zip(&round.0) {
            let (label, all) = (&contender.label, options.rounds);
            eprintln!("{label:20} {number}/{all}  {measure}");
        }
        rounds.push(round);
    }
    Ok(rounds)
}

/// Loads the proxies in turn, a slice of time each, until each had its seconds. Slices are short and their order
/// changes, so that a slow second of the machine meets all proxies alike. With three proxies or more, none comes right
/// after itself, because it would find its caches warm.
fn measure_round(
    options: &Options,
    case: Case,
    contenders: &mut [Contender],
    clock: &Clock,
) -> Result<Round, Failure> {
    let slices = Nanos::from_secs(options.seconds).0 / SLICE_TIME.0;
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
            let before = CpuSnapshot::take(&processes, turn, clock)?;
            let tally = client
                .run(clock, Until::Passed(SLICE_TIME))
                .map_err(|e| format!("{}: {e}", proxy.name()))?;
            measure.add(
                &before,
                &CpuSnapshot::take(&processes, turn, clock)?,
                &tally,
            );
        }
    }
    for (contender, measure) in contenders.iter().zip(&measures) {
        measure
            .verify(case, options)
            .map_err(|e| format!("{}: {e}", contender.proxy.name()))?;
    }
    Ok(Round(measures))
}
