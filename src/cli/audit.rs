//! The command `tollgate audit`: lists what operators have ordered at the admin listener of a running gateway, from its
//! record.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::Value;

use super::admin_client::{AdminAddress, percent_encode};
use super::output;
use super::terminal::{format_time, replace_control_chars};

#[derive(clap::Args)]
pub struct Arguments {
    /// Start: seconds since 1970, or a span before now such as -90s, -1h, -7d.
    #[arg(long, default_value = "-1d", allow_hyphen_values = true)]
    from: String,
    /// End: as --from, or `now`.
    #[arg(long, default_value = "now", allow_hyphen_values = true)]
    to: String,
    /// The most orders to list, of which the latest are taken.
    #[arg(long, default_value_t = 100)]
    most: usize,
    /// Print the JSON of the gateway.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let path = format!(
        "/v1/record/events?audit=true&from={}&to={}&most={}",
        percent_encode(&arguments.from),
        percent_encode(&arguments.to),
        arguments.most
    );
    let text = match arguments.admin.request("GET", &path, "") {
        Ok(events) if arguments.json => format!("{events}\n"),
        Ok(events) => {
            if events["cut"] == true {
                let most = events["events"].as_array().map_or(0, Vec::len);
                output::print_stderr(format_args!(
                    "only the latest {most} orders are listed; --most takes up to 1000, and --to an earlier end"
                ));
            }
            render(&events)
        }
        Err(error) => return error.print(),
    };
    output::exit_code(output::print(text), ExitCode::SUCCESS)
}

/// A line for each order, the latest last: when it came, and what the event says of it.
fn render(events: &Value) -> String {
    let mut text = String::new();
    for event in events["events"].as_array().into_iter().flatten().rev() {
        let detail = replace_control_chars(event["detail"].as_str().unwrap_or_default());
        let _ = writeln!(text, "{}  {detail}", format_time(&event["at"]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_order_is_the_last_line() {
        let events = serde_json::json!({ "events": [
            { "at": 1_700_000_060, "detail": "bob at 127.0.0.1: reload (done)" },
            { "at": 1_700_000_000, "detail": "alice at 127.0.0.1: ban user=\u{1b}[31m (done)" },
        ] });
        assert_eq!(
            render(&events),
            "2023-11-14T22:13:20Z  alice at 127.0.0.1: ban user=\u{fffd}[31m (done)\n\
             2023-11-14T22:14:20Z  bob at 127.0.0.1: reload (done)\n"
        );
    }
}
