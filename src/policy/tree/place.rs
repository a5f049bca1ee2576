//! Places in the files of the configuration.

use serde_yaml::Location;

/// A stretch of one line of one file, and how many lines it continues for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourcePlace {
    /// The file, by its index among the sources.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The length in characters, at least 1.
    pub width: u32,
    /// The number of further lines, where a text has several.
    pub more: u32,
}

/// A value and where it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The place of the value.
    pub place: SourcePlace,
}

impl<T> Located<T> {
    /// Applies `make` to the value and keeps the place.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Located<U> {
        Located {
            value: make(self.value),
            place: self.place,
        }
    }
}

/// The place at which the YAML reader is, one character wide.
pub(super) fn place_of(file: u32, at: &Location) -> SourcePlace {
    let line = u32::try_from(at.line()).unwrap_or(u32::MAX).max(1);
    let column = u32::try_from(at.column()).unwrap_or(u32::MAX).max(1);
    SourcePlace {
        file,
        line,
        column,
        width: 1,
        more: 0,
    }
}
