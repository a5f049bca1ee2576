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

/// Load before each measurement, so that connections and caches are warm.
const WARM_UP: Nanos = Nanos::from_millis(300);

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

/// Starts all proxies of a case and measures them in turn, so that a slow minute of the machine
/// meets all of them.
fn rounds(
    options: &Options,
    case: Case,
    cores: &Cores,
    upstream: &Upstream,
) -> Result<Vec<Round>, Failure> {
    let mut proxies = Vec::new();
    for &subject in &options.proxies {
        proxies.push(Proxy::start(
            subject,
            case,
            upstream.address(),
            options.workers,
            cores,
        )?);
    }
    let mut rounds = Vec::new();
    for number in 1..=options.rounds {
        let mut round = Vec::new();
        for proxy in &mut proxies {
            let measure = measure(proxy, case, options.seconds)?;
            eprintln!(
                "{} {number}/{}  {:9} {measure}",
                case.name(),
                options.rounds,
                proxy.name()
            );
            round.push(measure);
        }
        rounds.push(Round(round));
    }
    Ok(rounds)
}

/// One proxy under full load for some seconds.
fn measure(proxy: &mut Proxy, case: Case, seconds: u64) -> Result<Measure, Failure> {
    let clock = Clock::system();
    let mut client = Client::connect(proxy.address(), case.status())
        .map_err(|e| format!("cannot connect to {}: {e}", proxy.name()))?;
    let named = |e: Failure| format!("{}, {}: {e}", proxy.name(), case.name());
    client.run(&clock, WARM_UP).map_err(named)?;
    let processes = proxy.processes()?;
    let before = Snapshot::take(&processes, &clock)?;
    let tally = client
        .run(&clock, Nanos::from_secs(seconds))
        .map_err(named)?;
    let after = Snapshot::take(&processes, &clock)?;
    if tally.answers == 0 {
        return Err(named("no answer at all".into()).into());
    }
    if tally.strays > case.strays(seconds) {
        return Err(format!(
            "{}, {}: {} of {} answers were not {}",
            proxy.name(),
            case.name(),
            tally.strays,
            tally.answers,
            case.status()
        )
        .into());
    }
    Ok(Measure::between(&before, &after, tally.answers))
}
