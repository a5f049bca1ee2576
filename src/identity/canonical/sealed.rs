//! Encrypted values that readers decode leniently from base64: what they decrypt, whatever stands around it.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::lenient_base64::Base64Reader;

/// The parts of `text` that are decrypted, in one spelling: of Laravel's `{"iv":…,"value":…}`, and of Fernet's token.
pub(super) fn parts(text: &[u8]) -> Option<Vec<u8>> {
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    match text.iter().find(is_letter)? {
        // Of a brace, or of a blank before it.
        b'e' | b'I' | b'C' | b'D' => {
            object(text, Base64Reader::Php).or_else(|| object(text, Base64Reader::Both))
        }
        b'g' => {
            let token = Base64Reader::Python.canonical(text);
            token.starts_with(b"gAAAAA").then_some(token)
        }
        _ => None,
    }
}

/// Laravel's values `iv` and `value`; their order, their spelling and all beside them may be anything.
fn object(text: &[u8], reader: Base64Reader) -> Option<Vec<u8>> {
    // The first part of a JWT is an object of its own.
    let first = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    let object = match members(&reader.decoded(first)) {
        Some(members) => members,
        None if first.len() < text.len() => members(&reader.decoded(text))?,
        None => return None,
    };
    let part = |name: &str| {
        let text: String = serde_json::from_str(object.get(name)?.get()).ok()?;
        Some(reader.canonical(text.as_bytes()))
    };
    Some([part("iv")?, part("value")?].join(&b'.'))
}

/// The members of the object with which a text begins; the last of those of one name.
fn members(text: &[u8]) -> Option<BTreeMap<String, Box<RawValue>>> {
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
        let got = parts(text.as_bytes()).map(|parts| String::from_utf8(parts).unwrap());
        assert_eq!(got.as_deref(), expected, "{text}");
    }

    #[test]
    fn laravel() {
        let sealed = |json: &str| STANDARD.encode(json);
        let plain = sealed(r#"{"iv":"AAAA+/8=","value":"BBBB","mac":"c","tag":""}"#);
        let deep = format!(
            r#"{{"x":{}{},"iv":"AAAA+/8=","value":"BBBB"}}"#,
            "[".repeat(300),
            "]".repeat(300)
        );
        let (start, end) = plain.split_at(9);
        let more = r#"{"a":">>>","iv":"AAAA+/8=","value":"BBBB"}"#;
        for same in [
            &*plain,
            plain.trim_end_matches('='),
            &format!(" {start} {end}\t"),
            &format!("{start}={end}"),
            &format!("{start}-_!{end}"),
            &format!("{start}.{end}"),
            &format!("{start}.!{}.{}", &end[..5], &end[5..]),
            &format!("{start}{end}A"),
            &sealed(r#" { "value" : "BBBB" , "iv" : "AAAA+/8=" }  "#),
            &sealed(r#"{"iv":"x","\u0069v":"AAAA+\/8","value":"BB BB="}"#),
            &sealed(r#"{"iv":"AAAA+/9","value":"BBBB","mac":"C"}"#),
            &sealed(&deep),
            &sealed(more).replace('+', "+ "),
            &URL_SAFE.encode(more),
        ] {
            check(same, Some("AAAA-_8.BBBB"));
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
        for same in [
            "gAAAAABmAAAAAQIDBAUG",
            "gAAA AABmAAAAA!QIDBAUG",
            "gAAAAABmAAAA=AQIDBAUG",
        ] {
            check(same, Some(token));
        }
        check("gAAAAABm-_==AAAA", Some("gAAAAABm-w"));
        check("gAAAAABm+/==", Some("gAAAAABm-w"));
        check("gAAAABm", None);
        check("gate", None);
    }
}
