//! `tollgate top`: live figures of a running gateway in the terminal.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::admin::{AdminAddress, CommandError};
use super::output;
use super::terminal::{bars, printable, rates, short};

/// Pause between two updates.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    // Without a terminal one update is enough.
    let once = !io::stdout().is_terminal();
    loop {
        let text = match render(&arguments.admin) {
            Ok(text) => text,
            Err((code, why)) => {
                output::print_stderr(why);
                return ExitCode::from(code);
            }
        };
        if once {
            return output::exit_code(output::print(text), ExitCode::SUCCESS);
        }
        // Draw from the upper left, and clear the rest of each line and of the screen.
        let text = text.replace('\n', "\x1b[K\r\n");
        if let Err(error) = output::print(format_args!("\x1b[H{text}\x1b[J")) {
            return output::exit_code(Err(error), ExitCode::SUCCESS);
        }
        thread::sleep(PAUSE);
    }
}

fn render(admin: &AdminAddress) -> Result<String, CommandError> {
    let get = |path: &str| admin.request("GET", path, "");
    let mut text = String::new();
    let outcomes =
        get("/v1/record/range?series=outcome:tollgate_requests_total&from=-60s&points=60")?;
    let covered: Vec<f64> = list(&outcomes["covered"])
        .filter_map(Value::as_f64)
        .collect();
    let _ = writeln!(text, "requests a second, in the last minute");
    for series in list(&outcomes["series"]) {
        let rates = rates(series, &covered);
        // Skip the current second, which is incomplete.
        let now = rates.iter().rev().flatten().nth(1).copied().unwrap_or(0.0);
        let outcome = series["labels"]["outcome"].as_str().unwrap_or_default();
        let _ = writeln!(text, "{outcome:>10} {:>9}  {}", short(now), bars(&rates));
    }
    let limits = get(
        "/v1/record/range?series=tollgate_limit_decisions_total%7Boutcome=%22refused%22%7D&from=-61s&points=61&by=limit",
    )?;
    let mut refused: Vec<(u64, &str)> = list(&limits["series"])
        .map(|series| {
            let sum = list(&series["sum"]).filter_map(Value::as_u64).sum();
            (sum, series["labels"]["limit"].as_str().unwrap_or_default())
        })
        .filter(|(sum, _)| *sum > 0)
        .collect();
    refused.sort_unstable_by(|one, other| other.cmp(one));
    let _ = writeln!(text, "\nrefused in the last minute, by limit");
    for (sum, limit) in refused.iter().take(8) {
        let _ = writeln!(text, "{sum:>20}  {limit}");
    }
    let top = get("/v1/record/top?from=-60s&most=10")?;
    let _ = writeln!(
        text,
        "\nby key, in this minute and the one before ({} different ones)",
        top["distinct"]
    );
    for listed in list(&top["keys"]) {
        let part = |name: &str| printable(listed[name].as_str().unwrap_or_default());
        let _ = writeln!(
            text,
            "{:>20}  {}  {}",
            listed["count"],
            part("key"),
            part("limit")
        );
    }
    Ok(text)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
