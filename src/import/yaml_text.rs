//! Writes single values of YAML so that any text is read back as itself.

use std::fmt::Write;

use super::names::is_yaml_word;

/// A scalar for block and flow context: plain where that is unmistakable, in double quotes elsewhere.
pub fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    quoted(text)
}

/// A scalar of the gateway file, in whose values `$` begins a reference.
pub fn gateway_scalar(text: &str) -> String {
    scalar(&text.replace('$', "$$"))
}

fn is_plain(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '/';
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "/._-:*@+~".contains(c);
    let mut chars = text.chars();
    chars.next().is_some_and(is_first)
        && chars.all(is_inner)
        && !text.ends_with(':')
        && !is_yaml_word(text)
}

/// A scalar in double quotes.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control()
                || matches!(
                    c,
                    '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
                ) =>
            {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A list in one line: one value alone without brackets, several in brackets.
pub fn list(values: &[String]) -> String {
    match values {
        [one] => scalar(one),
        several => flow_list(several),
    }
}

/// A list in one line, always in brackets.
pub fn flow_list(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| scalar(value)).collect();
    format!("[{}]", values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The text of the only value of a YAML document.
    fn read_back(yaml: &str) -> Option<String> {
        let document = format!("a: {{ b: [{yaml}] }}\nc: {yaml}\n");
        let parsed: serde_json::Value = serde_yaml::from_str(&document).ok()?;
        let (inner, outer) = (parsed["a"]["b"][0].as_str()?, parsed["c"].as_str()?);
        (inner == outer).then(|| outer.to_owned())
    }

    #[test]
    fn ambiguous_texts_are_quoted() {
        for text in [
            "",
            "off",
            "12",
            "1:2",
            "a: b",
            "a #b",
            "*x",
            "http://[::1]:80",
            "a:",
            "-",
            "~",
            "{a}",
            "\u{7f}",
        ] {
            assert!(scalar(text).starts_with('"'), "{text}");
            assert_eq!(read_back(&scalar(text)).as_deref(), Some(text));
        }
        for text in [
            "/**",
            "/api/*/x",
            "http://127.0.0.1:3000",
            "api.example.com",
        ] {
            assert_eq!(scalar(text), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_back(text in ".{0,20}") {
            prop_assert_eq!(read_back(&scalar(&text)), Some(text));
        }
    }
}
