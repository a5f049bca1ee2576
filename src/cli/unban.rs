//! The command `tollgate unban`: lifts a ban through the admin listener of a running gateway.

use std::process::ExitCode;

use super::admin_client::AdminAddress;
use super::ban::{escape_segment, operator_name, print_change};

#[derive(clap::Args)]
pub struct Arguments {
    /// Key, network or address, as `tollgate bans` lists it.
    key: String,
    /// Who lifts it. Default: the user of this shell.
    #[arg(long)]
    by: Option<String>,
    /// Print the JSON of the gateway.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let (key, by) = (
        escape_segment(&arguments.key),
        escape_segment(&operator_name(arguments.by.as_deref())),
    );
    let lifted = arguments
        .admin
        .request("DELETE", &format!("/v1/bans/{key}?by={by}"), "");
    match lifted {
        Ok(lifted) => print_change(&lifted, "lifted", arguments.json),
        Err(error) => error.print(),
    }
}
