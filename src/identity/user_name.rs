//! Checks the name of a user, which comes from a claim, a header field, a certificate or the file of API keys. A value of
//! a custom identity that is no such name is kept as a hash.
//!
//! A name is never trimmed or folded, because the upstream may take two spellings for two users.

use std::sync::Arc;

/// Longest user name, in bytes.
pub const MAX_USER_NAME_BYTES: usize = 256;

/// Parses a name of 1 to [`MAX_USER_NAME_BYTES`] bytes without control characters and without a blank at either end;
/// `None` for any other text. A reader could trim such a blank, and take the name for that of another user.
pub fn parse(text: &str) -> Option<Arc<str>> {
    let is_valid = !text.is_empty()
        && text.len() <= MAX_USER_NAME_BYTES
        && !text.starts_with(is_blank)
        && !text.ends_with(is_blank)
        && !text.chars().any(char::is_control);
    is_valid.then(|| text.into())
}

/// Whether the trim function of some language drops this character: white space, or one of three marks that .NET or
/// JavaScript trims or once trimmed.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{180e}' | '\u{200b}' | '\u{feff}')
}
