//! UUIDs by whatever spelling large readers take for them.
//!
//! - Python takes out `urn:`, `uuid:`, braces at the ends and all hyphens, and reads 32 characters as a number (`0x`, `+`,
//!   `_` and blanks included); PHP's ramsey/uuid does nearly the same, PostgreSQL needs hyphens between groups of four.
//! - Java reads five groups of any length and keeps the last digits of each; .NET takes `0x` and `+` in a group, braces,
//!   parentheses, and `{0x…,0x…,0x…,{0x…,…}}`.
//! - Go's google/uuid looks at 36 of 38 characters, whatever the two at the ends are.
//! - Symfony takes Crockford's base 32 (26 characters) and base 58 (22 characters) too.

use smallvec::SmallVec;

/// Digits of each group.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// Digits of each number of .NET's format `X`.
const NUMBERS: [usize; 11] = [8, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2];

/// Longest text of five groups to Java, in bytes.
const MAX_GROUPED: usize = 36;

const CROCKFORD: &[u8] = b"0123456789abcdefghjkmnpqrstvwxyz";

const BASE58: &[u8] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// The digits of the one UUID that every reader takes `text` for, if any does.
pub(super) fn digits(text: &[u8]) -> Option<Vec<u8>> {
    match readings(text)[..] {
        [uuid] => Some(format!("{uuid:032x}").into_bytes()),
        _ => None,
    }
}

/// Whether two readers take `text` for different UUIDs, or may: digits of other scripts are digits to some.
pub(super) fn is_ambiguous(text: &[u8]) -> bool {
    if text.is_ascii() {
        return text.contains(&b'-') && readings(text).len() > 1;
    }
    let is_digit = |c: char| c.is_ascii_hexdigit() || c.is_numeric() || is_wide_letter(c);
    let in_uuid = |c: char| is_digit(c) || c.is_whitespace() || "-{}():,_+xurnid".contains(c);
    std::str::from_utf8(text).is_ok_and(|text| text.chars().all(in_uuid))
}

/// A letter of the block of full-width forms.
fn is_wide_letter(c: char) -> bool {
    matches!(c, '\u{ff21}'..='\u{ff26}' | '\u{ff41}'..='\u{ff46}')
}

/// The UUIDs that readers take `text` for.
fn readings(text: &[u8]) -> SmallVec<[u128; 2]> {
    let mut readings = SmallVec::new();
    let mut add = |uuid: Option<u128>| {
        if let Some(uuid) = uuid.filter(|uuid| !readings.contains(uuid)) {
            readings.push(uuid);
        }
    };
    add(between_any(text));
    let bytes = |byte: &u8| byte.is_ascii_hexdigit() || b"-{}():,_+ \txurnidXURNID".contains(byte);
    // Of most other credentials the first byte or two are none of these.
    if text.iter().all(bytes) {
        let lower = without(&without(&text.to_ascii_lowercase(), b"urn:"), b"uuid:");
        let is_mark = |byte: &u8| b"{}()".contains(byte);
        if lower.contains(&b',') {
            add(numbers(&lower));
        } else {
            let bare: Vec<u8> = lower.into_iter().filter(|byte| !is_mark(byte)).collect();
            add(whole(&bare));
            add(groups(&bare));
        }
    }
    add(match text.len() {
        26 => in_base(&text.to_ascii_lowercase(), CROCKFORD),
        22 => in_base(text, BASE58),
        _ => None,
    });
    readings
}

/// A text without each `part`, from the left, once.
fn without(text: &[u8], part: &[u8]) -> Vec<u8> {
    let mut left = Vec::with_capacity(text.len());
    let mut from = 0;
    for at in memchr::memmem::find_iter(text, part) {
        left.extend_from_slice(&text[from..at]);
        from = at + part.len();
    }
    left.extend_from_slice(&text[from..]);
    left
}

/// Python's reading of a text without braces in small letters.
fn whole(bare: &[u8]) -> Option<u128> {
    let digits: Vec<u8> = bare.iter().copied().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let number = number(digits.trim_ascii())?;
    value(number.iter().copied().filter(|byte| *byte != b'_'))
}

/// Java's and .NET's reading of the same.
fn groups(bare: &[u8]) -> Option<u128> {
    let is_cut = bare.len() <= MAX_GROUPED;
    let groups: SmallVec<[&[u8]; 6]> = bare.split(|byte| *byte == b'-').take(6).collect();
    in_widths(&groups, &GROUPS, is_cut)
}

/// .NET's format `X`.
fn numbers(text: &[u8]) -> Option<u128> {
    let inside = |byte: &u8| !b"{} \t".contains(byte);
    let bare: Vec<u8> = text.iter().copied().filter(inside).collect();
    let numbers: SmallVec<[&[u8]; 12]> = bare.split(|byte| *byte == b',').take(12).collect();
    in_widths(&numbers, &NUMBERS, false)
}

/// Numbers of so many digits each, behind each other. Of one that is longer the last digits count if `is_cut`.
fn in_widths(numbers: &[&[u8]], widths: &[usize], is_cut: bool) -> Option<u128> {
    if numbers.len() != widths.len() {
        return None;
    }
    let mut all = 0;
    for (text, &width) in numbers.iter().zip(widths) {
        let digits = number(text)?;
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        let mut digits = &digits[zeros..];
        if digits.len() > width {
            // A long has 16.
            if !is_cut || digits.len() > 16 {
                return None;
            }
            digits = &digits[digits.len() - width..];
        }
        all = all << (4 * width) | value(digits.iter().copied())?;
    }
    Some(all)
}

