//! Parses times and steps of parameters.

use crate::record::promql::number;

/// Milliseconds since 1970, from seconds or from a time in RFC 3339.
pub fn moment(text: &str) -> Option<i64> {
    match text.parse::<f64>() {
        Ok(seconds) => milliseconds(seconds),
        Err(_) => rfc3339(text),
    }
}

/// Milliseconds, from seconds or from a span such as `5m`.
pub fn step(text: &str) -> Option<i64> {
    match text.parse::<f64>() {
        Ok(seconds) => milliseconds(seconds),
        Err(_) => number::duration(text),
    }
}

fn milliseconds(seconds: f64) -> Option<i64> {
    let ms = (seconds * 1_000.0).round();
    // Integers are exact in `f64` up to here.
    (ms.abs() < 9e15).then_some(ms as i64)
}

fn rfc3339(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't'])?;
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = fields(time, ':', [2, 2, 2])?;
    let fine = hour < 24 && minute < 60 && second < 60;
    if !fine || fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let ms: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let seconds = days(year, month, day)? * 86_400 + hour * 3_600 + minute * 60 + second;
    Some((seconds - offset(zone)?) * 1_000 + ms)
}

/// Seconds by which a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return (zone.len() == 1).then_some(0),
    };
    let [hours, minutes] = fields(&zone[1..], ':', [2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Numbers with a fixed count of digits each.
fn fields<const COUNT: usize>(
    text: &str,
    between: char,
    digits: [usize; COUNT],
) -> Option<[i64; COUNT]> {
    let mut parts = text.split(between);
    let mut found = [0; COUNT];
    for (field, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *field = part.parse().ok().filter(|_| plain)?;
    }
    parts.next().is_none().then_some(found)
}

/// Days since 1970.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [
        31,
        28 + i64::from(leap),
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
    let before = lengths.get(..usize::try_from(month).ok()?.checked_sub(1)?)?;
    let length = *lengths.get(before.len())?;
    if !(1..=length).contains(&day) {
        return None;
    }
    let years = year - 1;
    let leaps = |years: i64| years / 4 - years / 100 + years / 400;
    let begun = (year - 1_970) * 365 + leaps(years) - leaps(1_969);
    Some(begun + before.iter().sum::<i64>() + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let check = |text, expected| assert_eq!(moment(text), expected, "{text}");
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
        let check = |text, expected| assert_eq!(step(text), expected, "{text}");
        check("15", Some(15_000));
        check("0.5", Some(500));
        check("1h30m", Some(5_400_000));
        check("500ms", Some(500));
        check("-1", Some(-1_000));
        check("x", None);
        check("", None);
    }
}
