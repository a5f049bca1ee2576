//! The command line: a file for each command, and what commands share.
//!
//! Exit codes: 0 success, 1 failure, 2 a mistake in the configuration or the arguments.

// These macros panic when the reader is gone; see [`output`].
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod check;
mod commands;
mod demo;
mod explain;
mod handover;
mod internal;
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
