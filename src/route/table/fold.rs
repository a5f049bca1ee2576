//! Folds a segment of a path as frameworks do, and recognises the segments that they drop or take for a folder.
//!
//! Segments come from a path in normal form: see [`crate::route::path`].

use smallvec::SmallVec;

/// A segment without case, escapes, and the dots and blanks at its end. Spellings that frameworks take for the same segment
/// fold to the same bytes.
pub(super) type FoldedSegment = SmallVec<[u8; 64]>;

/// Maximum bytes of a script's extension.
const MAX_EXTENSION_BYTES: usize = 8;

/// Whether a path has only lower-case letters, digits, `-`, `_` and slashes. Such a path has only one reading, unless
/// some literal of the table is not plain, or a segment is the default action.
pub(super) fn is_plain(path: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'/');
    path.bytes().all(is_plain)
}

/// Folds a segment of a normal path. Escapes are decoded, so the result need not be UTF-8.
pub(super) fn fold_segment(segment: &str) -> FoldedSegment {
    let mut folded = FoldedSegment::new();
    let mut bytes = trim_end(segment).bytes();
    while let Some(byte) = bytes.next() {
        let escape_digits = (byte == b'%').then(|| (bytes.next(), bytes.next()));
        folded.push(match escape_digits {
            Some((Some(high), Some(low))) => hex_value(high) << 4 | hex_value(low),
            _ => byte.to_ascii_lowercase(),
        });
    }
    match std::str::from_utf8(&folded) {
        Ok(text) if !text.is_ascii() => {
            // Several lower-case letters may share an upper-case one, so letters go through that first.
            let folded = text
                .chars()
                .flat_map(char::to_uppercase)
                .flat_map(char::to_lowercase);
            folded.collect::<String>().into_bytes().into()
        }
        _ => folded,
    }
}

/// Drops the dots and blanks (`%20`) at a segment's end, which Windows ignores.
pub(super) fn trim_end(mut segment: &str) -> &str {
    while let Some(shorter) = segment
        .strip_suffix('.')
        .or_else(|| segment.strip_suffix("%20"))
    {
        segment = shorter;
    }
    segment
}

/// The value of a hexadecimal digit. A normal path has no others, so any other byte gives an arbitrary value.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => {
            digit
                .to_ascii_uppercase()
                .wrapping_sub(b'A')
                .wrapping_add(10)
                & 15
        }
    }
}

/// Whether the text may be the extension of a script or document: short and alphanumeric. It begins with a letter,
/// unlike the `0` of a version `1.0`.
pub(super) fn is_extension(text: &str) -> bool {
    let is_alphanumeric = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_alphanumeric
        && text.len() <= MAX_EXTENSION_BYTES
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Whether ASP.NET takes the segment for a session, as `(S(x))`, and the segments behind it for the path.
pub(super) fn is_session(segment: &str) -> bool {
    segment.starts_with('(') && segment.ends_with("))")
}

/// Whether the segment names a document that stands for its folder, such as `index.html` or `default.aspx`.
pub(super) fn is_index_document(folded: &[u8]) -> bool {
    let extension = folded
        .strip_prefix(b"index.")
        .or_else(|| folded.strip_prefix(b"default."));
    extension
        .and_then(|extension| std::str::from_utf8(extension).ok())
        .is_some_and(is_extension)
}
