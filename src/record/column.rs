//! What one series did in consecutive buckets, and how it is packed.
//!
//! A bucket has the sum of its seconds, and the least and the most of any one of them: an average alone would lose
//! every peak. The seconds that nobody recorded are the same for all series, so they are counted beside the columns.

use super::bits::{BitReader, BitWriter};
use super::block;
use super::tier::Tier;

/// Buckets of a block.
pub(super) const BLOCK: usize = 300;

/// See the module. All lists are as long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Of all seconds of a bucket.
    pub sums: Vec<u64>,
    /// Of the second that had least; zero where no second was recorded.
    pub least: Vec<u64>,
    /// Of the second that had most.
    pub most: Vec<u64>,
}

impl Column {
    /// Of seconds: each is its own least and most.
    pub fn of_seconds(values: Vec<u64>) -> Column {
        Column {
            least: values.clone(),
            most: values.clone(),
            sums: values,
        }
    }

    /// Buckets.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Whether it has no buckets.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Whether nothing ever happened.
    pub fn quiet(&self) -> bool {
        self.most.iter().all(|most| *most == 0)
    }

    /// Makes it `buckets` long, by buckets in which nothing happened.
    pub fn fill(&mut self, buckets: usize) {
        for list in [&mut self.sums, &mut self.least, &mut self.most] {
            list.resize(buckets, 0);
        }
    }

    /// Takes over `count` buckets of another from `skip` on, to the place `at`.
    pub(super) fn copy(&mut self, (skip, at, count): (usize, usize, usize), other: &Column) {
        let lists = [
            (&mut self.sums, &other.sums),
            (&mut self.least, &other.least),
            (&mut self.most, &other.most),
        ];
        for (to, from) in lists {
            to[at..at + count].copy_from_slice(&from[skip..skip + count]);
        }
    }

    /// Adds what `finer` did as further buckets, each of `ratio` of its.
    pub fn roll_up(&mut self, finer: &Column, covered: &[u32], ratio: usize) {
        for (at, seconds) in covered.chunks(ratio).enumerate() {
            let buckets = at * ratio..at * ratio + seconds.len();
            let seen = || {
                buckets
                    .clone()
                    .zip(seconds)
                    .filter(|(_, covered)| **covered > 0)
            };
            self.sums.push(
                finer.sums[buckets.clone()]
                    .iter()
                    .fold(0, |sum, value| sum.saturating_add(*value)),
            );
            self.least
                .push(seen().map(|(at, _)| finer.least[at]).min().unwrap_or(0));
            self.most.push(
                finer.most[buckets.clone()]
                    .iter()
                    .copied()
                    .max()
                    .unwrap_or(0),
            );
        }
    }

    /// In as few bytes as its spread asks for.
    pub(super) fn pack(&self, tier: Tier, covered: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        pack(&self.sums, &mut out);
        if tier != Tier::Second {
            // The least and the most are near the average.
            let average = |at: usize| self.sums[at] / u64::from(covered[at].max(1));
            let below: Vec<u64> = (0..self.len())
                .map(|at| average(at).wrapping_sub(self.least[at]))
                .collect();
            let above: Vec<u64> = (0..self.len())
                .map(|at| self.most[at].wrapping_sub(average(at)))
                .collect();
            pack(&below, &mut out);
            pack(&above, &mut out);
        }
        out
    }

    /// What was packed; nothing when it cannot have been.
    pub(super) fn unpack(bytes: &[u8], tier: Tier, covered: &[u32]) -> Option<Column> {
        let mut rest = bytes;
        let mut list = || unpack(&mut rest, covered.len());
        let sums = list()?;
        let column = if tier == Tier::Second {
            Column::of_seconds(sums)
        } else {
            let (mut least, mut most) = (list()?, list()?);
            for (at, sum) in sums.iter().enumerate() {
                let average = sum / u64::from(covered[at].max(1));
                least[at] = average.wrapping_sub(least[at]);
                most[at] = average.wrapping_add(most[at]);
            }
            Column { sums, least, most }
        };
        rest.is_empty().then_some(column)
    }
}

/// Blocks of a list, each from a whole byte on.
pub(super) fn pack(values: &[u64], out: &mut Vec<u8>) {
    for values in values.chunks(BLOCK) {
        let mut bits = BitWriter::default();
        block::encode(values, &mut bits);
        out.extend(bits.finish());
    }
}

/// Reads as many values as there were, and leaves what is behind them.
pub(super) fn unpack(bytes: &mut &[u8], count: usize) -> Option<Vec<u64>> {
    let mut values = vec![0; count];
    for block in values.chunks_mut(BLOCK) {
        let mut bits = BitReader::new(bytes);
        if !block::decode(&mut bits, block) {
            return None;
        }
        *bytes = bits.rest()?;
    }
    Some(values)
}
