//! Parses UUIDs in every spelling that widely used readers accept, and tells when two of them read different UUIDs.
//!
//! - Python drops `urn:`, `uuid:`, braces at the ends and all hyphens, and parses the remaining 32 characters as a number.
//!   So they may contain `0x`, `+`, `_` and blanks. PHP's ramsey/uuid does nearly the same. PostgreSQL accepts hyphens only
//!   between groups of four digits.
//! - Java reads five groups of any length and keeps the last digits of each. .NET accepts `0x` and `+` in a group, braces,
//!   parentheses, and its format `X`: `{0x…,0x…,0x…,{0x…,…}}`.
//! - Go's google/uuid ignores the first and the last of 38 characters.
//! - Symfony also accepts Crockford's base 32 (26 characters) and base 58 (22 characters).

use smallvec::SmallVec;

/// Digits of each group between hyphens (RFC 9562, section 4).
const GROUP_DIGITS: [usize; 5] = [8, 4, 4, 4, 12];

/// Digits of each number in .NET's format `X`.
const FORMAT_X_DIGITS: [usize; 11] = [8, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2];

/// Length of a UUID with hyphens, in bytes. Java refuses a longer text.
const GROUPED_BYTES: usize = 36;

/// Number of digits of a UUID in base 16.
const HEX_DIGIT_COUNT: usize = 32;

/// Number of digits of a UUID in base 32.
const CROCKFORD_DIGIT_COUNT: usize = 26;

/// Number of digits of a UUID in base 58.
const BASE58_DIGIT_COUNT: usize = 22;

/// The digits of Crockford's base 32, in lower case.
const CROCKFORD_DIGITS: &[u8] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The digits of base 58, as Bitcoin orders them.
const BASE58_DIGITS: &[u8] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// The 32 digits of the one UUID that readers take `text` for; `None` if it is no UUID or two readers disagree.
pub(super) fn digits(text: &[u8]) -> Option<Vec<u8>> {
    if is_usual_form(text) {
        let digits = text.iter().filter(|byte| **byte != b'-');
        return Some(digits.map(u8::to_ascii_lowercase).collect());
    }
    match readings(text)[..] {
        [uuid] => Some(format!("{uuid:032x}").into_bytes()),
        _ => None,
    }
}

/// Whether two readers may take `text` for different UUIDs. Only some readers accept the digits of other scripts, so a
/// text with such digits is ambiguous if it could be a UUID.
pub(super) fn is_ambiguous(text: &[u8]) -> bool {
    if text.is_ascii() {
        // A text without a hyphen fits the parser of one format at most.
        return text.contains(&b'-') && !is_usual_form(text) && readings(text).len() > 1;
    }
    let is_any_digit = |c: char| c.is_ascii_hexdigit() || c.is_numeric() || is_full_width_letter(c);
    let may_be_in_uuid = |c: char| {
        is_any_digit(c)
            || c.is_whitespace()
            || u8::try_from(c).is_ok_and(|byte| is_uuid_byte(&byte))
    };
    std::str::from_utf8(text).is_ok_and(|text| text.chars().all(may_be_in_uuid))
}

/// Whether `text` is 32 digits, with hyphens between the groups or with none: all readers agree about these.
fn is_usual_form(text: &[u8]) -> bool {
    match text.len() {
        32 => text.iter().all(u8::is_ascii_hexdigit),
        GROUPED_BYTES => text.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        }),
        _ => false,
    }
}

/// Whether the byte occurs in some spelling of a UUID.
fn is_uuid_byte(byte: &u8) -> bool {
    byte.is_ascii_hexdigit() || b"-{}():,_+xurnidXURNID".contains(byte) || is_python_space(*byte)
}

/// Whether Python skips the byte at the ends of a number.
fn is_python_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | b'\x1c'..=b'\x1f')
}

/// Whether the character is a full-width letter from A to F.
fn is_full_width_letter(c: char) -> bool {
    matches!(c, '\u{ff21}'..='\u{ff26}' | '\u{ff41}'..='\u{ff46}')
}

/// The different UUIDs that readers take `text` for.
fn readings(text: &[u8]) -> SmallVec<[u128; 2]> {
    let mut readings = SmallVec::new();
    let mut add_reading = |uuid: Option<u128>| {
        if let Some(uuid) = uuid.filter(|uuid| !readings.contains(uuid)) {
            readings.push(uuid);
        }
    };
    add_reading(parse_like_go(text));
    // Credentials of other kinds mostly fail this check within two bytes.
    if text.iter().all(is_uuid_byte) {
        let lower = text.to_ascii_lowercase();
        let lower = without_prefixes(&without_prefixes(&lower, b"urn:"), b"uuid:");
        let is_bracket = |byte: &u8| b"{}()".contains(byte);
        if lower.contains(&b',') {
            add_reading(parse_format_x(&lower));
        } else {
            let without_brackets: Vec<u8> =
                lower.into_iter().filter(|byte| !is_bracket(byte)).collect();
            add_reading(parse_like_python(&without_brackets));
            add_reading(parse_like_java(&without_brackets));
        }
    }
    add_reading(match text.len() {
        CROCKFORD_DIGIT_COUNT => parse_in_base(&text.to_ascii_lowercase(), CROCKFORD_DIGITS),
        BASE58_DIGIT_COUNT => parse_in_base(text, BASE58_DIGITS),
        _ => None,
    });
    readings
}

