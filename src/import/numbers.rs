//! What readers of formats compute with weights and rates.

/// The greatest common divisor; that of 0 and a number is the number.
pub fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
