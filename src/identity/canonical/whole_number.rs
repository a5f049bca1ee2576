//! Folds the spellings of a whole number, which many servers parse before they look it up: `7`, `007`, `+7`, `1_0`,
//! `7.0`, `70e-1`, `0x7` and `1 0`.

use crate::identity::FieldValue;

/// Number of digits of a UUID without hyphens. A number of this many digits has the canonical form of the UUID with the
/// same digits, unless it begins with a zero.
const UUID_DIGITS: usize = 32;

/// Most zeros that an exponent adds: with more, the number does not fit 64 bits.
const MAX_EXPONENT_ZEROS: usize = 20;

/// The number that the text spells; absent if it spells none, as `1.5` and `7x`. Digits of other scripts are ambiguous,
/// because Java and Python parse them and most others do not. 32 digits that begin with a zero are ambiguous too, because
/// they are also a UUID.
pub(in crate::identity) fn parse(text: &[u8]) -> FieldValue<'_> {
    // Most values are no numbers and end here.
    let may_be_number =
        |byte: &u8| byte.is_ascii_digit() || b"+-.#&".contains(byte) || *byte >= 0x80;
    if !text.first().is_some_and(may_be_number) {
        return FieldValue::Absent;
    }
    let (is_negative, unsigned) = match text {
        [b'-', unsigned @ ..] => (true, unsigned),
        [b'+', unsigned @ ..] => (false, unsigned),
        unsigned => (false, unsigned),
    };
    if !is_negative && unsigned.len() == text.len() && unsigned.iter().all(u8::is_ascii_digit) {
        return match unsigned.iter().position(|byte| *byte != b'0') {
            Some(1..) | None if text.len() == UUID_DIGITS => FieldValue::Ambiguous,
            Some(first) => FieldValue::Single(unsigned[first..].into()),
            None => FieldValue::Single(b"0".as_slice().into()),
        };
    }
    if !unsigned.is_ascii() {
        let characters = std::str::from_utf8(unsigned).unwrap_or_default();
        let is_numeric = |c: char| c.is_numeric() || c.is_whitespace() || "_.#".contains(c);
        return match !characters.is_empty() && characters.chars().all(is_numeric) {
            true => FieldValue::Ambiguous,
            false => FieldValue::Absent,
        };
    }
    let is_hexadecimal = text.iter().all(u8::is_ascii_hexdigit);
    if text.len() == UUID_DIGITS && is_hexadecimal {
        return FieldValue::Absent;
    }
    // Spring drops blanks anywhere in a number, and a blank of a cookie may stand here as `+`.
    let mut previous = b' ';
    let mut is_kept = |byte: &u8| {
        let is_sign_of_exponent = b"eE".contains(&previous);
        previous = *byte;
        !byte.is_ascii_whitespace() && (*byte != b'+' || is_sign_of_exponent)
    };
    let unsigned: Vec<u8> = unsigned
        .iter()
        .copied()
        .filter(|byte| is_kept(byte))
        .collect();
    match parse_with_radix(&unsigned).or_else(|| parse_decimal(&unsigned)) {
        Some(digits) if is_negative && digits != b"0" => {
            FieldValue::Single([b"-", &digits[..]].concat().into())
        }
        Some(digits) => FieldValue::Single(digits.into()),
        None => FieldValue::Absent,
    }
}

/// The decimal digits of a number of at most 64 bits in another radix: `0x7`, `0o7`, `0b111`. Java also has `#7`, .NET `&h7`
/// and `#0x7`, and Ruby `0d7`.
fn parse_with_radix(text: &[u8]) -> Option<Vec<u8>> {
    let (radix, digits) = match text {
        [b'#', digits @ ..]
        | [b'&', b'h' | b'H', digits @ ..]
        | [b'0', b'x' | b'X', digits @ ..] => match digits {
            [b'0', b'x' | b'X', digits @ ..] => (16, digits),
            digits => (16, digits),
        },
        [b'0', b'd' | b'D', digits @ ..] => (10, digits),
        [b'0', b'o' | b'O', digits @ ..] => (8, digits),
        [b'0', b'b' | b'B', digits @ ..] => (2, digits),
        _ => return None,
    };
    let digits = std::str::from_utf8(digits).ok()?.replace('_', "");
    // The parser of the standard library takes a sign of its own.
    let digits =
        Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_alphanumeric()))?;
    Some(
        u64::from_str_radix(&digits, radix)
            .ok()?
            .to_string()
            .into_bytes(),
    )
}

/// The digits of a decimal number with or without a fraction and an exponent. JavaScript, PHP and SQLite round, so one that
/// rounds to a whole number counts as that. `None` if it does not, or if the exponent adds more than [`MAX_EXPONENT_ZEROS`].
fn parse_decimal(text: &[u8]) -> Option<Vec<u8>> {
    parse_exact_decimal(text).or_else(|| {
        let text = std::str::from_utf8(text).ok()?;
        let is_decimal = |byte: u8| byte.is_ascii_digit() || b".eE+-".contains(&byte);
        let has_fraction = text.contains(['.', 'e', 'E']) && text.bytes().all(is_decimal);
        let rounded: f64 = has_fraction.then(|| text.parse().ok())??;
        // Beyond 64 bits no server has an integer for it.
        let is_whole = rounded.fract() == 0.0 && rounded.abs() < u64::MAX as f64;
        is_whole.then(|| (rounded as u64).to_string().into_bytes())
    })
}

