//! Where something stands in a file.

use serde_yaml::Location;

/// A stretch of one line of one file, and how many lines it goes on behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// Which file, by its place among the sources.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// How many characters are meant; at least 1.
    pub width: u32,
    /// How many further lines a text of several takes.
    pub more: u32,
}

/// The place at which the YAML reader is, one character wide.
pub(super) fn place_of(file: u32, at: &Location) -> Place {
    let line = u32::try_from(at.line()).unwrap_or(u32::MAX).max(1);
    let column = u32::try_from(at.column()).unwrap_or(u32::MAX).max(1);
    Place {
        file,
        line,
        column,
        width: 1,
        more: 0,
    }
}
