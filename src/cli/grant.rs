//! The command `tollgate grant`: gives a key more of a limit for a time, through the admin listener of a running gateway.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::admin_client::AdminAddress;
use super::ban::{format_seconds, signature};
use super::output;
use super::terminal::replace_control_chars;

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the limit, with its policy if several limits have the name: `per-user` or `api/per-user`.
    limit: String,
    /// Key as `tollgate explain` shows it, such as `user=alice`.
    key: String,
    #[command(flatten)]
    more: More,
    /// How long, such as 90s, 10m, 1h or 7d.
    #[arg(long = "for", value_name = "DURATION")]
    duration: String,
    /// Why, for those who list the grants later.
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

/// How much more.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct More {
    /// How many times the number that holds, such as 10. A whole number from 2.
    #[arg(long, allow_hyphen_values = true, value_name = "NUMBER")]
    times: Option<String>,
    /// How much is added to the number that holds, such as 5000.
    #[arg(long, allow_hyphen_values = true, value_name = "NUMBER")]
    add: Option<String>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let mut order = Map::new();
    for (name, value) in [
        ("limit", json!(arguments.limit)),
        ("key", json!(arguments.key)),
        ("for", json!(arguments.duration)),
        ("reason", json!(arguments.reason)),
        (
            "by",
            json!(signature(arguments.by.as_deref(), &arguments.admin)),
        ),
    ] {
        order.insert(name.into(), value);
    }
    for (name, text) in [
        ("times", &arguments.more.times),
        ("add", &arguments.more.add),
    ] {
        if let Some(text) = text {
            // The gateway says what is wrong with a text that is no number.
            let number = text.trim().parse::<u64>();
            order.insert(
                name.into(),
                number.map_or_else(|_| json!(text), Value::from),
            );
        }
    }
    let order = Value::Object(order).to_string();
    match arguments.admin.request("POST", "/v1/grants", &order) {
        Ok(granted) => print_change(&granted, "granted", arguments.json),
        Err(error) => error.print(),
    }
}

/// Prints what has become of a grant, and warns if it does not hold, or if a restart would lose it.
pub fn print_change(grant: &Value, change: &str, as_json: bool) -> ExitCode {
    if as_json {
        return output::exit_code(output::print_line(grant), ExitCode::SUCCESS);
    }
    let text_of = |name: &str| replace_control_chars(grant[name].as_str().unwrap_or_default());
    let (key, limit) = (text_of("key"), text_of("limit"));
    if grant["kept"] == false {
        output::print_stderr(
            "this is not kept over restarts: the gateway file has neither `record: { dir: .. }` nor `store: { snapshots: .. }`, \
             or their disk failed; a key that is shown as a hash needs `snapshots` or a shared store",
        );
    }
    if change == "revoked" {
        let text = format!("the grant of {key} for {limit} is taken back");
        return output::exit_code(output::print_line(text), ExitCode::SUCCESS);
    }
    if grant["holds"] == false {
        output::print_stderr(format!("it does not hold now: {}", text_of("why")));
    }
    let seconds = grant["left"].as_f64().unwrap_or_default();
    let text = format!(
        "{key} has {} of {limit} for {}",
        amount_text(grant),
        format_seconds(seconds)
    );
    output::exit_code(output::print_line(text), ExitCode::SUCCESS)
}

/// How much more a grant gives, and the numbers that hold with it: `10 times (100/m)`.
pub fn amount_text(grant: &Value) -> String {
    let amount = match (grant["times"].as_u64(), grant["add"].as_u64()) {
        (Some(times), _) => format!("{times} times"),
        (_, Some(add)) => format!("{add} more"),
        _ => String::new(),
    };
    let numbers = grant["number"].as_array().into_iter().flatten();
    let numbers: Vec<&str> = numbers.filter_map(Value::as_str).collect();
    match numbers.is_empty() {
        true => amount,
        false => replace_control_chars(&format!("{amount} ({})", numbers.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_show_the_numbers_that_hold() {
        let check = |grant: Value, expected: &str| assert_eq!(amount_text(&grant), expected);
        check(
            json!({ "times": 10, "number": ["20/s", "100/m"] }),
            "10 times (20/s, 100/m)",
        );
        check(json!({ "add": 5 }), "5 more");
    }
}
