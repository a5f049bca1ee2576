//! The `tollgate` command. [`tollgate::cli`] parses the arguments and runs the command that they name.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate::cli::main()
}