/// The digits of a whole decimal number, without rounding it. `None` as for [`parse_decimal`].
fn parse_exact_decimal(text: &[u8]) -> Option<Vec<u8>> {
    let (mantissa, exponent) = match text.iter().position(|byte| b"eE".contains(byte)) {
        Some(at) => (
            &text[..at],
            std::str::from_utf8(&text[at + 1..]).ok()?.parse().ok()?,
        ),
        None => (text, 0_i64),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => (&mantissa[..point], &mantissa[point + 1..]),
        None => (mantissa, &[][..]),
    };
    let is_digits = |part: &[u8]| {
        part.iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'_')
            && !part.starts_with(b"_")
            && !part.ends_with(b"_")
    };
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let without_underscores = |part: &[u8]| {
        part.iter()
            .copied()
            .filter(|byte| *byte != b'_')
            .collect::<Vec<_>>()
    };
    let (mut digits, fraction) = (without_underscores(whole), without_underscores(fraction));
    if digits.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits_before_point = i64::try_from(digits.len()).ok()?.checked_add(exponent)?;
    digits.extend(fraction);
    let Some(first) = digits.iter().position(|byte| *byte != b'0') else {
        return Some(b"0".to_vec());
    };
    let digits_before_point = usize::try_from(digits_before_point).ok()?;
    if digits_before_point > digits.len() + MAX_EXPONENT_ZEROS {
        return None;
    }
    if digits
        .iter()
        .skip(digits_before_point)
        .any(|byte| *byte != b'0')
    {
        return None;
    }
    digits.resize(digits_before_point, b'0');
    Some(digits.split_off(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let number = match parse(text.as_bytes()) {
            FieldValue::Absent => "none".into(),
            FieldValue::Ambiguous => "ambiguous".into(),
            FieldValue::Single(number) => String::from_utf8_lossy(&number).into_owned(),
        };
        assert_eq!(number, expected, "{text}");
    }

    #[test]
    fn a_number_has_one_spelling() {
        for same in ["7", "07", "0007", "+7", "+07", "0_7"] {
            check(same, "7");
        }
        for zero in ["0", "00", "-0", "+0", "0_0"] {
            check(zero, "0");
        }
        check("-007", "-7");
        check("1_000", "1000");
        check("10", "10");
        for same in [
            "7.",
            "7.0",
            "07.00",
            "7e0",
            "7E+0",
            "0.7e1",
            ".7e1",
            "70e-1",
            "0x7",
            "0X07",
            "#7",
            "0o7",
            "0b1_11",
            "0d7",
            "0D07",
            "&h7",
            "#0x7",
            "0x0x7",
            "0+7",
            "7.0000000000000000000001",
            "6.9999999999999999999",
            "69999999999999999999e-19",
            "0 7",
        ] {
            check(same, "7");
        }
        check("-7.0", "-7");
        check("-0.0", "0");
        check("0e99", "0");
        check("-1e-9223372036854775808", "0");
        check("1e3", "1000");
        check("1 000", "1000");
        check("1_0.0", "10");
        check("0xffffffffffffffff", "18446744073709551615");
        check("1e20", &format!("1{}", "0".repeat(20)));
        let long = "9".repeat(40);
        check(&format!("{long}.0"), &long);
        check(&format!("00{long}"), &long);
    }

    #[test]
    fn other_text_is_no_number() {
        for text in [
            "",
            "+",
            "-",
            "_7",
            "7_",
            "7x",
            "1.5",
            "7.05",
            "75e-1",
            "7-8",
            "\u{e9}7",
            "t0ken",
            ".",
            "#",
            "-.",
            "e7",
            "7e",
            "7e+",
            "1e21",
            "1e999999999999999999999",
            "1.2.3",
            "7._0",
            "0x",
            "0xg",
            "0b2",
            "0x10000000000000000",
            "+-7",
            "#-7",
            "&7",
            "7.0000001",
            "12345678123456781234567812345e01",
            "2026-11-26",
            "192.0.2.1",
        ] {
            check(text, "none");
        }
    }

    #[test]
    fn digits_of_other_scripts_are_ambiguous() {
        for text in [
            "\u{667}",
            "\u{ff17}",
            "1\u{667}",
            "+\u{96d}",
            "\u{1d7d5}",
            "7\u{2003}0",
            "\u{667}.0",
        ] {
            check(text, "ambiguous");
        }
    }

    #[test]
    fn zeros_in_front_make_a_uuid_ambiguous() {
        check(&format!("{:032}", 7), "ambiguous");
        check(&format!("{:031}", 7), "7");
        check(&format!("+{:031}", 7), "7");
        let digits = "12345678901234567890123456789012";
        check(digits, digits);
    }
}
