//! The command line: `commands` has the list of commands, and each command is in a file or folder of its name. The
//! other files are parts that commands use:
//!
//! | file | what it does |
//! |---|---|
//! | `admin_client` | sends requests to the admin listener or the probes of a running gateway |
//! | `expectation` | what `explain --expect` wants of an explanation |
//! | `handover` | lets a successor replace this process; notifies the service manager |
//! | `internal_listeners` | binds and serves the listeners for admin and probes |
//! | `listen_error` | creates the errors of addresses that cannot be bound |
//! | `order_options` | the options and signatures of orders |
//! | `output` | prints output and errors |
//! | `preflight` | checks whether this machine can run a configuration |
//! | `signals` | receives the signals of a running process |
//! | `terminal` | formats numbers, curves and foreign text for a terminal |
//!
//! Exit codes: 0 for success, 1 for a failure, 2 for a mistake in the configuration or the arguments.

// These macros panic if the pipe is closed; `output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admin_client;
mod audit;
mod ban;
mod bans;
mod check;
mod commands;
mod completions;
mod demo;
mod expectation;
mod explain;
mod grant;
mod grants;
mod handover;
mod import;
mod internal_listeners;
mod key;
mod listen_error;
mod log;
mod man;
mod near;
mod order_options;
mod output;
mod preflight;
mod ready;
mod revoke;
mod run;
mod schema;
mod signals;
mod terminal;
mod top;
mod tried;
mod unban;

pub use commands::main;
