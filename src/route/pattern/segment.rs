//! The segments of a pattern's path, as the parser makes them and the route table stores them.

/// Maximum number of segments of a pattern, which bounds the depth of a search in the route table.
pub const MAX_SEGMENTS: usize = 64;

/// One segment of a pattern's path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Exactly this text, in normal form.
    Literal(Box<str>),
    /// Any one segment. Holds the name that the policy gives it; empty for `*`.
    One(Box<str>),
    /// `**`: any number of segments, also none. The parser allows it only at the end.
    Rest,
}
