//! Numbers of units as texts state them.

/// Parses a number of units, rounded up; large numbers saturate. None if it is not a number or below zero.
pub fn units(text: &[u8]) -> Option<u32> {
    units_from(0.0, text)
}

/// [`units`] with another lower bound; none for numbers below `least`.
pub fn units_from(least: f64, text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let number: f64 = text.parse().ok()?;
    // The cast saturates.
    (number >= least).then(|| number.ceil() as u32)
}
