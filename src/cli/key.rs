//! The command `tollgate key`: adds, lists and revokes API keys through the admin listener of a running gateway.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::admin_client::{AdminAddress, percent_encode};
use super::order_options::{OrderOptions, warn_unless_kept};
use super::output::{self, CommandError};
use super::terminal::{format_seconds, render_columns, replace_control_chars};
use crate::operator::find_named_id;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make a key, and print it. It is shown this once only.
    Add(AddArguments),
    /// List the keys that hold, without the keys themselves.
    List(ListArguments),
    /// Revoke a key at once.
    Revoke(RevokeArguments),
}

#[derive(clap::Args)]
struct AddArguments {
    /// User whom the key proves.
    user: String,
    /// Plan of the user; the default plan if absent.
    #[arg(long)]
    plan: Option<String>,
    /// Identity of your own that comes with the key, such as `tenant=acme`; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_identity)]
    set: Vec<(String, String)>,
    /// How long it holds, such as 12h or 90d; without an end if absent.
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<String>,
    /// What it is for, for those who list the keys later.
    #[arg(long, default_value = "")]
    name: String,
    #[command(flatten)]
    options: OrderOptions,
}

#[derive(clap::Args)]
struct ListArguments {
    /// Only the keys of this user.
    user: Option<String>,
    /// Print the JSON of the gateway.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

#[derive(clap::Args)]
struct RevokeArguments {
    /// Id of the key, as `tollgate key list` prints it. Of a key itself the id is computed here, and only that is sent.
    id: String,
    #[command(flatten)]
    options: OrderOptions,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.action {
        Action::Add(arguments) => add(arguments),
        Action::List(arguments) => list(arguments),
        Action::Revoke(arguments) => revoke(arguments),
    };
    done.unwrap_or_else(|error| error.print())
}

/// The name and the value of an identity, which are written with `=` between them.
fn parse_identity(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write a name and a value: tenant=acme")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Prints the key alone to standard output, so that a script can take it, and the rest to standard error.
fn add(arguments: &AddArguments) -> Result<ExitCode, CommandError> {
    let mut identities = Map::new();
    for (name, value) in &arguments.set {
        if identities.insert(name.clone(), json!(value)).is_some() {
            let message = format!("--set {name} stands there twice");
            return Err(CommandError::mistake(message));
        }
    }
    let order = json!({
        "user": arguments.user,
        "plan": arguments.plan,
        "set": identities,
        "for": arguments.duration,
        "name": arguments.name,
    });
    let added = arguments.options.send("/v1/keys", order)?;
    if arguments.options.json {
        return Ok(print_json(&added));
    }
    let key = added["key"].as_str();
    let key = key.ok_or_else(|| CommandError::failure("the response has no key"))?;
    let printed = output::print_line(replace_control_chars(key));
    let text_of = |name: &str| replace_control_chars(added[name].as_str().unwrap_or_default());
    let end = match added["left"].as_f64() {
        Some(seconds) => format!("for {}", format_seconds(seconds)),
        None => "without an end".into(),
    };
    output::print_stderr(format_args!(
        "key {} of {}, {end}; it is not shown again",
        text_of("id"),
        text_of("user"),
    ));
    warn_unless_kept(
        &added,
        "a restart loses the key, unless another gateway of a shared store has it",
    );
    Ok(output::exit_code(printed, ExitCode::SUCCESS))
}

fn list(arguments: &ListArguments) -> Result<ExitCode, CommandError> {
    let path = match &arguments.user {
        Some(user) => format!("/v1/keys?user={}", percent_encode(user)),
        None => "/v1/keys".into(),
    };
    let response = arguments.admin.request("GET", &path, "")?;
    if arguments.json {
        return Ok(print_json(&response));
    }
    let keys = response["keys"].as_array();
    let keys = keys.ok_or_else(|| CommandError::failure("the response has no keys"))?;
    let text = render_table(keys);
    Ok(output::exit_code(output::print(text), ExitCode::SUCCESS))
}

fn revoke(arguments: &RevokeArguments) -> Result<ExitCode, CommandError> {
    let id = find_named_id(&arguments.id).ok_or_else(|| {
        let message = "this is no id of a key: write its 16 hexadecimal digits, as `tollgate key list` shows them";
        CommandError::mistake(message)
    })?;
    let revoked = arguments.options.take_back(&format!("/v1/keys/{id}"))?;
    if arguments.options.json {
        return Ok(print_json(&revoked));
    }
    warn_unless_kept(
        &revoked,
        "after a restart the key may hold again, unless another gateway of a shared store knows better",
    );
    let text_of = |name: &str| replace_control_chars(revoked[name].as_str().unwrap_or_default());
    let text = format!("key {} of {} is revoked", text_of("id"), text_of("user"));
    Ok(output::exit_code(
        output::print_line(text),
        ExitCode::SUCCESS,
    ))
}

fn print_json(value: &Value) -> ExitCode {
    output::exit_code(output::print_line(value), ExitCode::SUCCESS)
}

/// A line for each key: its id, whose it is, until when, and by whom and what for.
fn render_table(keys: &[Value]) -> String {
    let titles = ["id", "user", "plan", "left", "set", "by", "name"];
    let rows = keys.iter().map(|key| {
        let text_of = |name: &str| replace_control_chars(key[name].as_str().unwrap_or_default());
        let left = key["left"].as_f64();
        let identities = key["set"].as_object().into_iter().flatten();
        let identities = identities
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
        let identities: Vec<String> = identities.collect();
        [
            text_of("id"),
            text_of("user"),
            text_of("plan"),
            left.map_or_else(|| "no end".into(), format_seconds),
            replace_control_chars(&identities.join(",")),
            text_of("by"),
            text_of("name"),
        ]
    });
    render_columns(titles, &rows.collect::<Vec<_>>())
}
