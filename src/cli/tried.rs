//! The command `tollgate try`: shows what a limit of a running gateway would have refused, by its candidate rate or in
//! shadow mode. All figures come from the admin listener.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::Value;

use super::admin_client::{AdminAddress, percent_encode};
use super::output;
use super::terminal::replace_control_chars;

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the limit.
    limit: String,
    /// The most keys to show.
    #[arg(long, default_value_t = 20)]
    most: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let limit = percent_encode(&arguments.limit);
    let path = format!("/v1/try?limit={limit}&most={}", arguments.most);
    let text = match arguments.admin.request("GET", &path, "") {
        Ok(tried) if arguments.json => format!("{tried:#}\n"),
        Ok(tried) => render(&tried),
        Err(error) => return error.print(),
    };
    output::exit_code(output::print(text), ExitCode::SUCCESS)
}

/// Renders what each rule of the limit would have refused.
fn render(tried: &Value) -> String {
    let mut text = String::new();
    let elements = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text_of = |value: &Value| replace_control_chars(value.as_str().unwrap_or_default());
    for rule in elements(&tried["would_refuse"]) {
        let rates: Vec<String> = elements(&rule["rate"]).iter().map(text_of).collect();
        let terms = match (rates.is_empty(), rule["concurrent"].as_u64()) {
            (true, Some(permits)) => format!("{permits} open"),
            _ => rates.join(", "),
        };
        let kind = match rule["try"] == true {
            true => "try",
            false => "shadow",
        };
        let _ = writeln!(
            text,
            "{} ({}), {kind} {terms}: would have refused {} of {} in {} s",
            text_of(&rule["limit"]),
            text_of(&rule["at"]),
            rule["refused"],
            rule["decided"],
            rule["seconds"],
        );
        for key in elements(&rule["keys"]) {
            let count = key["count"].as_u64().unwrap_or(0);
            let _ = writeln!(text, "{count:>20}  {}", text_of(&key["key"]));
        }
        if rule["exact"] == false {
            text += "too many keys would have been refused: counts of keys are lower bounds, and rare keys are missing\n";
        }
    }
    text
}
