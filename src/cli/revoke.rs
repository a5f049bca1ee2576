//! The command `tollgate revoke`: takes a grant back, through the admin listener of a running gateway.

use std::process::ExitCode;

use super::admin_client::AdminAddress;
use super::ban::{escape_segment, signature};
use super::grant::print_change;

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the limit, as `tollgate grants` lists it.
    limit: String,
    /// Key, as `tollgate grants` lists it.
    key: String,
    /// Who takes it back. Default: the user of this shell. With a token: for whom its owner takes it back.
    #[arg(long)]
    by: Option<String>,
    /// Print the JSON of the gateway.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminAddress,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let [limit, key] = [&arguments.limit, &arguments.key].map(|text| escape_segment(text));
    let by = signature(arguments.by.as_deref(), &arguments.admin);
    let by = by.map_or_else(String::new, |by| format!("?by={}", escape_segment(&by)));
    let path = format!("/v1/grants/{limit}/{key}{by}");
    match arguments.admin.request("DELETE", &path, "") {
        Ok(revoked) => print_change(&revoked, "revoked", arguments.json),
        Err(error) => error.print(),
    }
}
