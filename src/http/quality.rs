//! Quality values, by which clients say in `Accept` and `Accept-Encoding` what they prefer (RFC 9110 section 12.4.2).

/// The quality of what has no `q`, in thousandths.
pub const FULL_QUALITY: u16 = 1000;

/// Parses `0`, `1`, or either with up to three decimals, at most 1. The result is in thousandths; `None` if the value is
/// malformed.
pub fn parse_quality(value: &[u8]) -> Option<u16> {
    let [whole @ (b'0' | b'1'), rest @ ..] = value else {
        return None;
    };
    let decimals = match rest {
        [] => rest,
        [b'.', decimals @ ..] if decimals.len() <= 3 => decimals,
        _ => return None,
    };
    let mut quality = u16::from(whole - b'0') * FULL_QUALITY;
    let mut unit = FULL_QUALITY;
    for digit in decimals {
        unit /= 10;
        quality += u16::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?) * unit;
    }
    (quality <= FULL_QUALITY).then_some(quality)
}
