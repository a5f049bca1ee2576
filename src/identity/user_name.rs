//! The name of a user, as a claim, a header field, a certificate or the file of API keys may give it.

use std::sync::Arc;

/// Longest user name, in bytes.
pub const MAX_USER: usize = 256;

/// A user as upstream, log and metrics get it, without a change: 1 to [`MAX_USER`] bytes, no control characters,
/// no blank at either end. A reader may drop such a blank, and the name would be another user's.
pub(super) fn parse(text: &str) -> Option<Arc<str>> {
    let fits = !text.is_empty()
        && text.len() <= MAX_USER
        && !text.starts_with(is_blank)
        && !text.ends_with(is_blank)
        && !text.chars().any(char::is_control);
    fits.then(|| text.into())
}

/// What the trim function of some language drops: white space, and three marks that once were or still are taken
/// for it (.NET, JavaScript).
fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{180e}' | '\u{200b}' | '\u{feff}')
}