/// Drops every `prefix` in a text, in one pass: a prefix that forms only when another one is dropped stays.
fn without_prefixes(text: &[u8], prefix: &[u8]) -> Vec<u8> {
    let mut kept_bytes = Vec::with_capacity(text.len());
    let mut kept_start = 0;
    for prefix_start in memchr::memmem::find_iter(text, prefix) {
        kept_bytes.extend_from_slice(&text[kept_start..prefix_start]);
        kept_start = prefix_start + prefix.len();
    }
    kept_bytes.extend_from_slice(&text[kept_start..]);
    kept_bytes
}

/// Parses lower-case text without brackets as Python does.
fn parse_like_python(text: &[u8]) -> Option<u128> {
    let digits: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'-').collect();
    if digits.len() != HEX_DIGIT_COUNT {
        return None;
    }
    let start = digits.iter().position(|byte| !is_python_space(*byte))?;
    let end = digits.iter().rposition(|byte| !is_python_space(*byte))?;
    let digits = without_sign_and_base(&digits[start..=end])?;
    parse_hex(digits.iter().copied().filter(|byte| *byte != b'_'))
}

/// Parses lower-case text without brackets as five groups, as Java and .NET do.
fn parse_like_java(text: &[u8]) -> Option<u128> {
    let overlong = match text.len() <= GROUPED_BYTES {
        true => OverlongGroup::KeepsLastDigits,
        false => OverlongGroup::Refused,
    };
    // A sixth group suffices to see that there are too many.
    let groups: SmallVec<[&[u8]; 6]> = text.split(|byte| *byte == b'-').take(6).collect();
    parse_groups(&groups, &GROUP_DIGITS, overlong)
}

/// Parses .NET's format `X`: `{0x…,0x…,0x…,{0x…,…}}`.
fn parse_format_x(text: &[u8]) -> Option<u128> {
    let is_kept = |byte: &u8| !b"{} \t".contains(byte);
    let without_braces: Vec<u8> = text.iter().copied().filter(is_kept).collect();
    let numbers: SmallVec<[&[u8]; 12]> = without_braces
        .split(|byte| *byte == b',')
        .take(12)
        .collect();
    parse_groups(&numbers, &FORMAT_X_DIGITS, OverlongGroup::Refused)
}

/// What a reader does with a group that has too many digits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OverlongGroup {
    Refused,
    KeepsLastDigits,
}

/// Joins groups of hexadecimal digits. Each group has at most as many digits as its element of `max_digits`, and a
/// shorter one gets zeros in front. `overlong` says what becomes of a longer one. `None` if there are more or fewer
/// groups, or if a group is refused.
fn parse_groups(groups: &[&[u8]], max_digits: &[usize], overlong: OverlongGroup) -> Option<u128> {
    /// Digits of a `long`; Java reads each group as one.
    const MAX_LONG_DIGITS: usize = 16;

    if groups.len() != max_digits.len() {
        return None;
    }
    let mut uuid = 0;
    for (group, &group_digits) in groups.iter().zip(max_digits) {
        let digits = without_sign_and_base(group)?;
        let leading_zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        let mut digits = &digits[leading_zeros..];
        if digits.len() > group_digits {
            if overlong == OverlongGroup::Refused || digits.len() > MAX_LONG_DIGITS {
                return None;
            }
            digits = &digits[digits.len() - group_digits..];
        }
        uuid = uuid << (4 * group_digits) | parse_hex(digits.iter().copied())?;
    }
    Some(uuid)
}

/// The digits after `+` and `0x`, each of which may be missing; `None` if there are no digits.
fn without_sign_and_base(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    (!text.is_empty()).then_some(text)
}

/// Parses hexadecimal digits; `None` for another byte, or for a number of more than 128 bits.
fn parse_hex(mut digits: impl Iterator<Item = u8>) -> Option<u128> {
    digits.try_fold(0_u128, |number, digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(number.checked_mul(16)? | u128::from(digit))
    })
}

/// Parses a number in the base whose digits are `base_digits`, from zero upwards. `None` for another byte, or for a
/// number of more than 128 bits.
fn parse_in_base(text: &[u8], base_digits: &[u8]) -> Option<u128> {
    let base = base_digits.len() as u128;
    text.iter().try_fold(0_u128, |number, letter| {
        let digit = base_digits.iter().position(|digit| digit == letter)?;
        number.checked_mul(base)?.checked_add(digit as u128)
    })
}

/// Parses 38 characters as Go's google/uuid does, which ignores the first and the last.
fn parse_like_go(text: &[u8]) -> Option<u128> {
    let [_, inner @ .., _] = text else {
        return None;
    };
    // A cheap check before the text is split: the first hyphen comes after eight digits.
    let [_, _, _, _, _, _, _, _, b'-', ..] = inner else {
        return None;
    };
    if inner.len() != GROUPED_BYTES {
        return None;
    }
    let groups: SmallVec<[&[u8]; 6]> = inner.split(|byte| *byte == b'-').take(6).collect();
    let is_grouped = groups.iter().map(|group| group.len()).eq(GROUP_DIGITS);
    is_grouped.then(|| parse_hex(inner.iter().copied().filter(|byte| *byte != b'-')))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let parsed = digits(text.as_bytes()).map(|digits| String::from_utf8(digits).unwrap());
        assert_eq!(parsed.as_deref(), expected, "{text}");
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
            "\n123456789abcdef0123456789abcdef",
            "\u{1c}123456789abcdef0123456789abcdef",
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
            "0X\u{661}23456789abcdef0123456789abcde",
            "\u{ff11}-2-3-4-5",
        ] {
            assert!(is_ambiguous(text.as_bytes()), "{text}");
        }
        for text in ["caf\u{e9}", "a-b-c", "\u{661}-key"] {
            assert!(!is_ambiguous(text.as_bytes()), "{text}");
        }
    }
}
