//! The commands and their arguments.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::{check, demo, explain, log, ready, run, schema, signals, top};

/// A reverse-proxy gateway that counts before it forwards.
#[derive(Parser)]
#[command(name = "tollgate", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
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

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    // First of all: the first process of a container loses what comes before.
    let blocked = signals::BlockedSignals::new();
    let command = CommandLine::parse().command;
    let blocked = matches!(command, Command::Run(_)).then_some(blocked);
    match command {
        Command::Run(arguments) => run::run(&arguments, blocked),
        Command::Check(arguments) => check::run(&arguments),
        Command::Ready(arguments) => ready::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Schema(arguments) => schema::run(&arguments),
    }
}
