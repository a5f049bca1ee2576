//! The command line: a file for each command, and the parts that commands share. `commands.rs` has the list of
//! commands.
//!
//! Exit codes: 0 success, 1 failure, 2 a mistake in the configuration or the arguments.

// These macros panic if the pipe is closed; `output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admin_client;
mod check;
mod commands;
mod demo;
mod explain;
mod handover;
mod internal_listeners;
mod listen_error;
mod log;
mod output;
mod preflight;
mod ready;
mod run;
mod schema;
mod signals;
mod terminal;
mod top;

pub use commands::main;