/// The digits of a number without its sign and the mark of its base; none where there are none.
fn number(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    (!text.is_empty()).then_some(text)
}

/// A hexadecimal number.
fn value(mut digits: impl Iterator<Item = u8>) -> Option<u128> {
    digits.try_fold(0_u128, |all, digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(all.checked_mul(16)? | u128::from(digit))
    })
}

/// A number whose digits these are.
fn in_base(text: &[u8], digits: &[u8]) -> Option<u128> {
    let base = digits.len() as u128;
    text.iter().try_fold(0_u128, |all, letter| {
        let digit = digits.iter().position(|digit| digit == letter)?;
        all.checked_mul(base)?.checked_add(digit as u128)
    })
}

/// google/uuid's reading of 38 characters.
fn between_any(text: &[u8]) -> Option<u128> {
    let [_, inner @ .., _] = text else {
        return None;
    };
    let [_, _, _, _, _, _, _, _, b'-', ..] = inner else {
        return None;
    };
    if inner.len() != MAX_GROUPED {
        return None;
    }
    let groups: SmallVec<[&[u8]; 6]> = inner.split(|byte| *byte == b'-').take(6).collect();
    let fits = groups.iter().map(|group| group.len()).eq(GROUPS);
    fits.then(|| value(inner.iter().copied().filter(|byte| *byte != b'-')))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let got = digits(text.as_bytes()).map(|digits| String::from_utf8(digits).unwrap());
        assert_eq!(got.as_deref(), expected, "{text}");
        assert!(!is_ambiguous(text.as_bytes()), "{text}");
    }

    #[test]
    fn spellings_of_one_uuid() {
        let uuid = "0123456789abcdef0123456789abcdef";
        let long = format!("{}{uuid}", "-".repeat(100));
        let urns = "urn:uuid:".repeat(100) + uuid;
        for same in [
            uuid,
            &*long,
            &*urns,
            "0123456789ABCDEF0123456789abcdef",
            "01234567-89ab-cdef-0123-456789abcdef",
            "{01234567-89ab-cdef-0123-456789ABCDEF}",
            "(01234567-89ab-cdef-0123-456789abcdef)",
            "urn:uuid:01234567-89ab-cdef-0123-456789abcdef",
            "URN:UUID:01234567-89ab-cdef-0123-456789abcdef",
            "uuid:0123456789abcdef0123456789abcdef",
            "01234567urn:89abcdefuuid:0123456789abcdef",
            "uurn:uid:0123456789abcdef0123456789abcdef",
            "{{0123456789abcdefurn:0123456789abcdef}",
            "0-123456789abcdef0123456789abcdef",
            "0123-4567-89ab-cdef-0123-4567-89ab-cdef",
            "+123456789abcdef0123456789abcdef",
            "1234567-89ab-cdef-123-456789abcdef",
            "0001234567-89ab-cdef-123-456789abcdef",
            "0x1234567-89ab-cdef-0123-456789abcdef",
            "+1234567-89ab-cdef-+123-456789abcdef",
            "{0x01234567,0x89ab,0xcdef,{0x01,0x23,0x45,0x67,0x89,0xab,0xcd,0xef}}",
            "{0x1234567,0x89AB,0xcdef,{0x1,0x023,0x45,0x67,0x89,0xab,0xcd,0xef}}",
            "x01234567-89ab-cdef-0123-456789abcdefy",
            "014d2pf2dbsqqg28t5cy4tqkff",
            "014D2PF2DBSQQG28T5CY4TQKFF",
        ] {
            check(same, Some(uuid));
        }
        let small = "00000001-0002-0003-0004-000000000005".replace('-', "");
        for same in [
            "1-2-3-4-5",
            "0000000000000000000000001-2-3-4-000000000000000000000000000005",
            "ffffffff00000001-2-3-4-5",
            "0x00001000200030004_000000000005",
        ] {
            check(same, Some(&small));
        }
        for other in [
            "0123456789abcdef0123456789abcdef0",
            "0123456789ABCDEF0123456789abcdeg",
            "t0ken",
            "1-2-3-4",
            "1-2-3-4-5-6",
            "1-2-3-4-",
            "{0x1,0x2}",
            "bad-cafe",
            "z1234567-89ab-cdef-0123-456789abcdef",
            "eyJhbGciOiJIUzI1NiJ9",
        ] {
            check(other, None);
        }
    }

    #[test]
    fn two_uuids() {
        for text in [
            // Python joins the groups, Java fills and cuts them.
            "012345678-9ab-cdef-0123-456789abcdef",
            "001234567-89ab-cdef-123-456789abcdef",
            "0123-4567-89ab-cdef-0123456789abcdef",
            "\u{661}123456789abcdef0123456789abcdef",
            "\u{ff11}-2-3-4-5",
        ] {
            assert!(is_ambiguous(text.as_bytes()), "{text}");
        }
        for text in ["caf\u{e9}", "a-b-c", "\u{661}-key"] {
            assert!(!is_ambiguous(text.as_bytes()), "{text}");
        }
    }
}
