//! Reads and writes numbers and durations in the forms of Prometheus. The admin API uses these forms too.

/// The units of durations, each with its milliseconds, the longest first.
const DURATION_UNITS_MS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// The longest duration, 200 years. Sums of such durations and of times cannot overflow.
const MAX_DURATION_MS: i64 = 200 * 365 * 86_400_000;

/// Parses a duration such as `5m` or `1h30m` into milliseconds. Returns `None` for any other text, and above
/// [`MAX_DURATION_MS`]. The units must be in descending order, each at most once.
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    let mut remaining_text = text;
    let mut smaller_units = &DURATION_UNITS_MS[..];
    let mut total_ms = 0_i64;
    while !remaining_text.is_empty() {
        let digit_count = remaining_text
            .bytes()
            .take_while(u8::is_ascii_digit)
            .count();
        let (digits, after_digits) = remaining_text.split_at(digit_count);
        let letters = after_digits.bytes().take_while(u8::is_ascii_alphabetic);
        let (unit, after_unit) = after_digits.split_at(letters.count());
        let unit_index = smaller_units.iter().position(|(name, _)| *name == unit)?;
        let (_, unit_ms) = smaller_units[unit_index];
        let count: i64 = digits.parse().ok()?;
        total_ms = total_ms.checked_add(count.checked_mul(unit_ms)?)?;
        remaining_text = after_unit;
        smaller_units = &smaller_units[unit_index + 1..];
    }
    (!text.is_empty() && total_ms <= MAX_DURATION_MS).then_some(total_ms)
}

/// Parses a number literal without a sign: decimal with or without an exponent, hexadecimal, octal after a leading
/// zero, or `Inf` and `NaN` in any case. Returns `None` for any other text.
pub fn parse_literal(text: &str) -> Option<f64> {
    let lowercase = text.to_ascii_lowercase();
    let parse_integer = |digits: &str, base| {
        u64::from_str_radix(digits, base)
            .ok()
            .map(|number| number as f64)
    };
    if let Some(digits) = lowercase.strip_prefix("0x") {
        return parse_integer(digits, 16);
    }
    let has_octal_digits = lowercase.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    if lowercase.len() > 1 && has_octal_digits && lowercase.starts_with('0') {
        return parse_integer(&lowercase, 8);
    }
    match lowercase.as_str() {
        "inf" | "nan" => parse_float(&lowercase),
        _ if lowercase.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            lowercase.parse().ok()
        }
        _ => None,
    }
}

/// Parses a number in the value of a label or a parameter: decimal, also with a sign or an exponent, or `Inf`,
/// `Infinity` and `NaN` in any case. Returns `None` for any other text.
pub fn parse_float(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Writes a number as Go does with the format `f`: without an exponent, in the fewest digits that identify it. The
/// infinite numbers are `+Inf` and `-Inf`.
pub fn format_plain(value: f64) -> String {
    if value.is_nan() {
        String::from("NaN")
    } else if value.is_infinite() {
        String::from(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        format!("{value}")
    }
}

/// Writes the value of a sample. A value other than 0 has an exponent if its magnitude is at least 1e21 or below 1e-6,
/// as in the API of Prometheus.
pub fn format_sample(value: f64) -> String {
    let magnitude = value.abs();
    if !magnitude.is_finite() || magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return format_plain(value);
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    // An exponent has a sign and at least two digits, as in Go.
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

/// Writes milliseconds as seconds: without decimals if they are whole seconds, and otherwise with three.
pub fn format_ms_as_seconds(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let magnitude_ms = ms.unsigned_abs();
    match magnitude_ms % 1_000 {
        0 => format!("{sign}{}", magnitude_ms / 1_000),
        fraction_ms => format!("{sign}{}.{fraction_ms:03}", magnitude_ms / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text, expected| assert_eq!(parse_duration_ms(text), expected, "{text}");
        check("5m", Some(300_000));
        check("1h30m", Some(5_400_000));
        check("1y2w3d4h5m6s7ms", Some(33_019_506_007));
        check("0s", Some(0));
        check("30m1h", None);
        check("1m1m", None);
        check("5", None);
        check("m", None);
        check("", None);
        check("5x", None);
        check("99999999999999999999s", None);
        check("9999y", None);
    }

    #[test]
    fn literals() {
        let check = |text, expected| assert_eq!(parse_literal(text), expected, "{text}");
        check("1", Some(1.0));
        check(".5", Some(0.5));
        check("5.", Some(5.0));
        check("1e-3", Some(0.001));
        check("0x1F", Some(31.0));
        check("017", Some(15.0));
        check("09", Some(9.0));
        check("Inf", Some(f64::INFINITY));
        check("1x", None);
        check("", None);
        check("infinity", None);
    }

    #[test]
    fn numbers_as_text() {
        let check = |value, expected: &str| assert_eq!(format_sample(value), expected);
        check(0.0, "0");
        check(2.5, "2.5");
        check(-1e20, "-100000000000000000000");
        check(1e21, "1e+21");
        check(1.5e-7, "1.5e-07");
        check(1e100, "1e+100");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        assert_eq!(format_plain(1e21), "1000000000000000000000");
        assert_eq!(format_ms_as_seconds(1_001), "1.001");
        assert_eq!(format_ms_as_seconds(-1_500), "-1.500");
        assert_eq!(format_ms_as_seconds(4_000), "4");
    }
}
