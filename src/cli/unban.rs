//! The command `tollgate unban`: lifts a ban through the admin listener of a running gateway.

use std::process::ExitCode;

use super::admin_client::percent_encode;
use super::ban::print_change;
use super::order_options::OrderOptions;

#[derive(clap::Args)]
pub struct Arguments {
    /// Key, network or address, as `tollgate bans` lists it.
    key: String,
    #[command(flatten)]
    options: OrderOptions,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    let path = format!("/v1/bans/{}", percent_encode(&arguments.key));
    match arguments.options.take_back(&path) {
        Ok(lifted) => print_change(&lifted, "lifted", arguments.options.json),
        Err(error) => error.print(),
    }
}
