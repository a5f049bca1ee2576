//! Why an input cannot be imported.

use super::report::{MAX_PATH_CHARS, printable};

/// Why an input cannot be imported at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}{}", help.as_ref().map(|help| format!("; {help}")).unwrap_or_default())]
pub struct ImportError {
    /// The file of the input.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// What is wrong there.
    pub message: String,
    /// What to do; `None` if the message says it.
    pub help: Option<String>,
}

impl ImportError {
    /// An error at a line of a file.
    pub fn at(file: &str, line: u32, column: u32, message: impl Into<String>) -> ImportError {
        ImportError {
            file: printable(file, MAX_PATH_CHARS),
            line,
            column,
            message: message.into(),
            help: None,
        }
    }

    /// The same error with what to do about it.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> ImportError {
        self.help = Some(help.into());
        self
    }
}
