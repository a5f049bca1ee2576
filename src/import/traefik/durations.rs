//! Durations as Traefik and Go write them: `1m30s`, `500ms`, or a plain number of seconds.

/// The nanoseconds of a duration; `None` for a text that is none, for a negative one, and beyond about 500 years.
pub fn parse_nanos(text: &str) -> Option<u64> {
    // Some parsers read a number that begins with a zero as octal.
    if text.len() > 1 && text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1_000_000_000);
    }
    let mut rest = text;
    let mut total = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .filter(|end| *end > 0)?;
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        // Longer units come first where one begins another.
        let units = [
            ("ns", 1),
            ("us", 1_000),
            ("µs", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000),
        ];
        let (unit, nanos) = units.into_iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = rest.get(unit.len()..)?;
        total = total.checked_add(number.checked_mul(nanos)?)?;
    }
    Some(total)
}

/// A duration as policies write it, in whole milliseconds at least.
pub fn duration_text(nanos: u64) -> String {
    let millis = nanos / 1_000_000;
    match millis.is_multiple_of(1_000) {
        true => format!("{}s", millis / 1_000),
        false => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go() {
        for (text, nanos) in [
            ("1", Some(1_000_000_000)),
            ("500ms", Some(500_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("2h", Some(7_200_000_000_000)),
            ("", None),
            ("1d", None),
            ("-1s", None),
            ("s", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_nanos(text), nanos, "{text}");
        }
    }
}
