//! The mistakes in patterns, each with the message that policy authors see.

use super::segment::MAX_SEGMENTS;

/// A mistake in a pattern and its position in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct PatternError {
    /// Byte offset of the mistake in the text.
    pub offset: usize,
    /// The mistake at this offset.
    pub kind: PatternErrorKind,
}

/// A kind of mistake in a pattern. Texts in it are the words that were written; `NotNormal` has the normal form
/// instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternErrorKind {
    /// The text is empty.
    #[error("a match is written [METHOD[,METHOD]] PATH, for instance GET /api/**")]
    Empty,
    /// A method with lower-case letters.
    #[error("methods are upper case: `{}`", .0.to_ascii_uppercase())]
    LowerCase(String),
    /// A word that is no method.
    #[error("`{0}` is not a method; methods are separated by a comma without spaces")]
    UnknownMethod(String),
    /// A method that is listed twice.
    #[error("`{0}` is listed twice")]
    RepeatedMethod(String),
    /// A method without a path behind it.
    #[error("a path is missing after the method, for instance `{0} /**`")]
    NoPath(String),
    /// The path does not begin with a slash.
    #[error("a path begins with `/`")]
    NoSlash,
    /// A space or tab in the path.
    #[error("a path has no spaces and tabs; write `%20` or `%09`")]
    Space,
    /// The path is not in normal form, so no request would match it.
    #[error("requests are matched in normal form; write `{0}`")]
    NotNormal(String),
    /// The path has no normal form.
    #[error("{0}")]
    Path(#[from] crate::route::PathError),
    /// `**` stands before the end.
    #[error("`**` stands only at the end")]
    DoubleStarInside,
    /// A `*` beside other characters.
    #[error("`*` stands for a whole segment; write `*` or `{{name}}` between slashes")]
    PartialStar,
    /// A brace that is not closed or is not a whole segment, or a name with other characters.
    #[error("`{{name}}` stands for a whole segment; its name is letters, digits and `_`")]
    BadName,
    /// A query or a fragment behind the path.
    #[error("a match has no query and no fragment")]
    Query,
    /// A path with more than [`MAX_SEGMENTS`] segments.
    #[error("a match has at most {MAX_SEGMENTS} segments")]
    TooDeep,
    /// A text that is no host pattern.
    #[error("a host is a name like api.example.com or *.example.com, without scheme and port")]
    BadHost,
}

impl PatternErrorKind {
    /// This mistake at a byte offset in the text.
    pub(super) fn at(self, offset: usize) -> PatternError {
        PatternError { offset, kind: self }
    }
}
