//! Spellings of one credential folded into one, so that a limit counts whom an upstream takes the client for.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, Engine};
use smallvec::SmallVec;

/// Ignores what most decoders ignore.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What of a credential is counted, where one can be written in several ways:
///
/// - of a token that looks like a JWT the signed part, for a signature has many spellings (RFC 7515, section 10.1; ECDSA);
///   of a session that itsdangerous signs and packs the same,
/// - of one that is encrypted (RFC 7516, section 7.1) its parts in their only canonical spelling,
/// - of a UUID its digits.
pub fn counted(text: &[u8]) -> Cow<'_, [u8]> {
    if let Some(digits) = uuid(text) {
        return digits.into();
    }
    let dots: SmallVec<[usize; 4]> = memchr::memchr_iter(b'.', text).take(5).collect();
    match dots[..] {
        [_, last] if is_json_object(text) => text[..last].into(),
        [0, _, last] if text.starts_with(b".eJ") => text[..last].into(),
        [_, _, _, _] if is_json_object(text) => {
            let parts: Vec<_> = text.split(|byte| *byte == b'.').map(canonical).collect();
            parts.join(&b'.').into()
        }
        _ => text.into(),
    }
}

/// The digits of a UUID, as lenient readers find them: behind a prefix, in braces, with hyphens anywhere, in any case.
fn uuid(text: &[u8]) -> Option<Vec<u8>> {
    // With a prefix, braces and usual hyphens.
    const LENGTHS: RangeInclusive<usize> = 32..=48;
    if !LENGTHS.contains(&text.len()) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let bare = lower.strip_prefix(b"urn:uuid:").unwrap_or(&lower);
    let marks = |byte: &u8| !b"-{}".contains(byte);
    let digits: Vec<u8> = bare.iter().copied().filter(marks).collect();
    (digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit)).then_some(digits)
}

/// Text in base64url without what decoders skip, and without the bits of its last letter that they ignore.
fn canonical(part: &[u8]) -> Vec<u8> {
    let url = |byte: &u8| match byte {
        b'+' => Some(b'-'),
        b'/' => Some(b'_'),
        b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => Some(*byte),
        _ => None,
    };
    let letters: Vec<u8> = part.iter().filter_map(url).collect();
    match LENIENT.decode(&letters) {
        Ok(bytes) => URL_SAFE_NO_PAD.encode(bytes).into(),
        Err(_) => letters,
    }
}

/// Whether its first bytes in base64url are those of a JSON object, which issuers may write with white space.
fn is_json_object(text: &[u8]) -> bool {
    let mut start = [0; 3];
    let first = text.get(..4).unwrap_or_default();
    let read = URL_SAFE_NO_PAD.decode_slice(first, &mut start);
    read == Ok(start.len())
        && match start.trim_ascii_start() {
            [] | [b'{'] => true,
            [first, second, ..] => {
                *first == b'{' && (*second == b'"' || second.is_ascii_whitespace())
            }
            [_] => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let counted = counted(text.as_bytes());
        assert_eq!(counted.escape_ascii().to_string(), expected, "{text}");
    }

    #[test]
    fn a_signature_is_not_counted() {
        check("eyJh.eyJz.AAA", "eyJh.eyJz");
        check("eyJh.eyJz.", "eyJh.eyJz");
        // `{ "`, `{`, a line end and a tab, and blanks before the brace.
        check("eyAiYWxn.eyJz.AAA", "eyAiYWxn.eyJz");
        check("ewoJ.eyJz.AAA", "ewoJ.eyJz");
        check("IHsi.eyJz.AAA", "IHsi.eyJz");
        check("ICAgey.eyJz.AAA", "ICAgey.eyJz");
        check(".eJw1.aBc.sig", ".eJw1.aBc");
        check("exam.ple.key", "exam.ple.key");
        check("e.y.J", "e.y.J");
        check("eyJh.eyJz", "eyJh.eyJz");
        check("a.b.c", "a.b.c");
        check("eyJ.b.c.d", "eyJ.b.c.d");
        check("t0ken", "t0ken");
    }

    #[test]
    fn an_encrypted_token_has_one_spelling() {
        let canonical = "eyJh.AA.AAAA.AAA.AAAAAA";
        for same in [
            canonical,
            "eyJh.AA.AAAA.AAA.AAAAAB",
            "eyJh.AB.AAAA.AAB.AAAAAA",
            "eyJh.AA.AAAA.AAA.AA~AAAA",
            "eyJh.AA.AAAA.AAA.AAAAAA==",
        ] {
            check(same, canonical);
        }
        check("eyJh.AA.__--.AAA.AAAAAA", "eyJh.AA.__--.AAA.AAAAAA");
        check("eyJh.AA.//++.AAA.AAAAAA", "eyJh.AA.__--.AAA.AAAAAA");
        check("eyJh..AAAA.AAA.AAAAAA", "eyJh..AAAA.AAA.AAAAAA");
        check("eyJh.A.AAAA.AAA.AAAAAA", "eyJh.A.AAAA.AAA.AAAAAA");
        check("eyJh.a.b.c.d.e", "eyJh.a.b.c.d.e");
    }

    #[test]
    fn a_uuid_is_its_digits() {
        let digits = "0123456789abcdef0123456789abcdef";
        for same in [
            digits,
            "0123456789ABCDEF0123456789abcdef",
            "01234567-89ab-cdef-0123-456789abcdef",
            "{01234567-89ab-cdef-0123-456789ABCDEF}",
            "urn:uuid:01234567-89ab-cdef-0123-456789abcdef",
            "0-123456789abcdef0123456789abcdef",
        ] {
            check(same, digits);
        }
        let more = "0123456789abcdef0123456789abcdef0";
        check(more, more);
        let other = "0123456789ABCDEF0123456789abcdeg";
        check(other, other);
    }
}
