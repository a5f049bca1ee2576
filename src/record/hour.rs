//! An hour in memory, to which seconds are added. The values of a series before its last block of five minutes are
//! packed, in the form of the hour's segment.
//!
//! Bound: the values of a series that are not packed take at most 2,400 bytes, and the packed ones usually no more. A
//! second that comes late may unpack the whole hour. That takes 28,800 bytes until the series gets a value at its end.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::column::{Column, MAX_BLOCK_VALUES, pack_values, unpack_values};
use super::journal::Second;
use super::segment::SegmentWriter;
use super::tier::Tier;

/// An hour of the record in memory.
#[derive(Clone, Debug)]
pub struct Hour {
    /// The first second of the hour, since 1970.
    start: u64,
    /// One entry for each second from the hour's first to the latest that was recorded: 1 if it was recorded, else 0.
    /// Segments hold the same list.
    covered_seconds: Vec<u32>,
    /// The values of each series, by its number in the record.
    series: BTreeMap<u32, HourSeries>,
}

/// The values of one series in an hour.
#[derive(Clone, Debug, Default)]
struct HourSeries {
    /// The first blocks of values, as [`pack_values`] packs them.
    packed: Vec<u8>,
    /// The number of blocks in `packed`.
    block_count: usize,
    /// The values after the packed blocks, up to the series' latest value above zero. Later values are zero.
    unpacked: Vec<u64>,
}

impl HourSeries {
    /// Packs all values before block `block_index`. Values that `unpacked` lacks are packed as zeros.
    fn pack_before(&mut self, block_index: usize) {
        while self.block_count < block_index {
            let value_count = self.unpacked.len().min(MAX_BLOCK_VALUES);
            let mut block_values: Vec<u64> = self.unpacked.drain(..value_count).collect();
            block_values.resize(MAX_BLOCK_VALUES, 0);
            pack_values(&block_values, &mut self.packed);
            self.block_count += 1;
        }
    }

    /// Unpacks block `block_index` and later ones, to add values to them. This happens when the clock went back, or
    /// when an old process served beside a new one.
    fn unpack_from(&mut self, block_index: usize) {
        let mut later_blocks = &self.packed[..];
        // The values before `block_index` are not needed: this only finds where they end. `pack_values` wrote all
        // blocks, so neither call fails.
        let _ = unpack_values(&mut later_blocks, block_index * MAX_BLOCK_VALUES);
        let packed_before = self.packed.len() - later_blocks.len();
        let mut values = unpack_values(
            &mut later_blocks,
            (self.block_count - block_index) * MAX_BLOCK_VALUES,
        )
        .unwrap_or_default();
        values.append(&mut self.unpacked);
        self.packed.truncate(packed_before);
        self.unpacked = values;
        self.block_count = block_index;
    }

    /// Adds `value`, which is above zero, to the second with this index in the hour.
    fn add(&mut self, second_index: usize, value: u64) {
        let block_index = second_index / MAX_BLOCK_VALUES;
        if block_index < self.block_count {
            self.unpack_from(block_index);
        }
        let unpacked_index = second_index - self.block_count * MAX_BLOCK_VALUES;
        if self.unpacked.len() <= unpacked_index {
            self.unpacked.resize(unpacked_index + 1, 0);
        }
        self.unpacked[unpacked_index] = self.unpacked[unpacked_index].saturating_add(value);
        // The value is the latest of the series. This packs all blocks before it, also those that a late second has
        // unpacked.
        if unpacked_index + 1 == self.unpacked.len() {
            self.pack_before(block_index);
        }
    }
}

impl Hour {
    /// Makes an empty hour that begins at the second `start` since 1970.
    pub fn new(start: u64) -> Hour {
        Hour {
            start,
            covered_seconds: Vec::new(),
            series: BTreeMap::new(),
        }
    }

    /// The first second of the hour, since 1970.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The first second of the next hour.
    pub fn next_hour(&self) -> u64 {
        self.start + Tier::Second.file_seconds()
    }

    /// The second after the latest that was recorded; the start of an empty hour.
    pub fn end(&self) -> u64 {
        self.start + self.covered_seconds.len() as u64
    }

    /// One entry for each second from the hour's first to the latest that was recorded: 1 if it was recorded, else 0.
    pub fn covered_seconds(&self) -> &[u32] {
        &self.covered_seconds
    }

    /// Adds the values of a second to its values so far. Returns false, and adds nothing, if the second is not in this
    /// hour.
    pub fn add(&mut self, second: &Second) -> bool {
        let second_index = second.at.wrapping_sub(self.start);
        if second_index >= Tier::Second.file_seconds() {
            return false;
        }
        let second_index = second_index as usize;
        if self.covered_seconds.len() <= second_index {
            self.covered_seconds.resize(second_index + 1, 0);
        }
        self.covered_seconds[second_index] = 1;
        for (series_number, value) in second.values.iter().filter(|(_, value)| *value > 0) {
            self.series
                .entry(*series_number)
                .or_default()
                .add(second_index, *value);
        }
        true
    }

    /// The numbers of the series that have values above zero.
    pub fn series_numbers(&self) -> impl Iterator<Item = u32> {
        self.series.keys().copied()
    }

    /// The values of a series up to the latest second that was recorded. `None` if all are zero, or if the packed ones
    /// cannot be read.
    pub fn column(&self, series_number: u32) -> Option<Column> {
        let hour_series = self.series.get(&series_number)?;
        let mut bytes = &hour_series.packed[..];
        let mut values = unpack_values(&mut bytes, hour_series.block_count * MAX_BLOCK_VALUES)?;
        values.extend(&hour_series.unpacked);
        values.resize(self.covered_seconds.len(), 0);
        Some(Column::from_seconds(values))
    }

    /// Writes a segment of the whole hour to a new file. Seconds that were not recorded are zero in it.
    ///
    /// # Errors
    ///
    /// Fails if the file exists or the disk fails.
    pub fn write_segment(&self, path: &Path) -> io::Result<()> {
        let mut covered_seconds = self.covered_seconds.clone();
        covered_seconds.resize(Tier::Second.file_bucket_count(), 0);
        let mut segment = SegmentWriter::new(path, Tier::Second, self.start, &covered_seconds)?;
        for (series_number, hour_series) in &self.series {
            let mut whole_hour = hour_series.clone();
            whole_hour.pack_before(Tier::Second.file_bucket_count() / MAX_BLOCK_VALUES);
            segment.add_packed(*series_number, &whole_hour.packed)?;
        }
        segment.finish()
    }
}
