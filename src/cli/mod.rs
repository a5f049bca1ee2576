//! The command line: one file per verb.

use std::process::ExitCode;

/// Runs the verb that the arguments name.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
