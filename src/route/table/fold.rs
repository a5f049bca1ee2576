//! Folds a segment of a path as frameworks do: without case, escapes, and dots and blanks at its end.

use smallvec::SmallVec;

/// A segment without what frameworks overlook in it.
pub(super) type Folded = SmallVec<[u8; 64]>;

/// Whether a path has one reading only, but for folders' indexes.
pub(super) fn is_plain(path: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'/');
    path.bytes().all(plain)
}

/// A normal segment with escapes decoded, without case, and without dots and blanks at its end.
pub(super) fn fold(segment: &str) -> Folded {
    let mut folded = Folded::new();
    let mut bytes = trim(segment).bytes();
    while let Some(byte) = bytes.next() {
        let escaped = (byte == b'%').then(|| (bytes.next(), bytes.next()));
        folded.push(match escaped {
            Some((Some(high), Some(low))) => digit(high) << 4 | digit(low),
            _ => byte.to_ascii_lowercase(),
        });
    }
    match std::str::from_utf8(&folded) {
        Ok(text) if !text.is_ascii() => {
            // By way of capitals, for several small letters may have one.
            let folded = text
                .chars()
                .flat_map(char::to_uppercase)
                .flat_map(char::to_lowercase);
            folded.collect::<String>().into_bytes().into()
        }
        _ => folded,
    }
}

pub(super) fn trim(mut segment: &str) -> &str {
    while let Some(shorter) = segment
        .strip_suffix('.')
        .or_else(|| segment.strip_suffix("%20"))
    {
        segment = shorter;
    }
    segment
}

/// A hexadecimal digit of a normal path.
fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => {
            byte.to_ascii_uppercase()
                .wrapping_sub(b'A')
                .wrapping_add(10)
                & 15
        }
    }
}

/// Whether this is what scripts have behind their dot, and versions such as `1.0` have not.
pub(super) fn is_extension(text: &str) -> bool {
    let letters = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    letters && text.len() <= 8 && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Whether ASP.NET takes this for a session and what follows it for the path.
pub(super) fn is_session(segment: &str) -> bool {
    segment.starts_with('(') && segment.ends_with("))")
}

/// Whether this is a document that stands for its folder.
pub(super) fn is_index(folded: &[u8]) -> bool {
    let extension = folded
        .strip_prefix(b"index.")
        .or_else(|| folded.strip_prefix(b"default."));
    extension
        .and_then(|rest| std::str::from_utf8(rest).ok())
        .is_some_and(is_extension)
}
