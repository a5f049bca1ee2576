//! Finds the encrypted parts of Laravel's values and Fernet's tokens, whose readers decode base64 leniently.
//!
//! The text around these parts can change without changing what is decrypted, so it is not counted.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::lenient_base64::Base64Reader;

/// The encrypted parts of `text` in one spelling: those of Laravel's `{"iv":…,"value":…}`, or a whole Fernet token.
/// None for any other text.
pub(super) fn parts(text: &[u8]) -> Option<Vec<u8>> {
    let is_base64_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    match text.iter().find(is_base64_letter)? {
        // The first letter of a brace, or of a blank before it.
        b'e' | b'I' | b'C' | b'D' => laravel_parts(text, Base64Reader::Php)
            .or_else(|| laravel_parts(text, Base64Reader::BothAlphabets)),
        // Fernet's version byte is 0x80.
        b'g' => {
            let token = Base64Reader::Python.canonical(text);
            token.starts_with(b"gAAAAA").then_some(token)
        }
        _ => None,
    }
}

/// The members `iv` and `value` of an object in base64. Their order, and all other members, do not matter.
fn laravel_parts(text: &[u8], reader: Base64Reader) -> Option<Vec<u8>> {
    // The first part of a JWT is an object of its own.
    let before_dot = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    let members = match parse_object(&reader.decode(before_dot)) {
        Some(members) => members,
        None if before_dot.len() < text.len() => parse_object(&reader.decode(text))?,
        None => return None,
    };
    let canonical_member = |name: &str| {
        let text: String = serde_json::from_str(members.get(name)?.get()).ok()?;
        Some(reader.canonical(text.as_bytes()))
    };
    Some([canonical_member("iv")?, canonical_member("value")?].join(&b'.'))
}

/// The members of the JSON object at the beginning of `text`. The last member of a name counts.
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
        let actual = parts(text.as_bytes()).map(|parts| String::from_utf8(parts).unwrap());
        assert_eq!(actual.as_deref(), expected, "{text}");
    }

    #[test]
    fn laravel() {
        let sealed = |json: &str| STANDARD.encode(json);
        let cookie = sealed(r#"{"iv":"AAAA+/8=","value":"BBBB","mac":"c","tag":""}"#);
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
            &sealed(r#" { "value" : "BBBB" , "iv" : "AAAA+/8=" }  "#),
            &sealed(r#"{"iv":"x","\u0069v":"AAAA+\/8","value":"BB BB="}"#),
            &sealed(r#"{"iv":"AAAA+/9","value":"BBBB","mac":"C"}"#),
            &sealed(&deeply_nested),
            &sealed(with_other_letters).replace('+', "+ "),
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
            check(&sealed(other), None);
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
