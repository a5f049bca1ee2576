//! Writes members of the JSON objects in the access log.
//!
//! They are written without a serializer, because each request of a flood costs a line; only texts with escapes go
//! through one. Small writers are inlined, so that the lengths of their prefixes are constants. A `prefix` is the name
//! of a member with its quotes, its colon and what stands before it, and nothing here checks that.

use crate::limit::Rule;

/// The members that name the route `name`, for the lines of its requests.
pub(crate) fn route_members(name: &str) -> Box<[u8]> {
    let mut out = Vec::new();
    push_text(&mut out, ",\"route\":", name);
    out.into()
}

/// The members that name a limit and its place in the policy files, for the lines of requests that it decided.
pub(crate) fn limit_members(rule: &Rule) -> Box<[u8]> {
    let mut out = Vec::new();
    push_plain_text(&mut out, ",\"limit\":", rule.name.as_str());
    push_text(&mut out, ",\"limit_at\":", &rule.origin);
    out.into()
}

/// Writes a member whose value is a string that needs no escapes.
#[inline(always)]
pub(super) fn push_plain_text(out: &mut Vec<u8>, prefix: &str, value: &str) {
    out.extend_from_slice(prefix.as_bytes());
    out.push(b'"');
    out.extend_from_slice(value.as_bytes());
    out.push(b'"');
}

/// Writes a member whose value is any string, with escapes where JSON needs them.
pub(super) fn push_text(out: &mut Vec<u8>, prefix: &str, value: &str) {
    let needs_escape = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // A fold does not stop early, so the compiler checks many bytes at once.
    let has_escapes = value
        .bytes()
        .fold(false, |has_escapes, byte| has_escapes | needs_escape(byte));
    if !has_escapes {
        return push_plain_text(out, prefix, value);
    }
    out.extend_from_slice(prefix.as_bytes());
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

/// Writes a member whose value is a whole number.
#[inline(always)]
pub(super) fn push_number(out: &mut Vec<u8>, prefix: &str, value: u64) {
    out.extend_from_slice(prefix.as_bytes());
    match value {
        // Most seconds.
        0..=9 => out.push(b'0' + value as u8),
        _ => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
    }
}

/// Most digits of a fraction.
const MAX_FRACTION_DIGITS: usize = 6;

/// Writes the fraction of the number that was written last: a point and the `N` digits of `value`, which is below 10^`N`.
#[inline(always)]
pub(super) fn push_fraction<const N: usize>(out: &mut Vec<u8>, mut value: u32) {
    const { assert!(N <= MAX_FRACTION_DIGITS) }
    let mut text = [b'.'; 1 + MAX_FRACTION_DIGITS];
    for digit in text[1..=N].iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&text[..=N]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_valid_json() {
        let mut out = Vec::new();
        push_number(&mut out, "{\"a\":", 1_700_000_000);
        push_fraction::<3>(&mut out, 42);
        push_text(&mut out, ",\"b\":", "c\"\\\n\u{7f}é");
        push_text(&mut out, ",\"c\":", "\u{7f}é");
        push_number(&mut out, ",\"d\":", 0);
        push_fraction::<6>(&mut out, 7);
        push_number(&mut out, ",\"e\":", u64::MAX);
        push_plain_text(&mut out, ",\"f\":", "");
        out.push(b'}');
        let parsed: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let expected = serde_json::json!({
            "a": 1_700_000_000.042, "b": "c\"\\\n\u{7f}é", "c": "\u{7f}é", "d": 0.000_007, "e": u64::MAX, "f": "",
        });
        assert_eq!(parsed, expected);
    }
}
