//! The keys of a counter's buckets, and how long their items live.

use super::plan::Track;

/// Longest time to live in seconds, 30 days; memcached takes larger numbers for dates.
const LONGEST_SPAN: u64 = 30 * 86_400;
/// The last date that memcached accepts.
const LAST_DATE: u64 = i32::MAX as u64;
/// The time to live of an item that never expires.
const NEVER: u64 = 0;
/// Seconds that an item lives longer than it counts, because memcached's clock has whole seconds and may be slow.
const SLACK: u64 = 2;

pub(super) fn bucket_key(name: &str, track: usize, bucket: u64) -> String {
    format!("{name}:{track}.{bucket}")
}

/// The time to live of a bucket, in memcached's form.
pub(super) fn life_of(track: &Track, bucket: u64, now: u64) -> u64 {
    life_until(track.ends(bucket), now)
}

/// The time to live of an item that counts until `end`, in memcached's form; both times in microseconds.
pub(super) fn life_until(end: u64, now: u64) -> u64 {
    let seconds = end
        .saturating_sub(now)
        .div_ceil(1_000_000)
        .saturating_add(SLACK);
    if seconds <= LONGEST_SPAN {
        return seconds;
    }
    let date = seconds.saturating_add(now / 1_000_000);
    if date > LAST_DATE { NEVER } else { date }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400 * 1_000_000;

    #[test]
    fn long_lives_are_dates() {
        let now = 1_700_000_000 * 1_000_000;
        for (end, life) in [
            (now, 2),
            (now + 1, 3),
            (now + 30 * DAY - 2_000_000, 30 * 86_400),
            (now + 30 * DAY, 1_700_000_000 + 30 * 86_400 + 2),
            (now + 20 * 365 * DAY, NEVER),
        ] {
            assert_eq!(life_until(end, now), life, "{}", end - now);
        }
    }
}
