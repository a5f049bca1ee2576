//! The command `tollgate ban`: refuses clients for a time, through the admin listener of a running gateway.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::admin_client::AdminAddress;
use super::order_options::{HASHED_KEY_NEEDS, OrderOptions, warn_unless_kept};
use super::output::{self, CommandError};
use super::terminal::{format_seconds, replace_control_chars};

#[derive(clap::Args)]
pub struct Arguments {
    /// Key such as `user=alice`, network such as `192.0.2.0/24`, or address. An IPv6 address stands for its client's network.
    key: String,
    /// How long, such as 90s, 10m, 1h or 7d.
    #[arg(long = "for", default_value = "1h", value_name = "DURATION")]
    duration: String,
    /// Why, for those who list the bans later.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    options: OrderOptions,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let order = json!({
        "key": arguments.key,
        "for": arguments.duration,
        "reason": arguments.reason,
    });
    match arguments.options.send("/v1/bans", order) {
        Ok(banned) => print_change(&banned, "banned", arguments.options.json),
        Err(error) => error.print(),
    }
}

/// Prints what has become of a ban, and warns if a restart would lose it.
pub fn print_change(ban: &Value, change: &str, as_json: bool) -> ExitCode {
    if as_json {
        return output::exit_code(output::print_line(ban), ExitCode::SUCCESS);
    }
    warn_unless_kept(ban, HASHED_KEY_NEEDS);
    let key = replace_control_chars(ban["key"].as_str().unwrap_or_default());
    let seconds = ban["left"].as_f64().unwrap_or_default();
    let text = match change {
        "banned" => format!("{key} is banned for {}", format_seconds(seconds)),
        _ => format!("{key} is not banned any more"),
    };
    output::exit_code(output::print_line(text), ExitCode::SUCCESS)
}

/// The bans of a running gateway.
///
/// # Errors
///
/// The gateway cannot be asked, or its response has no bans.
pub fn fetch_bans(admin: &AdminAddress) -> Result<(Value, Vec<Value>), CommandError> {
    let response = admin.request("GET", "/v1/bans", "")?;
    let bans = response["bans"].as_array().cloned();
    let bans = bans.ok_or_else(|| CommandError::failure("the response has no bans"))?;
    Ok((response, bans))
}
