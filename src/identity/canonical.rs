//! Folds the spellings of one credential into one, so that a client cannot gain a second budget with another spelling.
//!
//! The result is hashed and counted. It is never sent to an upstream, and no credential is verified by it.

mod encrypted_token;
mod lenient_base64;
mod uuid;
pub(super) mod whole_number;

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use smallvec::SmallVec;

use lenient_base64::Base64Reader;

/// Shortest text, in bytes, of which the two base64 alphabets are folded into one. Shorter texts may be keys that
/// people chose, whose characters all matter.
const MIN_BASE64_BYTES: usize = 40;

/// The one spelling of a credential that can be written in several ways:
///
/// - A JWT, or a session of itsdangerous, counts without its signature, which has many spellings (RFC 7515, section
///   10.1; ECDSA).
/// - An encrypted token (RFC 7516, section 7.1; Laravel; Fernet) counts by its parts in canonical base64.
/// - Other text in base64 of at least [`MIN_BASE64_BYTES`] (sessions of Rails and Rack) counts in one alphabet, without
///   padding.
/// - A UUID counts by its digits.
///
/// Any other text is returned unchanged.
pub(super) fn canonical_form(text: &[u8]) -> Cow<'_, [u8]> {
    if let Some(canonical) = uuid::digits(text).or_else(|| encrypted_token::canonical_parts(text)) {
        return canonical.into();
    }
    // A JWT has two dots, an encrypted one has four. With five or more dots a text is neither.
    let dots: SmallVec<[usize; 4]> = memchr::memchr_iter(b'.', text).take(5).collect();
    match dots[..] {
        [_, last_dot] if begins_with_json_object(text) => text[..last_dot].into(),
        // A compressed session of itsdangerous: a dot, zlib data in base64, a time and a signature.
        [0, _, last_dot] if text.starts_with(b".eJ") => text[..last_dot].into(),
        [_, _, _, _] if begins_with_json_object(text) => {
            let parts = text.split(|byte| *byte == b'.');
            let parts: Vec<_> = parts
                .map(|part| Base64Reader::BothAlphabets.canonical_text(part))
                .collect();
            parts.join(&b'.').into()
        }
        [] if text.len() >= MIN_BASE64_BYTES => in_one_alphabet(text),
        _ => text.into(),
    }
}

/// Whether two readers may take `text` for different credentials, because they read different UUIDs in it.
pub(super) fn is_ambiguous(text: &[u8]) -> bool {
    uuid::is_ambiguous(text)
}

/// Whether the readers of this kind of credential skip blanks in it. They do so in encrypted tokens.
pub(super) fn skips_blanks(text: &[u8]) -> bool {
    encrypted_token::canonical_parts(text).is_some()
}

/// Rewrites base64 to base64url without padding. Returns any other text unchanged, and also text that needs no change.
fn in_one_alphabet(text: &[u8]) -> Cow<'_, [u8]> {
    let is_base64_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_=".contains(byte);
    let is_replaced = |byte: &u8| b"+/=".contains(byte);
    if !text.iter().all(is_base64_byte) || !text.iter().any(is_replaced) {
        return text.into();
    }
    Base64Reader::BothAlphabets.letters(text).into()
}

/// Whether the text begins as a JSON object in base64url does, by its first three bytes. Issuers may write white space
/// around the brace.
fn begins_with_json_object(text: &[u8]) -> bool {
    // Four letters are three bytes.
    let mut decoded = [0; 3];
    let first_letters = text.get(..4).unwrap_or_default();
    let result = URL_SAFE_NO_PAD.decode_slice(first_letters, &mut decoded);
    result == Ok(decoded.len())
        && match decoded.trim_ascii_start() {
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
        let canonical = canonical_form(text.as_bytes());
        assert_eq!(canonical.escape_ascii().to_string(), expected, "{text}");
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
    fn sessions_have_one_alphabet() {
        let padded = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA+/AAAA==--BB+/BBBB--CC=";
        check(
            padded,
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-_AAAA--BB-_BBBB--CC",
        );
        check("a+b/c=", "a+b/c=");
        let other = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA+:=";
        check(other, other);
    }

    #[test]
    fn a_uuid_is_its_digits() {
        let digits = "0123456789abcdef0123456789abcdef";
        check(&format!("urn:{digits}"), digits);
        check("eyJpdiI6IkFBIiwidmFsdWUiOiJCQiJ9", "AA.BA");
    }
}
