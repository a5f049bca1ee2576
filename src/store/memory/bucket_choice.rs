//! Computes which buckets a key may be in, from hashes of the key and from the number of buckets. Also hashes keys for the
//! sketch. Snapshots hold the indices of buckets and of the sketch's counters, so a change of these functions needs a new
//! format of snapshots.
//!
//! A tag is the part of a key that its entry keeps. Home and alternate buckets are described in [`super::bucket_table`].

/// Arbitrary constants that make the hashes of a tag differ. They are from the default secret of wyhash.
const SKETCH_SALT: u64 = 0x8ebc_6af0_9c88_c6e3;
const SKETCH_FACTOR: u64 = 0x5899_65cc_7537_4cc3;
const OTHER_BUCKET_FACTOR: u64 = 0xa076_1d64_78bd_642f;

/// Mixes two numbers by the two halves of their product, as wyhash does.
#[inline]
pub(super) fn folded_multiply(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product >> 64) as u64 ^ product as u64
}

/// The hash of a key for [`Sketch`](super::sketch::Sketch). It is made of the tag alone, so that it can be computed
/// from an entry.
pub(super) fn sketch_hash(tag: u64) -> u64 {
    folded_multiply(tag ^ SKETCH_SALT, SKETCH_FACTOR)
}

/// The index of the bucket for a hash. All hashes are divided into equal ranges, one for each bucket.
pub(super) fn bucket_of_hash(hash: u64, bucket_count: u32) -> u32 {
    ((u128::from(hash) * u128::from(bucket_count)) >> 64) as u32
}

/// The other of the two buckets of a tag: the alternate bucket for the home bucket, and the home bucket for the
/// alternate one. The sum of the two indices, modulo the number of buckets, depends on the tag alone.
pub(super) fn other_bucket(tag: u64, bucket_index: u32, bucket_count: u32) -> u32 {
    let index_sum = u64::from(bucket_of_hash(
        folded_multiply(tag, OTHER_BUCKET_FACTOR),
        bucket_count,
    ));
    let difference = index_sum + u64::from(bucket_count) - u64::from(bucket_index);
    // The difference is less than twice the count, so one subtraction replaces the modulo.
    let wrapped = difference.checked_sub(u64::from(bucket_count));
    wrapped.unwrap_or(difference) as u32
}

/// The home buckets that a key may have in a table of `new_count` buckets, if its home was `old_home` in a table of
/// `old_count`. There may be several, because the bucket's range of hashes is divided differently.
pub(super) fn possible_homes(
    old_home: u32,
    old_count: u32,
    new_count: u32,
) -> std::ops::RangeInclusive<u32> {
    let (old_home, old_count) = (u64::from(old_home), u64::from(old_count));
    let new_count = u64::from(new_count);
    let first_home = old_home * new_count / old_count;
    let last_home = ((old_home + 1) * new_count - 1) / old_count;
    first_home as u32..=last_home as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_bucket_and_few_others() {
        let mut hash = 7u64;
        for (old_count, new_count) in [
            (2, 3),
            (1_000, 1_000),
            (1_000, 4_000),
            (4_096, 1_024),
            (999, 7_001),
        ] {
            for _ in 0..2_000 {
                hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let homes = possible_homes(bucket_of_hash(hash, old_count), old_count, new_count);
                assert!(
                    homes.contains(&bucket_of_hash(hash, new_count)),
                    "{hash} of {old_count} in {new_count}"
                );
                assert!(*homes.end() < new_count);
                assert!(homes.count() as u32 <= new_count.div_ceil(old_count) + 1);
            }
        }
    }
}
