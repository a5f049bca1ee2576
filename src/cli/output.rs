//! Prints the output and the errors of commands. A closed pipe only ends the command, and a full disk is reported in
//! one line. Neither panics, as `println!` would.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The exit code for a mistake in the configuration or in the arguments.
pub const MISTAKE_EXIT_CODE: u8 = 2;

/// Why a command failed, and with which exit code.
#[derive(Debug)]
pub struct CommandError {
    /// Either 1 or [`MISTAKE_EXIT_CODE`].
    pub exit_code: u8,
    /// The text for standard error.
    pub message: String,
    /// Whether a gateway was asked and gave no answer, so that nobody knows what it has done.
    pub is_unanswered: bool,
}

impl CommandError {
    /// An error with exit code 1.
    pub fn failure(message: impl Into<String>) -> CommandError {
        CommandError {
            exit_code: 1,
            message: message.into(),
            is_unanswered: false,
        }
    }

    /// An error in the configuration or in the arguments, with [`MISTAKE_EXIT_CODE`].
    pub fn mistake(message: impl Into<String>) -> CommandError {
        CommandError {
            exit_code: MISTAKE_EXIT_CODE,
            message: message.into(),
            is_unanswered: false,
        }
    }

    /// Prints the message to standard error, and returns the exit code.
    pub fn print(&self) -> ExitCode {
        print_stderr(&self.message);
        ExitCode::from(self.exit_code)
    }
}

/// Prints to standard output, and flushes it.
///
/// # Errors
///
/// Standard output cannot be written, for instance because its pipe is closed or its disk is full.
pub fn print(text: impl Display) -> io::Result<()> {
    let text = text.to_string();
    let mut stdout = io::stdout().lock();
    let write_result = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    write_result.map_err(|error| {
        let message = format!("cannot write to standard output: {error}");
        io::Error::new(error.kind(), message)
    })
}

/// Prints a line to standard output, as [`print`] does.
///
/// # Errors
///
/// The same as of [`print`].
pub fn print_line(text: impl Display) -> io::Result<()> {
    print(format_args!("{text}\n"))
}

/// Prints a text to standard error, with one newline at its end. Errors are ignored, because there is no other output
/// to report them to.
pub fn print_stderr(text: impl Display) {
    let text = text.to_string();
    let _ = writeln!(io::stderr(), "{}", text.trim_end());
}

/// Returns the exit code of a command: `code` if printing succeeded or the pipe was closed. Otherwise it prints the
/// error, and the code is 1.
pub fn exit_code(print_result: io::Result<()>, code: ExitCode) -> ExitCode {
    match print_result {
        Ok(()) => code,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => code,
        Err(error) => {
            print_stderr(format_args!("tollgate: {error}"));
            ExitCode::FAILURE
        }
    }
}
