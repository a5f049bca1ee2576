//! The command line: a file for each verb, and what verbs share.
//!
//! Exit codes: 0 done, 1 it could not be done, 2 a mistake in the configuration or the arguments.

// They panic when the reader is gone; see [`output`].
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod check;
mod demo;
mod explain;
mod handover;
mod internal;
mod log;
mod machine;
mod output;
mod ready;
mod run;
mod schema;
mod signals;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A mistake in the configuration or in the arguments.
const MISTAKE: u8 = 2;

/// A reverse-proxy gateway that counts before it forwards.
#[derive(Parser)]
#[command(name = "tollgate", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs the gateway.
    Run(run::Arguments),
    /// Checks a configuration and prints what its limits guarantee.
    Check(check::Arguments),
    /// Asks whether a gateway on this machine, run by this configuration, is ready.
    Ready(ready::Arguments),
    /// Says what would happen to a request, and why, without counting it.
    Explain(explain::Arguments),
    /// Runs a gateway with an upstream, sample policies and traffic, without any configuration.
    Demo(demo::Arguments),
    /// Reads the record of what happened.
    Log(log::Arguments),
    /// Shows what a running gateway does now.
    Top(top::Arguments),
    /// Prints the JSON Schema of the gateway file or of a policy file, for editors.
    Schema(schema::Arguments),
}

/// Runs the verb that the arguments name.
pub fn main() -> ExitCode {
    // First of all: the first process of a container loses what comes before.
    let blocked = signals::Blocked::new();
    let verb = Arguments::parse().verb;
    let blocked = matches!(verb, Verb::Run(_)).then_some(blocked);
    match verb {
        Verb::Run(arguments) => run::run(&arguments, blocked),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::Ready(arguments) => ready::run(&arguments),
        Verb::Explain(arguments) => explain::run(&arguments),
        Verb::Demo(arguments) => demo::run(&arguments),
        Verb::Log(arguments) => log::run(&arguments),
        Verb::Top(arguments) => top::run(&arguments),
        Verb::Schema(arguments) => schema::run(&arguments),
    }
}
