//! Which buckets a key may be in: pure functions of its tag and the size of the table.

/// Mixes two numbers.
#[inline]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide >> 64) as u64 ^ wide as u64
}

/// What the sketch hashes: the tag is all that an entry keeps of its key.
pub(super) fn hashed(tag: u64) -> u64 {
    fold(tag ^ 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3)
}

/// The bucket of a hash.
pub(super) fn scale(hash: u64, count: u32) -> u32 {
    ((u128::from(hash) * u128::from(count)) >> 64) as u32
}

/// The other bucket of a tag: an involution, so that an entry knows where it came from.
pub(super) fn partner(tag: u64, bucket: u32, count: u32) -> u32 {
    let sum = u64::from(scale(fold(tag, 0xa076_1d64_78bd_642f), count));
    let other = sum + u64::from(count) - u64::from(bucket);
    // Less than twice the count: no division.
    (other.checked_sub(u64::from(count)).unwrap_or(other)) as u32
}

/// The first buckets in a table of `now` that a key may have whose first bucket of `before` was `home`:
/// a range of hashes shares a bucket, and it is cut otherwise there.
pub(super) fn range(home: u32, before: u32, now: u32) -> std::ops::RangeInclusive<u32> {
    let (home, before, now) = (u64::from(home), u64::from(before), u64::from(now));
    let first = home * now / before;
    let last = ((home + 1) * now - 1) / before;
    first as u32..=last as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_bucket_and_few_others() {
        let mut hash = 7u64;
        for (before, now) in [
            (2, 3),
            (1_000, 1_000),
            (1_000, 4_000),
            (4_096, 1_024),
            (999, 7_001),
        ] {
            for _ in 0..2_000 {
                hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let range = range(scale(hash, before), before, now);
                assert!(
                    range.contains(&scale(hash, now)),
                    "{hash} of {before} in {now}"
                );
                assert!(*range.end() < now && range.count() as u32 <= now.div_ceil(before) + 1);
            }
        }
    }
}
