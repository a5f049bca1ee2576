//! Finds the encrypted parts of Laravel's cookies and Fernet's tokens, whose readers decode base64 leniently.
//!
//! A client can change the text around these parts without changing what is decrypted. So that text does not count.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::lenient_base64::Base64Reader;

/// The encrypted parts of `text` in canonical base64: those of Laravel's `{"iv":…,"value":…}`, or a whole Fernet token.
/// `None` for any other text.
pub(super) fn canonical_parts(text: &[u8]) -> Option<Vec<u8>> {
    let is_base64_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    match text.iter().find(is_base64_letter)? {
        // The first base64 letter of a brace, or of a space, tab or line end before it. What PHP cannot read may still be
        // an object for a reader of base64url.
        b'e' | b'I' | b'C' | b'D' => laravel_parts(text, Base64Reader::Php)
            .or_else(|| laravel_parts(text, Base64Reader::BothAlphabets)),
        // Fernet's version byte is 0x80, and the highest bytes of its time are zero.
        b'g' => {
            let token = Base64Reader::Python.canonical_text(text);
            token.starts_with(b"gAAAAA").then_some(token)
        }
        _ => None,
    }
}

/// The members `iv` and `value` of a JSON object in base64, with a dot between them. Their order, and all other
/// members, do not matter. `None` if `reader` reads no such object.
fn laravel_parts(text: &[u8], reader: Base64Reader) -> Option<Vec<u8>> {
    // The text before the first dot may be an object by itself, as in a JWT.
    let before_dot = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    let members = match parse_object(&reader.decode(before_dot)) {
        Some(members) => members,
        None if before_dot.len() < text.len() => parse_object(&reader.decode(text))?,
        None => return None,
    };
    let canonical_member = |name: &str| {
        let text: String = serde_json::from_str(members.get(name)?.get()).ok()?;
        Some(reader.canonical_text(text.as_bytes()))
    };
    Some([canonical_member("iv")?, canonical_member("value")?].join(&b'.'))
}

/// The members of the JSON object at the beginning of `text`; `None` if no object is there. Of members with the same name
/// the last one counts.
fn parse_object(text: &[u8]) -> Option<BTreeMap<String, Box<RawValue>>> {
    let mut documents = serde_json::Deserializer::from_slice(text).into_iter();
    documents.next()?.ok()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let actual =
            canonical_parts(text.as_bytes()).map(|parts| String::from_utf8(parts).unwrap());
        assert_eq!(actual.as_deref(), expected, "{text}");
    }

    #[test]
    fn laravel() {
        let encode = |json: &str| STANDARD.encode(json);
        let cookie = encode(r#"{"iv":"AAAA+/8=","value":"BBBB","mac":"c","tag":""}"#);
        let deeply_nested = format!(
            r#"{{"x":{}{},"iv":"AAAA+/8=","value":"BBBB"}}"#,
            "[".repeat(300),
            "]".repeat(300)
        );
        let (start, end) = cookie.split_at(9);
        let with_other_letters = r#"{"a":">>>","iv":"AAAA+/8=","value":"BBBB"}"#;
        for spelling in [
            &*cookie,
            cookie.trim_end_matches('='),
            &format!(" {start} {end}\t"),
            &format!("{start}={end}"),
            &format!("{start}-_!{end}"),
            &format!("{start}.{end}"),
            &format!("{start}.!{}.{}", &end[..5], &end[5..]),
            &format!("{start}{end}A"),
            &encode(r#" { "value" : "BBBB" , "iv" : "AAAA+/8=" }  "#),
            &encode(r#"{"iv":"x","\u0069v":"AAAA+\/8","value":"BB BB="}"#),
            &encode(r#"{"iv":"AAAA+/9","value":"BBBB","mac":"C"}"#),
            &encode(&deeply_nested),
            &encode(with_other_letters).replace('+', "+ "),
            &URL_SAFE.encode(with_other_letters),
        ] {
            check(spelling, Some("AAAA-_8.BBBB"));
        }
        for other in [
            r#"{"iv":1,"value":"x"}"#,
            r#"{"iv":"x"}"#,
            r#"{"alg":"HS256"}"#,
            r#"["iv","value"]"#,
            r#"{"iv":"x","value":"y""#,
            "{",
        ] {
            check(&encode(other), None);
        }
        check("eyJh.eyJz.AAA", None);
        check("", None);
        check("e", None);
    }

    #[test]
    fn fernet() {
        let token = "gAAAAABmAAAAAQIDBAUG";
        for spelling in [
            "gAAAAABmAAAAAQIDBAUG",
            "gAAA AABmAAAAA!QIDBAUG",
            "gAAAAABmAAAA=AQIDBAUG",
        ] {
            check(spelling, Some(token));
        }
        check("gAAAAABm-_==AAAA", Some("gAAAAABm-w"));
        check("gAAAAABm+/==", Some("gAAAAABm-w"));
        check("gAAAABm", None);
        check("gate", None);
    }
}
