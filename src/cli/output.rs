//! Prints the output of commands. A closed pipe only ends the printing, and a full disk is reported in one line. Neither
//! panics, as `println!` would.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The exit code for a mistake in the configuration or in the arguments.
pub const MISTAKE: u8 = 2;

/// Prints to standard output, and flushes it.
///
/// # Errors
///
/// Standard output is closed or full.
pub fn print(text: impl Display) -> io::Result<()> {
    let text = text.to_string();
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|error| {
        let message = format!("cannot write to standard output: {error}");
        io::Error::new(error.kind(), message)
    })
}

/// Prints a line to standard output, as [`print`] does.
///
/// # Errors
///
/// Standard output is closed or full.
pub fn print_line(text: impl Display) -> io::Result<()> {
    print(format_args!("{text}\n"))
}

/// Prints a line to standard error. Errors are ignored, because there is no place left to report them.
pub fn print_stderr(text: impl Display) {
    let text = text.to_string();
    let _ = writeln!(io::stderr(), "{}", text.trim_end());
}

/// The exit code of a command: `code`, unless printing failed. A closed pipe does not count as a failure.
pub fn exit_code(printed: io::Result<()>, code: ExitCode) -> ExitCode {
    match printed {
        Ok(()) => code,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => code,
        Err(error) => {
            print_stderr(format_args!("tollgate: {error}"));
            ExitCode::FAILURE
        }
    }
}
