//! The command `tollgate revoke`: takes a grant or what is left of an account back, through the admin listener of a running
//! gateway.

use std::process::ExitCode;

use super::admin_client::percent_encode;
use super::grant::print_change;
use super::order_options::OrderOptions;

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the limit, as `tollgate grants` lists it.
    limit: String,
    /// Key, as `tollgate grants` lists it.
    key: String,
    #[command(flatten)]
    options: OrderOptions,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let [limit, key] = [&arguments.limit, &arguments.key].map(|text| percent_encode(text));
    let path = format!("/v1/grants/{limit}/{key}");
    match arguments.options.take_back(&path) {
        Ok(revoked) => print_change(&revoked, "revoked", arguments.options.json),
        Err(error) => error.print(),
    }
}
