//! Parses times and steps of parameters.

use crate::record::promql::number;

/// Parses a moment, in seconds since 1970 or in RFC 3339, into milliseconds since 1970.
pub fn parse_moment(text: &str) -> Option<i64> {
    match text.parse::<f64>() {
        Ok(seconds) => to_milliseconds(seconds),
        Err(_) => parse_rfc3339(text),
    }
}

/// Parses a span, in seconds or such as `5m`, into milliseconds.
pub fn parse_step(text: &str) -> Option<i64> {
    match text.parse::<f64>() {
        Ok(seconds) => to_milliseconds(seconds),
        Err(_) => number::parse_duration(text),
    }
}

fn to_milliseconds(seconds: f64) -> Option<i64> {
    let ms = (seconds * 1_000.0).round();
    // Integers are exact in `f64` up to here.
    (ms.abs() < 9e15).then_some(ms as i64)
}

/// Parses a time of RFC 3339 into milliseconds since 1970. It has neither leap seconds nor names of zones.
fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't'])?;
    let [year, month, day] = parse_numbers(date, '-', [4, 2, 2])?;
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = parse_numbers(time, ':', [2, 2, 2])?;
    let is_valid = hour < 24 && minute < 60 && second < 60;
    if !is_valid || fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let ms: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let days = days_since_epoch(year, month, day)?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some((seconds - parse_zone(zone)?) * 1_000 + ms)
}

/// Parses the zone of a time into the seconds by which it is ahead of UTC.
fn parse_zone(zone: &str) -> Option<i64> {
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return (zone.len() == 1).then_some(0),
    };
    let [hours, minutes] = parse_numbers(&zone[1..], ':', [2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Parses numbers that have a fixed count of digits each.
fn parse_numbers<const COUNT: usize>(
    text: &str,
    separator: char,
    digits: [usize; COUNT],
) -> Option<[i64; COUNT]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; COUNT];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_plain)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// The days from the beginning of 1970 to a date, in the Gregorian calendar; `None` if there is no such date.
fn days_since_epoch(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_lengths = [
        31,
        28 + i64::from(is_leap_year),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let months_before = month_lengths.get(..usize::try_from(month).ok()?.checked_sub(1)?)?;
    let length = *month_lengths.get(months_before.len())?;
    if !(1..=length).contains(&day) {
        return None;
    }
    let years = year - 1;
    let leaps = |years: i64| years / 4 - years / 100 + years / 400;
    let begun = (year - 1_970) * 365 + leaps(years) - leaps(1_969);
    Some(begun + months_before.iter().sum::<i64>() + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let check = |text, expected| assert_eq!(parse_moment(text), expected, "{text}");
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
        let check = |text, expected| assert_eq!(parse_step(text), expected, "{text}");
        check("15", Some(15_000));
        check("0.5", Some(500));
        check("1h30m", Some(5_400_000));
        check("500ms", Some(500));
        check("-1", Some(-1_000));
        check("x", None);
        check("", None);
    }
}
