//! Parses times and durations of parameters, as Prometheus writes them.

use crate::limit::calendar::{day_from_civil, days_in_month};
use crate::record::promql::number;

/// Parses a moment, in seconds since 1970 or in RFC 3339, into milliseconds since 1970; `None` for any other text.
pub fn parse_moment_ms(text: &str) -> Option<i64> {
    match text.parse::<f64>() {
        Ok(seconds) => seconds_to_ms(seconds),
        Err(_) => parse_rfc3339_ms(text),
    }
}

/// Parses a duration, in seconds or such as `5m`, into milliseconds, which may be negative; `None` for any other text.
pub fn parse_step_ms(text: &str) -> Option<i64> {
    match text.parse::<f64>() {
        Ok(seconds) => seconds_to_ms(seconds),
        Err(_) => number::parse_duration_ms(text),
    }
}

/// The least number of milliseconds that is not accepted. It is a little below 2^53, up to which `f64` has all
/// integers.
const MAX_EXACT_MS: f64 = 9e15;

/// Seconds as whole milliseconds; `None` from [`MAX_EXACT_MS`] on.
fn seconds_to_ms(seconds: f64) -> Option<i64> {
    let time_ms = (seconds * 1_000.0).round();
    (time_ms.abs() < MAX_EXACT_MS).then_some(time_ms as i64)
}

/// Parses a time of RFC 3339 into milliseconds since 1970. Further digits of the fraction are cut off. `None` for any
/// other text, a leap second or the name of a zone.
fn parse_rfc3339_ms(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't'])?;
    let [year, month, day] = parse_numbers(date, '-', [4, 2, 2])?;
    let zone_start = time.find(['Z', 'z', '+', '-'])?;
    let (clock_time, zone) = time.split_at(zone_start);
    let (whole_time, fraction) = clock_time.split_once('.').unwrap_or((clock_time, "0"));
    let [hour, minute, second] = parse_numbers(whole_time, ':', [2, 2, 2])?;
    let is_valid = hour < 24 && minute < 60 && second < 60;
    if !is_valid || fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction_ms: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let days = days_since_epoch(year, month, day)?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some((seconds - parse_zone_seconds(zone)?) * 1_000 + fraction_ms)
}

/// Parses the zone of a time, `Z` or an offset, into the seconds by which it is ahead of UTC; `None` for any other text.
fn parse_zone_seconds(zone: &str) -> Option<i64> {
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return (zone.len() == 1).then_some(0),
    };
    let [hours, minutes] = parse_numbers(&zone[1..], ':', [2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Parses numbers that have a fixed count of digits each; `None` if there are more or fewer numbers or digits.
fn parse_numbers<const COUNT: usize>(
    text: &str,
    separator: char,
    digit_counts: [usize; COUNT],
) -> Option<[i64; COUNT]> {
    let mut numerals = text.split(separator);
    let mut numbers = [0; COUNT];
    for (number, digit_count) in numbers.iter_mut().zip(digit_counts) {
        let numeral = numerals.next()?;
        let has_only_digits = numeral.bytes().all(|byte| byte.is_ascii_digit());
        let is_valid = numeral.len() == digit_count && has_only_digits;
        *number = numeral.parse().ok().filter(|_| is_valid)?;
    }
    numerals.next().is_none().then_some(numbers)
}

/// The days from the beginning of 1970 to a date, in the Gregorian calendar; `None` if there is no such date.
fn days_since_epoch(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_date = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    is_date.then(|| day_from_civil(year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let check = |text, expected| assert_eq!(parse_moment_ms(text), expected, "{text}");
        check("4", Some(4_000));
        check("1700000000.1236", Some(1_700_000_000_124));
        check("-1.5", Some(-1_500));
        check("1970-01-01T00:00:00Z", Some(0));
        check("2023-11-14T22:13:20.5Z", Some(1_700_000_000_500));
        check("2023-11-15T00:13:20.1239+02:00", Some(1_700_000_000_123));
        check("2024-02-29T12:00:00-00:30", Some(1_709_209_800_000));
        check("1969-12-31T23:59:59Z", Some(-1_000));
        check("0001-01-01T00:00:00Z", Some(-62_135_596_800_000));
        check("2023-02-29T12:00:00Z", None);
        check("2023-13-01T12:00:00Z", None);
        check("2023-00-01T12:00:00Z", None);
        check("2023-11-14T24:00:00Z", None);
        check("2023-11-14T22:13:20", None);
        check("2023-11-14T22:13:20.Z", None);
        check("2023-11-14T22:13:20é", None);
        check("2023-11-14", None);
        check("1e300", None);
        check("NaN", None);
        check("", None);
        check("now", None);
    }

    #[test]
    fn steps() {
        let check = |text, expected| assert_eq!(parse_step_ms(text), expected, "{text}");
        check("15", Some(15_000));
        check("0.5", Some(500));
        check("1h30m", Some(5_400_000));
        check("500ms", Some(500));
        check("-1", Some(-1_000));
        check("x", None);
        check("", None);
    }
}
