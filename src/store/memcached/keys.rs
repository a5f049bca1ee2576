//! The keys of a counter's buckets, and the times to live of items, as memcached reads them: seconds from now, or a date.

use super::plan::Track;

/// Longest time to live in seconds, 30 days; memcached takes larger numbers for dates.
const MAX_RELATIVE_TTL: u64 = 30 * 86_400;
/// The last date that memcached accepts, in seconds since the Unix epoch.
const MAX_EXPIRY_DATE: u64 = i32::MAX as u64;
/// The time to live of an item that never expires.
const NO_EXPIRY: u64 = 0;
/// Seconds that an item lives longer than it counts, because memcached's clock has whole seconds and may be slow.
const TTL_SLACK: u64 = 2;

/// The key of a bucket: `prefix` is the counter's, `track` the index of the bucket's track.
pub(super) fn bucket_key(prefix: &str, track: usize, bucket: u64) -> String {
    format!("{prefix}:{track}.{bucket}")
}

/// The time to live of a bucket, in memcached's form.
pub(super) fn bucket_ttl(track: &Track, bucket: u64, now: u64) -> u64 {
    ttl_until(track.expiry(bucket), now)
}

/// The time to live of an item that counts until `end`, in memcached's form; both times in microseconds.
pub(super) fn ttl_until(end: u64, now: u64) -> u64 {
    let seconds = end
        .saturating_sub(now)
        .div_ceil(1_000_000)
        .saturating_add(TTL_SLACK);
    if seconds <= MAX_RELATIVE_TTL {
        return seconds;
    }
    let date = seconds.saturating_add(now / 1_000_000);
    if date > MAX_EXPIRY_DATE {
        NO_EXPIRY
    } else {
        date
    }
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
            (now + 20 * 365 * DAY, NO_EXPIRY),
        ] {
            assert_eq!(ttl_until(end, now), life, "{}", end - now);
        }
    }
}
