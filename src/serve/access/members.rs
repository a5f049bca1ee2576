//! Members of a line of the access log: JSON by hand, for a line is written for every request that is refused.

use crate::limit::Rule;

/// What lines say of a route.
pub(crate) fn of_route(name: &str) -> Box<[u8]> {
    let mut out = Vec::new();
    text(&mut out, ",\"route\":", name);
    out.into()
}

/// What lines say of a limit.
pub(crate) fn of_rule(rule: &Rule) -> Box<[u8]> {
    let mut out = Vec::new();
    word(&mut out, ",\"limit\":", rule.name.as_str());
    text(&mut out, ",\"limit_at\":", &rule.origin);
    out.into()
}

/// A name and what needs no escapes.
#[inline(always)]
pub(super) fn word(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
    out.extend_from_slice(value.as_bytes());
    out.push(b'"');
}

pub(super) fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    let escaped = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // Looked at to the end, which is done for many bytes at once.
    if !value.bytes().fold(false, |any, byte| any | escaped(byte)) {
        return word(out, name, value);
    }
    out.extend_from_slice(name.as_bytes());
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

#[inline(always)]
pub(super) fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A point and the digits of a number below 10^`N`.
#[inline(always)]
pub(super) fn fraction<const N: usize>(out: &mut Vec<u8>, mut value: u32) {
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit += (value % 10) as u8;
        value /= 10;
    }
    out.push(b'.');
    out.extend_from_slice(&digits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members() {
        let mut out = Vec::new();
        number(&mut out, "{\"a\":", 1_700_000_000);
        fraction::<3>(&mut out, 42);
        text(&mut out, ",\"b\":", "c\"\\\n\u{7f}é");
        text(&mut out, ",\"c\":", "\u{7f}é");
        number(&mut out, ",\"d\":", 0);
        fraction::<6>(&mut out, 7);
        number(&mut out, ",\"e\":", u64::MAX);
        word(&mut out, ",\"f\":", "");
        out.push(b'}');
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let expected = serde_json::json!({
            "a": 1_700_000_000.042, "b": "c\"\\\n\u{7f}é", "c": "\u{7f}é", "d": 0.000_007, "e": u64::MAX, "f": "",
        });
        assert_eq!(read, expected);
    }
}
