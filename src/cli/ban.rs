//! The command `tollgate ban`: refuses clients for a time, through the admin listener of a running gateway.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::admin_client::AdminAddress;
use super::output::{self, CommandError};
use super::terminal::replace_control_chars;

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
    /// Who orders it. Default: the user of this shell. With a token: for whom its owner orders it.
    #[arg(long)]
    by: Option<String>,
    /// Print the JSON of the gateway.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let order = json!({
        "key": arguments.key,
        "for": arguments.duration,
        "reason": arguments.reason,
        "by": signature(arguments.by.as_deref(), &arguments.admin),
    });
    let banned = arguments
        .admin
        .request("POST", "/v1/bans", &order.to_string());
    match banned {
        Ok(banned) => print_change(&banned, "banned", arguments.json),
        Err(error) => error.print(),
    }
}

/// The name by which to sign an order: as written. Without it and without a token, which has a name, that of
/// [`operator_name`].
pub fn signature(written_name: Option<&str>, admin: &AdminAddress) -> Option<String> {
    match (written_name, &admin.token_file) {
        (None, Some(_)) => None,
        _ => Some(operator_name(written_name)),
    }
}

/// The name of who gives an order: as written, or else the user of this shell.
pub fn operator_name(written_name: Option<&str>) -> String {
    let of_shell = || {
        let names = ["USER", "LOGNAME"].iter();
        names.filter_map(|name| std::env::var(name).ok()).next()
    };
    let name = written_name.map(str::to_owned).or_else(of_shell);
    name.unwrap_or_else(|| "operator".into())
}

/// Prints what has become of a ban, and warns if a restart would lose it.
pub fn print_change(ban: &Value, change: &str, as_json: bool) -> ExitCode {
    if as_json {
        return output::exit_code(output::print_line(ban), ExitCode::SUCCESS);
    }
    if ban["kept"] == false {
        output::print_stderr(
            "this is not kept over restarts: the gateway file has neither `record: { dir: .. }` nor `store: { snapshots: .. }`, \
             or their disk failed; a key that is shown as a hash needs `snapshots` or a shared store",
        );
    }
    let key = replace_control_chars(ban["key"].as_str().unwrap_or_default());
    let seconds = ban["left"].as_f64().unwrap_or_default();
    let text = match change {
        "banned" => format!("{key} is banned for {}", format_seconds(seconds)),
        _ => format!("{key} is not banned any more"),
    };
    output::exit_code(output::print_line(text), ExitCode::SUCCESS)
}

/// Formats a number of seconds, at least one, by its largest unit, and the next one if that is not zero.
pub fn format_seconds(seconds: f64) -> String {
    let mut rest = seconds.round() as u64;
    let mut parts = Vec::new();
    for (unit_seconds, unit) in [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")] {
        let count = rest / unit_seconds;
        rest %= unit_seconds;
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        } else if !parts.is_empty() {
            break;
        }
    }
    parts.truncate(2);
    match parts.is_empty() {
        true => "1s".into(),
        false => parts.join(" "),
    }
}

/// Escapes a text as a segment of a path, or as a value of a query.
pub fn escape_segment(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (seconds, expected) in [
            (0.2, "1s"),
            (59.0, "59s"),
            (60.0, "1m"),
            (3_599.5, "1h"),
            (3_725.0, "1h 2m"),
            (86_400.0 * 7.0 + 5.0, "7d"),
        ] {
            assert_eq!(format_seconds(seconds), expected, "{seconds}");
        }
    }
}
