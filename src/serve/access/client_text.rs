//! Texts from clients for the access log: cut to a length, and without credentials.

use std::borrow::Cow;

use super::logged_target::mask_credentials;
use crate::serve::stack::request_context::RequestContext;

/// Longest text of a client in a line, in bytes. A longer one is cut.
const MAX_TEXT_BYTES: usize = 256;

/// A text that may be the beginning of a longer one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientText<'t> {
    /// At most [`MAX_TEXT_BYTES`] of the text. Bytes that are no UTF-8 became U+FFFD.
    pub(super) text: Cow<'t, str>,
    /// Whether the rest of the text is cut off.
    pub(super) is_cut: bool,
}

impl<'t> ClientText<'t> {
    /// A text that is short by itself.
    pub(super) fn whole(text: &'t str) -> ClientText<'t> {
        ClientText {
            text: Cow::Borrowed(text),
            is_cut: false,
        }
    }

    /// Cuts a text to at most [`MAX_TEXT_BYTES`], at the beginning of a character.
    pub(super) fn new(bytes: &'t [u8]) -> ClientText<'t> {
        let mut length = bytes.len().min(MAX_TEXT_BYTES);
        let is_cut = length < bytes.len();
        // No character of UTF-8 has more than three bytes after its first.
        let shortest = length.saturating_sub(3);
        while is_cut && length > shortest && bytes[length] & 0b1100_0000 == 0b1000_0000 {
            length -= 1;
        }
        ClientText {
            text: String::from_utf8_lossy(&bytes[..length]),
            is_cut,
        }
    }
}

/// The value of the first header field of this name; `None` without one.
pub(super) fn field_text<'c>(context: &'c RequestContext, name: &str) -> Option<ClientText<'c>> {
    let fields = &context.head.as_ref()?.fields;
    fields.first(name).map(ClientText::new)
}

/// The page that led to this request. Its query may have the credential by which that page was requested, which is
/// masked.
pub(super) fn referer(context: &RequestContext) -> Option<ClientText<'_>> {
    let value = context.head.as_ref()?.fields.first("referer")?;
    Some(
        match mask_credentials(context, String::from_utf8_lossy(value)) {
            Cow::Borrowed(_) => ClientText::new(value),
            Cow::Owned(text) => {
                let ClientText { text, is_cut } = ClientText::new(text.as_bytes());
                let text = Cow::Owned(text.into_owned());
                ClientText { text, is_cut }
            }
        },
    )
}

/// The version of HTTP as servers write it in their logs; `None` if the head cannot be read.
pub(super) fn protocol(context: &RequestContext) -> Option<&'static str> {
    Some(match context.head.as_ref()?.version {
        http::Version::HTTP_3 => "HTTP/3.0",
        http::Version::HTTP_2 => "HTTP/2.0",
        http::Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str, is_cut: bool) {
        let text = Cow::Borrowed(expected);
        assert_eq!(ClientText::new(bytes), ClientText { text, is_cut });
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let longest = "a".repeat(MAX_TEXT_BYTES);
        check(b"", "", false);
        check(longest.as_bytes(), &longest, false);
        check(format!("{longest}b").as_bytes(), &longest, true);
        for character in ["\u{e9}", "\u{20ac}", "\u{1f600}"] {
            for before in MAX_TEXT_BYTES - 4..=MAX_TEXT_BYTES {
                let start = "a".repeat(before);
                let fits = before + character.len() <= MAX_TEXT_BYTES;
                let expected = if fits {
                    format!("{start}{character}")
                } else {
                    start.clone()
                };
                let whole = format!("{start}{character}{longest}");
                let ClientText { text, is_cut } = ClientText::new(whole.as_bytes());
                assert!(is_cut && text.starts_with(&expected) && text.len() <= MAX_TEXT_BYTES);
                assert!(!text.contains(char::REPLACEMENT_CHARACTER), "{text}");
            }
        }
        check(b"a\xffb", "a\u{fffd}b", false);
        let continuations = [b'\x80'; MAX_TEXT_BYTES + 9];
        assert!(ClientText::new(&continuations).is_cut);
    }
}
