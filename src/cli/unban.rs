//! The command `tollgate unban`: lifts a ban through the admin listener of a running gateway.

use std::process::ExitCode;

use super::admin_client::AdminAddress;
use super::ban::{escape_segment, print_change, signature};

#[derive(clap::Args)]
pub struct Arguments {
    /// Key, network or address, as `tollgate bans` lists it.
    key: String,
    /// Who lifts it. Default: the user of this shell. With a token: for whom its owner lifts it.
    #[arg(long)]
    by: Option<String>,
    /// Print the JSON of the gateway.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let by = signature(arguments.by.as_deref(), &arguments.admin);
    let by = by.map_or_else(String::new, |by| format!("?by={}", escape_segment(&by)));
    let key = escape_segment(&arguments.key);
    let lifted = arguments
        .admin
        .request("DELETE", &format!("/v1/bans/{key}{by}"), "");
    match lifted {
        Ok(lifted) => print_change(&lifted, "lifted", arguments.json),
        Err(error) => error.print(),
    }
}
