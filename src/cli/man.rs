//! The command `tollgate man`: writes the manual pages of all commands into a folder, as packages need them.

use std::path::PathBuf;
use std::process::ExitCode;

use super::output::{self, CommandError};

#[derive(clap::Args)]
pub struct Arguments {
    /// The folder; pages of the same name in it are replaced.
    folder: PathBuf,
}

/// Writes one page for `command_line`, the definition of all commands, and one for each command.
pub fn run(arguments: &Arguments, command_line: clap::Command) -> ExitCode {
    let folder = &arguments.folder;
    match clap_mangen::generate_to(command_line, folder) {
        Ok(()) => output::exit_code(
            output::print_line(format_args!("manual pages are in {}", folder.display())),
            ExitCode::SUCCESS,
        ),
        Err(error) => {
            let message = format!(
                "tollgate: cannot write pages to {}: {error}",
                folder.display()
            );
            CommandError::failure(message).print()
        }
    }
}
