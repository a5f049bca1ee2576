//! The values of one series in consecutive buckets, and their packed form.
//!
//! A bucket has the sum of its seconds, and the least and the greatest value of a single second: an average alone would
//! lose every peak. How many seconds of a bucket were recorded is the same for all series, so the columns do not hold
//! it.

use super::bits::{BitReader, BitWriter};
use super::block;
use super::tier::Tier;

/// The most values of a block: five minutes of seconds.
pub(super) const BLOCK_LEN: usize = 300;

/// The values of a series. The three lists have one entry per bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The sum of all seconds of a bucket.
    pub sums: Vec<u64>,
    /// The least value of a recorded second; zero where no second was recorded.
    pub minima: Vec<u64>,
    /// The greatest value of a second.
    pub maxima: Vec<u64>,
}

/// A run of buckets to copy from one column to another.
#[derive(Clone, Copy)]
pub(super) struct BucketRun {
    /// The index of the first bucket in the source.
    pub(super) source: usize,
    /// The index of the first bucket in the target.
    pub(super) target: usize,
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

    /// Whether it has no buckets.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Whether all values are zero.
    pub fn is_zero(&self) -> bool {
        self.maxima.iter().all(|maximum| *maximum == 0)
    }

    /// Extends it with zeros, or cuts it, to this number of buckets.
    pub fn resize(&mut self, buckets: usize) {
        for list in [&mut self.sums, &mut self.minima, &mut self.maxima] {
            list.resize(buckets, 0);
        }
    }

    /// Overwrites a run of buckets with those of another column.
    pub(super) fn copy_run(&mut self, run: BucketRun, other: &Column) {
        let lists = [
            (&mut self.sums, &other.sums),
            (&mut self.minima, &other.minima),
            (&mut self.maxima, &other.maxima),
        ];
        for (to, from) in lists {
            let source = &from[run.source..run.source + run.count];
            to[run.target..run.target + run.count].copy_from_slice(source);
        }
    }

    /// Appends the buckets of a finer column, `ratio` of them as one. `covered` has the recorded seconds of each finer
    /// bucket.
    pub fn roll_up(&mut self, finer: &Column, covered: &[u32], ratio: usize) {
        for (index, covered) in covered.chunks(ratio).enumerate() {
            let buckets = index * ratio..index * ratio + covered.len();
            let sums = finer.sums[buckets.clone()].iter();
            let maxima = finer.maxima[buckets.clone()].iter();
            // A bucket without recorded seconds has no minimum.
            let recorded = buckets.zip(covered).filter(|(_, covered)| **covered > 0);
            let minima = recorded.map(|(bucket, _)| finer.minima[bucket]);
            self.sums
                .push(sums.fold(0, |sum, value| sum.saturating_add(*value)));
            self.minima.push(minima.min().unwrap_or(0));
            self.maxima.push(maxima.copied().max().unwrap_or(0));
        }
    }

    /// Packs the column. The fewer bits its values differ in, the shorter the result.
    pub(super) fn pack(&self, tier: Tier, covered: &[u32]) -> Vec<u8> {
        let mut packed = Vec::new();
        pack(&self.sums, &mut packed);
        if tier != Tier::Second {
            // Minima and maxima are near the average, so their distances from it take fewer bits.
            let average = |at: usize| self.sums[at] / u64::from(covered[at].max(1));
            let below: Vec<u64> = (0..self.len())
                .map(|at| average(at).wrapping_sub(self.minima[at]))
                .collect();
            let above: Vec<u64> = (0..self.len())
                .map(|at| self.maxima[at].wrapping_sub(average(at)))
                .collect();
            pack(&below, &mut packed);
            pack(&above, &mut packed);
        }
        packed
    }

    /// Unpacks a column; returns nothing if [`Column::pack`] cannot have made these bytes.
    pub(super) fn unpack(mut bytes: &[u8], tier: Tier, covered: &[u32]) -> Option<Column> {
        let mut unpack_list = || unpack(&mut bytes, covered.len());
        let sums = unpack_list()?;
        let column = if tier == Tier::Second {
            Column::from_seconds(sums)
        } else {
            let (mut minima, mut maxima) = (unpack_list()?, unpack_list()?);
            for (at, sum) in sums.iter().enumerate() {
                let average = sum / u64::from(covered[at].max(1));
                minima[at] = average.wrapping_sub(minima[at]);
                maxima[at] = average.wrapping_add(maxima[at]);
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

/// Packs a list in blocks, each of which begins at a whole byte.
pub(super) fn pack(values: &[u64], packed: &mut Vec<u8>) {
    for values in values.chunks(BLOCK_LEN) {
        let mut bits = BitWriter::default();
        block::encode(values, &mut bits);
        packed.extend(bits.finish());
    }
}

/// Unpacks `count` values, and leaves in `bytes` what follows them. Returns nothing if the bytes are no packed list.
pub(super) fn unpack(bytes: &mut &[u8], count: usize) -> Option<Vec<u64>> {
    let mut values = vec![0; count];
    for block in values.chunks_mut(BLOCK_LEN) {
        let mut bits = BitReader::new(bytes);
        if !block::decode(&mut bits, block) {
            return None;
        }
        *bytes = bits.following_bytes()?;
    }
    Some(values)
}
