//! Numbers of units as texts state them: in header fields, and in JSON as numbers or strings.

/// Parses a number of units as `f64` does (`1e3`), with blanks around it, rounded up. Large numbers and infinity become
/// `u32::MAX`. `None` for NaN, for a negative number and for other texts.
pub fn parse_units(text: &[u8]) -> Option<u32> {
    parse_units_from(0.0, text)
}

/// Parses a number of units as [`parse_units`] does. `None` for numbers below `min`.
pub fn parse_units_from(min: f64, text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let number: f64 = text.parse().ok()?;
    // The cast saturates.
    (number >= min).then(|| number.ceil() as u32)
}

/// Parses a number of units that every reader reads alike: digits, perhaps with a sign before them and a fraction after
/// them. `None` for numbers below zero, and for numbers with an exponent, before which some readers end.
pub fn parse_plain_units(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii();
    let without_sign = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+"));
    let mut parts = without_sign.unwrap_or(text).splitn(2, |byte| *byte == b'.');
    let is_plain = parts.all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    parse_units(text).filter(|_| is_plain)
}
