//! Checks the name of a user, which comes from a claim, a header field, a certificate or the file of API keys.
//!
//! A name is never changed: upstream, log and metrics get it as it came.

use std::sync::Arc;

/// Longest user name, in bytes.
pub const MAX_USER_NAME_BYTES: usize = 256;

/// Accepts a name of 1 to [`MAX_USER_NAME_BYTES`] bytes without control characters and without a blank at either end. A reader
/// could trim such a blank, and take the name for another user's.
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
