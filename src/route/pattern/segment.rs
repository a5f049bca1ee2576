//! The segments of a pattern's path.

/// Most segments of a pattern.
pub const MAX_SEGMENTS: usize = 64;

/// One part of a pattern's path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// This text.
    Literal(Box<str>),
    /// Any one segment; what the policy calls it, empty for `*`.
    One(Box<str>),
    /// Any number of segments, also none. Always the last.
    Rest,
}
