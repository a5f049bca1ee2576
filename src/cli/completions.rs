//! The command `tollgate completions`: prints the script by which a shell completes the commands and their options.

use std::process::ExitCode;

use clap_complete::Shell;

use super::output;

#[derive(clap::Args)]
pub struct Arguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for `command_line`, the definition of all commands.
pub fn run(arguments: &Arguments, mut command_line: clap::Command) -> ExitCode {
    let name = command_line.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command_line, name, &mut script);
    let print_result = output::print(String::from_utf8_lossy(&script));
    output::exit_code(print_result, ExitCode::SUCCESS)
}
