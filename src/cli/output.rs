//! What verbs print. A reader that leaves ends nothing but the printing; a full disk is told in one
//! line; neither is a panic.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// A mistake in the configuration or in the arguments.
pub const MISTAKE: u8 = 2;

/// Prints to standard output.
pub fn print(text: impl Display) -> io::Result<()> {
    let text = text.to_string();
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|error| {
        let why = format!("cannot write to standard output: {error}");
        io::Error::new(error.kind(), why)
    })
}

/// [`print`] with the end of a line.
pub fn print_line(text: impl Display) -> io::Result<()> {
    print(format_args!("{text}\n"))
}

/// Says something on standard error, where a failure can be told to nobody.
pub fn print_stderr(text: impl Display) {
    let text = text.to_string();
    let _ = writeln!(io::stderr(), "{}", text.trim_end());
}

/// The exit code of a verb that printed: `code`, unless it could not go on.
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
