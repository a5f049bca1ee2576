//! The keys of a counter's buckets, and the exptime of items. Exptime is memcached's word for the number that says when an
//! item expires. Zero means never, and a number up to 30 days means seconds from now. A larger number is a date in
//! seconds since the Unix epoch.

use super::bucket_plan::Track;

/// The largest exptime that counts from now: 30 days. memcached reads larger numbers as dates.
const MAX_RELATIVE_EXPTIME_SECS: u64 = 30 * 86_400;
/// The last date that memcached accepts, in seconds since the Unix epoch.
const MAX_EXPIRY_DATE_SECS: u64 = i32::MAX as u64;
/// The exptime of an item that never expires.
pub(super) const NO_EXPIRY: u64 = 0;
/// Seconds that an item is kept longer than it counts, because memcached's clock ticks once a second and may lag.
const EXPTIME_SLACK_SECS: u64 = 2;

/// The key of a bucket. `prefix` is [`MemcachedClient::counter_prefix`](super::MemcachedClient::counter_prefix), and
/// `track_index` the index of the bucket's track in its plan.
pub(super) fn bucket_key(prefix: &str, track_index: usize, bucket_number: u64) -> String {
    format!("{prefix}:{track_index}.{bucket_number}")
}

/// The exptime of a bucket's item, which counts until [`Track::expiry`].
pub(super) fn bucket_exptime(track: &Track, bucket_number: u64, now_micros: u64) -> u64 {
    exptime_until(track.expiry(bucket_number), now_micros)
}

/// The exptime of an item that counts until `end_micros`. Both times are in microseconds since the Unix epoch. Returns
/// [`NO_EXPIRY`] where the item would expire after [`MAX_EXPIRY_DATE_SECS`].
pub(super) fn exptime_until(end_micros: u64, now_micros: u64) -> u64 {
    let seconds = end_micros
        .saturating_sub(now_micros)
        .div_ceil(1_000_000)
        .saturating_add(EXPTIME_SLACK_SECS);
    if seconds <= MAX_RELATIVE_EXPTIME_SECS {
        return seconds;
    }
    let date = seconds.saturating_add(now_micros / 1_000_000);
    if date > MAX_EXPIRY_DATE_SECS {
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
    fn distant_expiries_are_dates() {
        let now = 1_700_000_000 * 1_000_000;
        for (end, expected) in [
            (now, 2),
            (now + 1, 3),
            (now + 30 * DAY - 2_000_000, 30 * 86_400),
            (now + 30 * DAY, 1_700_000_000 + 30 * 86_400 + 2),
            (now + 20 * 365 * DAY, NO_EXPIRY),
        ] {
            assert_eq!(exptime_until(end, now), expected, "{}", end - now);
        }
    }
}
