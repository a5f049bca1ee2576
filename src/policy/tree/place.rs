//! Where something stands in a file.

use serde_yaml::Location;

/// A stretch of one line of one file, and how many lines it goes on behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SourcePlace {
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

/// Something and where it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// What.
    pub value: T,
    /// Where.
    pub place: SourcePlace,
}

impl<T> Located<T> {
    /// The same place with something made of the value.
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
