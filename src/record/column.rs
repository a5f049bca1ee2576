//! The values of one series in consecutive buckets, and their packed form.
//!
//! A bucket has the sum of its seconds, and the least and the greatest value of a single second: an average alone would
//! lose every peak. How many seconds of a bucket were recorded is the same for all series. So segments and hours hold
//! that, and columns do not.

use super::bits::{BitReader, BitWriter};
use super::block;
use super::tier::Tier;

/// The most values of a block: five minutes of seconds. Only the last block of a list may have fewer.
pub(super) const MAX_BLOCK_VALUES: usize = 300;

/// The values of a series. The three lists have one entry per bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The sum of all recorded seconds of a bucket; the greatest `u64` if the sum overflows.
    pub sums: Vec<u64>,
    /// The least value of a recorded second; zero where no second was recorded.
    pub minima: Vec<u64>,
    /// The greatest value of a recorded second; zero where no second was recorded.
    pub maxima: Vec<u64>,
}

/// A run of buckets to copy from one column to another.
#[derive(Clone, Copy)]
pub(super) struct BucketRun {
    /// The index of the first bucket in the source.
    pub(super) source_index: usize,
    /// The index of the first bucket in the target.
    pub(super) target_index: usize,
    /// The number of buckets.
    pub(super) count: usize,
}

impl Column {
    /// Makes a column of seconds, where each value is also its own minimum and maximum.
    pub fn from_seconds(values: Vec<u64>) -> Column {
        Column {
            minima: values.clone(),
            maxima: values.clone(),
            sums: values,
        }
    }

    /// The number of buckets.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Whether the column has no buckets.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Whether all values are zero.
    pub fn is_zero(&self) -> bool {
        self.maxima.iter().all(|maximum| *maximum == 0)
    }

    /// Extends the column with zeros, or cuts it, to this number of buckets.
    pub fn resize(&mut self, bucket_count: usize) {
        for list in [&mut self.sums, &mut self.minima, &mut self.maxima] {
            list.resize(bucket_count, 0);
        }
    }

    /// Overwrites a run of buckets with those of `source`. Panics if either column does not have the whole run.
    pub(super) fn copy_run(&mut self, run: BucketRun, source: &Column) {
        let lists = [
            (&mut self.sums, &source.sums),
            (&mut self.minima, &source.minima),
            (&mut self.maxima, &source.maxima),
        ];
        for (target_list, source_list) in lists {
            let source_run = &source_list[run.source_index..run.source_index + run.count];
            target_list[run.target_index..run.target_index + run.count].copy_from_slice(source_run);
        }
    }

    /// Appends the buckets of a finer column, every `ratio` of them as one; the last may be made of fewer.
    /// `covered_seconds` has the number of recorded seconds in each finer bucket.
    pub fn roll_up(&mut self, finer: &Column, covered_seconds: &[u32], ratio: usize) {
        for (index, covered_seconds) in covered_seconds.chunks(ratio).enumerate() {
            let first_bucket = index * ratio;
            let buckets = first_bucket..first_bucket + covered_seconds.len();
            let sums = finer.sums[buckets.clone()].iter();
            let maxima = finer.maxima[buckets.clone()].iter();
            // A bucket without recorded seconds has no minimum.
            let recorded_buckets = buckets
                .zip(covered_seconds)
                .filter(|(_, seconds)| **seconds > 0);
            let minima = recorded_buckets.map(|(bucket, _)| finer.minima[bucket]);
            self.sums
                .push(sums.fold(0, |sum, value| sum.saturating_add(*value)));
            self.minima.push(minima.min().unwrap_or(0));
            self.maxima.push(maxima.copied().max().unwrap_or(0));
        }
    }

    /// Packs the column: its sums and, except in the tier of seconds, its minima and maxima. `covered_seconds` has the
    /// number of recorded seconds in each bucket.
    pub(super) fn pack(&self, tier: Tier, covered_seconds: &[u32]) -> Vec<u8> {
        let mut packed = Vec::new();
        pack_values(&self.sums, &mut packed);
        if tier != Tier::Second {
            // Minima and maxima are near the average, so their distances from it take fewer bits.
            let average =
                |bucket: usize| self.sums[bucket] / u64::from(covered_seconds[bucket].max(1));
            let below: Vec<u64> = (0..self.len())
                .map(|bucket| average(bucket).wrapping_sub(self.minima[bucket]))
                .collect();
            let above: Vec<u64> = (0..self.len())
                .map(|bucket| self.maxima[bucket].wrapping_sub(average(bucket)))
                .collect();
            pack_values(&below, &mut packed);
            pack_values(&above, &mut packed);
        }
        packed
    }

    /// Unpacks a column of as many buckets as `covered_seconds` has. Returns `None` if [`Column::pack`] cannot have
    /// made these bytes.
    pub(super) fn unpack(mut bytes: &[u8], tier: Tier, covered_seconds: &[u32]) -> Option<Column> {
        let mut unpack_list = || unpack_values(&mut bytes, covered_seconds.len());
        let sums = unpack_list()?;
        let column = if tier == Tier::Second {
            Column::from_seconds(sums)
        } else {
            let (mut minima, mut maxima) = (unpack_list()?, unpack_list()?);
            for (bucket, sum) in sums.iter().enumerate() {
                let average = sum / u64::from(covered_seconds[bucket].max(1));
                minima[bucket] = average.wrapping_sub(minima[bucket]);
                maxima[bucket] = average.wrapping_add(maxima[bucket]);
            }
            Column {
                sums,
                minima,
                maxima,
            }
        };
        bytes.is_empty().then_some(column)
    }
}

/// Appends a list to `packed`, in blocks of [`MAX_BLOCK_VALUES`] that each begin at a whole byte.
pub(super) fn pack_values(values: &[u64], packed: &mut Vec<u8>) {
    for block_values in values.chunks(MAX_BLOCK_VALUES) {
        let mut bits = BitWriter::default();
        block::encode_block(block_values, &mut bits);
        packed.extend(bits.finish());
    }
}

/// Unpacks `count` values, and leaves in `bytes` what follows them. Returns `None` if the bytes are no packed list.
pub(super) fn unpack_values(bytes: &mut &[u8], count: usize) -> Option<Vec<u64>> {
    let mut values = vec![0; count];
    for block_values in values.chunks_mut(MAX_BLOCK_VALUES) {
        let mut bits = BitReader::new(bytes);
        if !block::decode_block(&mut bits, block_values) {
            return None;
        }
        *bytes = bits.following_bytes()?;
    }
    Some(values)
}
