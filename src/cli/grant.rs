//! The command `tollgate grant`: gives a key more of a limit for a time, or adds credits to its account, through the admin
//! listener of a running gateway.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::order_options::{HASHED_KEY_NEEDS, OrderOptions, warn_unless_kept};
use super::output;
use super::terminal::{format_seconds, replace_control_chars};
use crate::operator::CreditOrder;

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the limit, with its policy if several limits have the name: `per-user` or `api/per-user`.
    limit: String,
    /// Key as `tollgate explain` shows it, such as `user=alice`.
    key: String,
    #[command(flatten)]
    more: More,
    /// How long, such as 90s, 10m, 1h or 7d. Credits have no end, every other grant needs one.
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<String>,
    /// Id of an order of credits, such as inv-2026-11. The same order is never added twice.
    #[arg(long, value_name = "ID")]
    order: Option<String>,
    /// Why, for those who list the grants later.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    options: OrderOptions,
}

/// How much more.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct More {
    /// How many times the number that holds, such as 10. A whole number from 2.
    #[arg(long, allow_hyphen_values = true, value_name = "NUMBER")]
    times: Option<String>,
    /// How much is added to the number that holds, or how many credits to the account, such as 5000.
    #[arg(long, allow_hyphen_values = true, value_name = "NUMBER")]
    add: Option<String>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let mut order = json!({
        "limit": arguments.limit,
        "key": arguments.key,
        "reason": arguments.reason,
    });
    for (name, text) in [("for", &arguments.duration), ("order", &arguments.order)] {
        if let Some(text) = text {
            order[name] = json!(text);
        }
    }
    for (name, text) in [
        ("times", &arguments.more.times),
        ("add", &arguments.more.add),
    ] {
        if let Some(text) = text {
            // The gateway says what is wrong with a text that is no number.
            let number = text.trim().parse::<u64>();
            order[name] = number.map_or_else(|_| json!(text), Value::from);
        }
    }
    let may_add_credits = arguments.more.add.is_some() && arguments.duration.is_none();
    let own_id = (may_add_credits && arguments.order.is_none()).then(CreditOrder::random_id);
    if let Some(id) = &own_id {
        order["order"] = json!(id);
    }
    match arguments.options.send("/v1/grants", order) {
        Ok(granted) => print_change(&granted, "granted", arguments.options.json),
        Err(error) => {
            let exit_code = error.print();
            if let (true, Some(id)) = (error.is_unanswered, own_id) {
                output::print_stderr(format!(
                    "repeat it with `--order {id}`, so that it is never added twice"
                ));
            }
            exit_code
        }
    }
}

/// Prints what has become of a grant, and warns if it does not hold, or if a restart would lose it.
pub fn print_change(grant: &Value, change: &str, as_json: bool) -> ExitCode {
    if as_json {
        return output::exit_code(output::print_line(grant), ExitCode::SUCCESS);
    }
    let text_of = |name: &str| replace_control_chars(grant[name].as_str().unwrap_or_default());
    let (key, limit) = (text_of("key"), text_of("limit"));
    warn_unless_kept(grant, HASHED_KEY_NEEDS);
    if change == "revoked" {
        if let Some(taken) = grant["revoked"].as_u64() {
            let text = format!("{taken} credits of {key} for {limit} are taken back");
            return output::exit_code(output::print_line(text), ExitCode::SUCCESS);
        }
        let text = format!("the grant of {key} for {limit} is taken back");
        return output::exit_code(output::print_line(text), ExitCode::SUCCESS);
    }
    if grant["holds"] == false {
        output::print_stderr(format!("it does not hold now: {}", text_of("why")));
    }
    if grant["credits"].is_object() {
        let text = format!(
            "{key} {} of {limit}: {}",
            order_text(grant),
            amount_text(grant)
        );
        return output::exit_code(output::print_line(text), ExitCode::SUCCESS);
    }
    let seconds = grant["left"].as_f64().unwrap_or_default();
    let text = format!(
        "{key} has {} of {limit} for {}",
        amount_text(grant),
        format_seconds(seconds)
    );
    output::exit_code(output::print_line(text), ExitCode::SUCCESS)
}

/// What an order of credits has done: `has 500 credits more`.
fn order_text(account: &Value) -> String {
    let order = &account["order"];
    let id = replace_control_chars(order["id"].as_str().unwrap_or_default());
    match order["repeated"] == true {
        true => format!("has the order {id} already"),
        false => format!("has {} credits more", order["add"]),
    }
}

/// How much more a grant gives, and the numbers that hold with it: `10 times (100/m)`. Of an account its credits.
pub fn amount_text(grant: &Value) -> String {
    let credits = &grant["credits"];
    if let Some(added) = credits["added"].as_u64() {
        return match credits["left"].as_u64() {
            Some(left) => format!("{left} of {added} credits left"),
            None => format!("{added} credits in all"),
        };
    }
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
        let credits = json!({ "credits": { "added": 500 } });
        check(credits, "500 credits in all");
        let credits = json!({ "credits": { "added": 500, "used": 20, "left": 480 } });
        check(credits, "480 of 500 credits left");
    }
}
