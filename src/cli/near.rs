//! The command `tollgate near`: shows which keys have used most of a limit of a running gateway. All figures come from its
//! admin listener.

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
    /// Share of the quota that a key must have used, such as `80%`.
    #[arg(long, default_value = "80%")]
    above: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let path = format!(
        "/v1/near?limit={}&above={}",
        percent_encode(&arguments.limit),
        percent_encode(&arguments.above)
    );
    let text = match arguments.admin.request("GET", &path, "") {
        Ok(near) if arguments.json => format!("{near:#}\n"),
        Ok(near) => render(&near),
        Err(error) => return error.print(),
    };
    output::exit_code(output::print(text), ExitCode::SUCCESS)
}

/// Renders the response as a table.
fn render(near: &Value) -> String {
    let mut text = String::new();
    let keys = near["keys"].as_array().map(Vec::as_slice);
    let keys = keys.unwrap_or_default();
    let text_of = |value: &Value| replace_control_chars(value.as_str().unwrap_or_default());
    let _ = writeln!(
        text,
        "{} of {} keys have used more than {} % of {}",
        keys.len(),
        near["compared"],
        near["above"].as_f64().unwrap_or(0.0),
        text_of(&near["limit"])
    );
    for key in keys {
        let [quota, remaining] = ["quota", "remaining"].map(|name| key[name].as_u64());
        let used = quota.unwrap_or(0).saturating_sub(remaining.unwrap_or(0));
        let percent = key["used_share"].as_f64().unwrap_or(0.0) * 100.0;
        let window = match key["window"].as_u64() {
            _ if key["credits"].is_object() => " credits".to_owned(),
            Some(seconds) => format!(" in {seconds} s"),
            None => " open".to_owned(),
        };
        let _ = writeln!(
            text,
            "{percent:>6.1} %  {used:>10} of {}{window}  {}  {}",
            key["quota"],
            text_of(&key["key"]),
            text_of(&key["standing"])
        );
    }
    if near["complete"] == false {
        text += "only the most frequent keys of the lists of top keys are covered; others may be as near\n";
    }
    text
}
