//! The command `tollgate grants`: lists the grants and the accounts of credits of a running gateway.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::Value;

use super::admin_client::AdminAddress;
use super::grant::amount_text;
use super::output;
use super::terminal::{format_seconds, render_columns, replace_control_chars};

#[derive(clap::Args)]
pub struct Arguments {
    /// Print the JSON of the gateway.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let response = match arguments.admin.request("GET", "/v1/grants", "") {
        Ok(response) => response,
        Err(error) => return error.print(),
    };
    if arguments.json {
        return output::exit_code(output::print_line(response), ExitCode::SUCCESS);
    }
    let grants = response["grants"].as_array().map(Vec::as_slice);
    let text = render(grants.unwrap_or_default());
    output::exit_code(output::print(text), ExitCode::SUCCESS)
}

/// A line for each grant: which limit and key, how much, for how long, and by whom and why. A grant that does not hold has a
/// second line that says why.
fn render(grants: &[Value]) -> String {
    let text_of =
        |grant: &Value, name: &str| replace_control_chars(grant[name].as_str().unwrap_or_default());
    let cells_of = |grant: &Value| {
        [
            text_of(grant, "limit"),
            text_of(grant, "key"),
            amount_text(grant),
            left_text(grant),
            text_of(grant, "by"),
            text_of(grant, "reason"),
        ]
    };
    let titles = ["limit", "key", "grant", "left", "by", "reason"];
    let rows: Vec<[String; 6]> = grants.iter().map(cells_of).collect();
    let table = render_columns(titles, &rows);
    let grants_of_lines = std::iter::once(None).chain(grants.iter().map(Some));
    let mut text = String::new();
    for (line, grant) in table.lines().zip(grants_of_lines) {
        let _ = writeln!(text, "{line}");
        if let Some(grant) = grant.filter(|grant| grant["holds"] == false) {
            let _ = writeln!(text, "  does not hold now: {}", text_of(grant, "why"));
        }
    }
    text
}

/// How long a grant still holds. Accounts of credits have no end.
fn left_text(grant: &Value) -> String {
    let seconds = grant["left"].as_f64();
    seconds.map_or_else(|| "no end".to_owned(), format_seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_of_grants() {
        let grants = [
            json!({
                "limit": "per-user", "key": "user=alice", "times": 10, "number": ["100/m"],
                "left": 3_600.0, "by": "ann", "reason": "launch", "holds": true,
            }),
            json!({
                "limit": "gone", "key": "ip=192.0.2.7", "add": 5, "left": 5.0, "by": "ann", "reason": "",
                "holds": false, "why": "no limit is named `gone`",
            }),
        ];
        let expected = "\
limit     key           grant             left  by   reason
per-user  user=alice    10 times (100/m)  1h    ann  launch
gone      ip=192.0.2.7  5 more            5s    ann
  does not hold now: no limit is named `gone`
";
        assert_eq!(render(&grants), expected);
    }
}
