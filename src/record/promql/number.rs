//! Numbers and spans of time as Prometheus reads and writes them.

/// Units of spans from the longest, in milliseconds.
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Longest span: beyond it sums with times could overflow.
const LONGEST: i64 = 200 * 365 * 86_400_000;

/// A span such as `5m` or `1h30m` in milliseconds: units from the longest, each once.
pub fn duration(text: &str) -> Option<i64> {
    let (mut rest, mut units, mut span) = (text, &UNITS[..], 0_i64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (count, behind) = rest.split_at(digits);
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, behind) = behind.split_at(letters);
        let place = units.iter().position(|(name, _)| *name == unit)?;
        let count: i64 = count.parse().ok()?;
        span = span.checked_add(count.checked_mul(units[place].1)?)?;
        (rest, units) = (behind, &units[place + 1..]);
    }
    (!text.is_empty() && span <= LONGEST).then_some(span)
}

/// A number literal: decimal, hexadecimal, octal behind a leading zero, with an exponent, `Inf` or `NaN`.
pub fn literal(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let whole = |digits: &str, base| u64::from_str_radix(digits, base).ok().map(|n| n as f64);
    if let Some(digits) = lower.strip_prefix("0x") {
        return whole(digits, 16);
    }
    let octal = lower.len() > 1 && lower.bytes().all(|b| matches!(b, b'0'..=b'7'));
    if octal && lower.starts_with('0') {
        return whole(&lower, 8);
    }
    match lower.as_str() {
        "inf" | "nan" => float(&lower),
        _ if lower.starts_with(|c: char| c.is_ascii_digit() || c == '.') => lower.parse().ok(),
        _ => None,
    }
}

/// A number as a label's value or a parameter has it.
pub fn float(text: &str) -> Option<f64> {
    let text = text.trim_start_matches('+');
    text.parse().ok()
}

/// As Go writes it with the format `f` and as few digits as tell it from its neighbours.
pub fn plain(value: f64) -> String {
    if value.is_nan() {
        String::from("NaN")
    } else if value.is_infinite() {
        String::from(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        format!("{value}")
    }
}

/// As values of samples are written: very large and very small ones with an exponent.
pub fn sample(value: f64) -> String {
    let size = value.abs();
    if !size.is_finite() || size == 0.0 || (1e-6..1e21).contains(&size) {
        return plain(value);
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

/// Milliseconds as seconds with up to three digits behind the point.
pub fn seconds(ms: i64) -> String {
    let (sign, size) = (if ms < 0 { "-" } else { "" }, ms.unsigned_abs());
    match size % 1_000 {
        0 => format!("{sign}{}", size / 1_000),
        part => format!("{sign}{}.{part:03}", size / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text, expected| assert_eq!(duration(text), expected, "{text}");
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
        let check = |text, expected| assert_eq!(literal(text), expected, "{text}");
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
    fn written() {
        let check = |value, expected: &str| assert_eq!(sample(value), expected);
        check(0.0, "0");
        check(2.5, "2.5");
        check(-1e20, "-100000000000000000000");
        check(1e21, "1e+21");
        check(1.5e-7, "1.5e-07");
        check(1e100, "1e+100");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        assert_eq!(plain(1e21), "1000000000000000000000");
        assert_eq!(seconds(1_001), "1.001");
        assert_eq!(seconds(-1_500), "-1.500");
        assert_eq!(seconds(4_000), "4");
    }
}
