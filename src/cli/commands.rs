//! The list of commands. Each command parses and runs its arguments in a module of its own.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use super::{
    audit, ban, bans, check, completions, demo, explain, grant, grants, import, key, log, man,
    near, ready, revoke, run, schema, signals, top, tried, unban,
};

/// A reverse-proxy gateway that counts before it forwards.
#[derive(Parser)]
#[command(name = "tollgate", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway.
    Run(run::Arguments),
    /// Check a configuration and print what its limits guarantee.
    Check(check::Arguments),
    /// Check whether the gateway that runs this configuration on this machine is ready.
    Ready(ready::Arguments),
    /// Explain what would happen to a request, without counting it.
    Explain(explain::Arguments),
    /// Run a gateway with a sample upstream, policies and traffic; needs no configuration.
    Demo(demo::Arguments),
    /// Query the record: curves, top keys, explanations.
    Log(log::Arguments),
    /// Show live rates, limits and keys of a running gateway.
    Top(top::Arguments),
    /// Show which keys have used most of a limit of a running gateway.
    Near(near::Arguments),
    /// Show what a limit of a running gateway would have refused, by `try` or in shadow mode.
    Try(tried::Arguments),
    /// Ban clients by a key, a network or an address, for a time.
    Ban(ban::Arguments),
    /// Lift a ban before its end.
    Unban(unban::Arguments),
    /// Add, list and revoke API keys.
    Key(key::Arguments),
    /// List the bans, or print the banned networks for nftables or ipset.
    Bans(bans::Arguments),
    /// Grant a key more of a limit for a time, or add credits to its account.
    Grant(grant::Arguments),
    /// List the grants and the accounts of credits.
    Grants(grants::Arguments),
    /// Take back a grant before its end, or the credits that are left.
    Revoke(revoke::Arguments),
    /// List what operators have ordered at the admin listener, and what was refused.
    Audit(audit::Arguments),
    /// Turn the configuration of another gateway into policies, with a report on each of its lines.
    Import(import::Arguments),
    /// Print the JSON Schema of the gateway file or of a policy file, for editors.
    Schema(schema::Arguments),
    /// Print the script by which a shell completes commands and options.
    Completions(completions::Arguments),
    /// Write the manual pages of all commands into a folder.
    Man(man::Arguments),
}

/// Parses the arguments and runs the command. If the arguments have a mistake, clap prints it and ends the process with
/// exit code 2.
pub fn main() -> ExitCode {
    // This is the first step, because the first process of a container loses signals that come before.
    let blocked_signals = signals::BlockedSignals::new();
    let command = CommandLine::parse().command;
    // Only `run` must lose no signal. For other commands the signals are unblocked again here.
    let blocked_signals = matches!(command, Command::Run(_)).then_some(blocked_signals);
    match command {
        Command::Run(arguments) => run::run(&arguments, blocked_signals),
        Command::Check(arguments) => check::run(&arguments),
        Command::Ready(arguments) => ready::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Near(arguments) => near::run(&arguments),
        Command::Try(arguments) => tried::run(&arguments),
        Command::Ban(arguments) => ban::run(&arguments),
        Command::Unban(arguments) => unban::run(&arguments),
        Command::Key(arguments) => key::run(&arguments),
        Command::Bans(arguments) => bans::run(&arguments),
        Command::Grant(arguments) => grant::run(&arguments),
        Command::Grants(arguments) => grants::run(&arguments),
        Command::Revoke(arguments) => revoke::run(&arguments),
        Command::Audit(arguments) => audit::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Schema(arguments) => schema::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, CommandLine::command()),
        Command::Man(arguments) => man::run(&arguments, CommandLine::command()),
    }
}
