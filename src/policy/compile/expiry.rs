//! Parses the time at which an entry of a file ends: a key, or a network of a list.

use std::time::Duration;

use time::format_description::well_known::{Iso8601, Rfc3339};
use time::{Date, OffsetDateTime, Time};

/// What to write for a time that cannot be parsed.
pub(super) const EXPIRY_HELP: &str =
    "write the last day, in UTC, as `2027-01-31`, or a time as `2027-01-31T12:00:00Z`";

/// The time since the Unix epoch at which an entry ends: the end of a day in UTC, or a time of RFC 3339 without its fraction
/// of a second. A time before the epoch becomes 0. `None` for another text.
pub(super) fn parse_expiry(text: &str) -> Option<Duration> {
    const SECONDS_PER_DAY: i64 = 86_400;
    let is_day = text.len() == "2027-01-31".len();
    let timestamp = match is_day {
        true => Date::parse(text, &Iso8601::DATE).ok().map(|day| {
            let midnight = OffsetDateTime::new_utc(day, Time::MIDNIGHT);
            midnight.unix_timestamp() + SECONDS_PER_DAY
        }),
        false => OffsetDateTime::parse(text, &Rfc3339)
            .ok()
            .map(OffsetDateTime::unix_timestamp),
    };
    timestamp.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}
