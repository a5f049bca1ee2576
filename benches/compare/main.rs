//! What a request costs here and in nginx: the same client and the same upstream around each proxy
//! in turn, CPU time read from the kernel. Never a wall-clock gate; `benches/README.md` says why.

mod cpu;
mod load;
mod options;
mod proxy;
mod report;
mod upstream;

use std::error::Error;
use std::process::ExitCode;

use tollgate::clock::{Clock, Nanos};

use cpu::{Cores, Snapshot};
use load::Client;
use options::{Case, Options};
use proxy::Proxy;
use report::{Measure, Round};
use upstream::Upstream;

/// What any step of the comparison fails with; the message names the step.
type Failure = Box<dyn Error + Send + Sync>;

/// Load before the first round, so that connections and caches are warm.
const WARM_UP: Nanos = Nanos::from_millis(500);

/// How long one proxy is loaded before it is the next one's turn.
const SLICE: Nanos = Nanos::from_millis(200);

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            eprintln!("compare measures only when it is run as `cargo bench --bench compare`");
            return ExitCode::SUCCESS;
        }
        Err(mistake) => {
            eprintln!("compare: {mistake}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match compare(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("compare: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every case and writes the report. Whatever was started ends when this returns.
fn compare(options: &Options) -> Result<(), Failure> {
    let cores = Cores::divide(options.workers)?;
    cores.pin_client()?;
    let upstream = Upstream::start()?;
    let mut results = Vec::new();
    for &case in &options.cases {
        results.push((case, rounds(options, case, &cores, &upstream)?));
    }
    let text = report::markdown(options, &cores, &results)?;
    let path = proxy::target_folder()?.join("compare.md");
    std::fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("{text}\nwritten to {}", path.display());
    Ok(())
}

/// A proxy and the client that loads it.
struct Contender {
    proxy: Proxy,
    client: Client,
}

/// Starts all proxies of a case and measures them in rounds.
fn rounds(
    options: &Options,
    case: Case,
    cores: &Cores,
    upstream: &Upstream,
) -> Result<Vec<Round>, Failure> {
    let clock = Clock::system();
    let mut contenders = Vec::new();
    for &subject in &options.proxies {
        let proxy = Proxy::start(subject, case, upstream.address(), options.workers, cores)?;
        let mut client = Client::connect(proxy.address(), case.status())?;
        client
            .run(&clock, WARM_UP)
            .map_err(|e| format!("{}: {e}", proxy.name()))?;
        contenders.push(Contender { proxy, client });
    }
    let mut rounds = Vec::new();
    for number in 1..=options.rounds {
        let round = round(options, case, &mut contenders, &clock)?;
        for (contender, measure) in contenders.iter().zip(&round.0) {
            let name = contender.proxy.name();
            eprintln!(
                "{} {number}/{}  {name:9} {measure}",
                case.name(),
                options.rounds
            );
        }
        rounds.push(round);
    }
    Ok(rounds)
}

/// Loads the proxies in turn, a slice of time each, until each had its seconds. The slices are
/// short and change their order, so that a slow second of the machine meets all proxies alike.
fn round(
    options: &Options,
    case: Case,
    contenders: &mut [Contender],
    clock: &Clock,
) -> Result<Round, Failure> {
    let slices = Nanos::from_secs(options.seconds).0 / SLICE.0;
    let mut measures: Vec<_> = contenders.iter().map(|_| Measure::default()).collect();
    for slice in 0..slices {
        let mut turns: Vec<_> = contenders.iter_mut().zip(&mut measures).collect();
        if slice % 2 == 1 {
            turns.reverse();
        }
        for (Contender { proxy, client }, measure) in turns {
            let processes = proxy.processes()?;
            let before = Snapshot::take(&processes, clock)?;
            let tally = client
                .run(clock, SLICE)
                .map_err(|e| format!("{}: {e}", proxy.name()))?;
            measure.add(&before, &Snapshot::take(&processes, clock)?, &tally);
        }
    }
    for (contender, measure) in contenders.iter().zip(&measures) {
        measure
            .verify(case, options)
            .map_err(|e| format!("{}: {e}", contender.proxy.name()))?;
    }
    Ok(Round(measures))
}
