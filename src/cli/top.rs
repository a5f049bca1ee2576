//! The command `tollgate top`: shows live rates, limits and keys of a running gateway in the terminal. All of them come
//! from its admin listener.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::admin_client::AdminAddress;
use super::output::{self, CommandError};
use super::terminal::{
    format_short, parse_numbers, rates_per_second, replace_control_chars, sparkline,
};

/// The pause between two updates of the screen, because the record has a new value each second.
const UPDATE_PAUSE: Duration = Duration::from_secs(1);
/// The largest number of limits that are shown, so that all lines fit a screen.
const MAX_SHOWN_LIMITS: usize = 8;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    // A pipe or a file gets one screen, a terminal one each second.
    let is_terminal = io::stdout().is_terminal();
    loop {
        let text = match render_screen(&arguments.admin) {
            Ok(text) => text,
            Err(error) => return error.print(),
        };
        if !is_terminal {
            return output::exit_code(output::print(text), ExitCode::SUCCESS);
        }
        // Draw from the upper left, and clear the rest of each line and of the screen.
        let text = text.replace('\n', "\x1b[K\r\n");
        if let Err(error) = output::print(format_args!("\x1b[H{text}\x1b[J")) {
            return output::exit_code(Err(error), ExitCode::SUCCESS);
        }
        thread::sleep(UPDATE_PAUSE);
    }
}

/// Queries the gateway, and renders one screen. An error is that of the first query that fails.
fn render_screen(admin: &AdminAddress) -> Result<String, CommandError> {
    let get = |path: &str| admin.request("GET", path, "");
    let mut text = String::new();
    let outcomes =
        get("/v1/record/range?series=outcome:tollgate_requests_total&from=-60s&points=60")?;
    let covered_seconds = parse_numbers(&outcomes["covered"]);
    let _ = writeln!(text, "requests a second, in the last minute");
    for series in elements(&outcomes["series"]) {
        let rates = rates_per_second(series, &covered_seconds);
        // The last recorded second is skipped, because it may be incomplete.
        let rate = rates.iter().rev().flatten().nth(1).copied().unwrap_or(0.0);
        let outcome = series["labels"]["outcome"].as_str().unwrap_or_default();
        let (rate, curve) = (format_short(rate), sparkline(&rates));
        let _ = writeln!(text, "{outcome:>10} {rate:>9}  {curve}");
    }
    // One second more than a minute, because the current second is incomplete.
    let refused_series = get(
        "/v1/record/range?series=tollgate_limit_decisions_total%7Boutcome=%22refused%22%7D&from=-61s&points=61&by=limit",
    )?;
    let mut refused_by_limit: Vec<(u64, &str)> = elements(&refused_series["series"])
        .map(|series| {
            let refused_count = elements(&series["sum"]).filter_map(Value::as_u64).sum();
            (
                refused_count,
                series["labels"]["limit"].as_str().unwrap_or_default(),
            )
        })
        .filter(|(refused_count, _)| *refused_count > 0)
        .collect();
    refused_by_limit.sort_unstable_by(|left, right| right.cmp(left));
    let _ = writeln!(text, "\nrefused in the last minute, by limit");
    for (refused_count, limit) in refused_by_limit.iter().take(MAX_SHOWN_LIMITS) {
        let _ = writeln!(text, "{refused_count:>20}  {limit}");
    }
    let top_keys = get("/v1/record/top?from=-60s&most=10")?;
    let _ = writeln!(
        text,
        "\nby key, in this minute and the one before ({} different ones)",
        top_keys["distinct"]
    );
    for key in elements(&top_keys["keys"]) {
        let text_of = |name: &str| replace_control_chars(key[name].as_str().unwrap_or_default());
        let _ = writeln!(
            text,
            "{:>20}  {}  {}",
            key["count"],
            text_of("key"),
            text_of("limit")
        );
    }
    Ok(text)
}

/// Returns the elements of a JSON array, or no elements for any other value.
fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
