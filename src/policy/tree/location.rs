//! Locations in the files of the configuration, which diagnostics point at, and values with their locations. A location
//! holds no text of a file.

use serde_yaml::Location;

/// A stretch of characters in one line of one file, and the number of lines on which it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourceLocation {
    /// The file, by its index in [`Sources`](crate::policy::context::Sources).
    pub file: u32,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The length on the first line in characters, at least 1.
    pub width: u32,
    /// The number of lines after the first, for a text of several lines.
    pub further_lines: u32,
}

impl SourceLocation {
    /// The first character of a file, for a diagnostic about the whole file.
    pub fn start_of(file: u32) -> SourceLocation {
        SourceLocation {
            file,
            line: 1,
            column: 1,
            width: 1,
            further_lines: 0,
        }
    }
}

/// A value and the location where it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value that was read.
    pub value: T,
    /// The location of its text, for diagnostics.
    pub location: SourceLocation,
}

impl<T> Located<T> {
    /// Applies `convert` to the value and keeps the location.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Located<U> {
        Located {
            value: convert(self.value),
            location: self.location,
        }
    }
}

/// Converts a position of the YAML parser to a location that is one character wide. A line or column of 0, which is
/// unknown, becomes 1.
pub(super) fn location_from_parser(file: u32, position: &Location) -> SourceLocation {
    let line = u32::try_from(position.line()).unwrap_or(u32::MAX).max(1);
    let column = u32::try_from(position.column()).unwrap_or(u32::MAX).max(1);
    SourceLocation {
        line,
        column,
        ..SourceLocation::start_of(file)
    }
}
