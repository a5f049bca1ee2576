//! An hour in memory, to which seconds are added. All but the last five minutes are packed as they will be in the
//! hour's file.
//!
//! Bound: for each series 2,400 bytes for the last five minutes, and usually no more for the packed ones.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::column::{BLOCK_LEN, Column, pack, unpack};
use super::journal::Second;
use super::segment::SegmentWriter;
use super::tier::Tier;

/// An hour of the record in memory.
#[derive(Clone, Debug)]
pub struct Hour {
    start: u64,
    /// For each second up to the last recorded one, 1 if it was recorded and else 0.
    covered: Vec<u32>,
    /// By the numbers of the series.
    series: BTreeMap<u32, PackedSeries>,
}

/// The values of one series.
#[derive(Clone, Debug, Default)]
struct PackedSeries {
    packed: Vec<u8>,
    /// The number of blocks in `packed`.
    blocks: usize,
    /// The values after the packed blocks; those missing at the end are zero.
    unpacked: Vec<u64>,
}

impl PackedSeries {
    /// Packs all values before block number `block`.
    fn pack_before(&mut self, block: usize) {
        while self.blocks < block {
            let count = self.unpacked.len().min(BLOCK_LEN);
            let mut values: Vec<u64> = self.unpacked.drain(..count).collect();
            values.resize(BLOCK_LEN, 0);
            pack(&values, &mut self.packed);
            self.blocks += 1;
        }
    }

    /// Unpacks block number `block` and later ones. It is needed when the clock went back, or when two processes served
    /// at once.
    fn unpack_from(&mut self, block: usize) {
        let mut bytes = &self.packed[..];
        let _ = unpack(&mut bytes, block * BLOCK_LEN);
        let length = self.packed.len() - bytes.len();
        let mut values = unpack(&mut bytes, (self.blocks - block) * BLOCK_LEN).unwrap_or_default();
        values.append(&mut self.unpacked);
        self.packed.truncate(length);
        self.unpacked = values;
        self.blocks = block;
    }

    fn add(&mut self, slot: usize, value: u64) {
        let block = slot / BLOCK_LEN;
        if block < self.blocks {
            self.unpack_from(block);
        }
        let at = slot - self.blocks * BLOCK_LEN;
        if self.unpacked.len() <= at {
            self.unpacked.resize(at + 1, 0);
        }
        self.unpacked[at] = self.unpacked[at].saturating_add(value);
        // Blocks that were unpacked for a late second are packed again with the next newest one.
        if at + 1 == self.unpacked.len() {
            self.pack_before(block);
        }
    }
}

impl Hour {
    /// Makes an empty hour that begins at the second `start` since 1970.
    pub fn new(start: u64) -> Hour {
        Hour {
            start,
            covered: Vec::new(),
            series: BTreeMap::new(),
        }
    }

    /// Its first second.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The first second of the next hour.
    pub fn next_hour(&self) -> u64 {
        self.start + Tier::Second.file_span()
    }

    /// The second after the last recorded one.
    pub fn end(&self) -> u64 {
        self.start + self.covered.len() as u64
    }

    /// For each second up to the last recorded one, 1 if it was recorded and else 0.
    pub fn covered(&self) -> &[u32] {
        &self.covered
    }

    /// Adds the values of a second to those that it has already. Returns whether the second is one of this hour.
    pub fn add(&mut self, second: &Second) -> bool {
        let slot = second.at.wrapping_sub(self.start);
        if slot >= Tier::Second.file_span() {
            return false;
        }
        let slot = slot as usize;
        if self.covered.len() <= slot {
            self.covered.resize(slot + 1, 0);
        }
        self.covered[slot] = 1;
        for (series, value) in second.values.iter().filter(|(_, value)| *value > 0) {
            self.series.entry(*series).or_default().add(slot, *value);
        }
        true
    }

    /// The numbers of the series that have values above zero.
    pub fn series(&self) -> impl Iterator<Item = u32> {
        self.series.keys().copied()
    }

    /// The values of a series up to the last recorded second; nothing if all are zero.
    pub fn column(&self, series: u32) -> Option<Column> {
        let series = self.series.get(&series)?;
        let mut bytes = &series.packed[..];
        let mut values = unpack(&mut bytes, series.blocks * BLOCK_LEN)?;
        values.extend(&series.unpacked);
        values.resize(self.covered.len(), 0);
        Some(Column::from_seconds(values))
    }

    /// Writes a segment of the whole hour to a new file. Seconds that are not over yet are zero in it.
    ///
    /// # Errors
    ///
    /// Fails if the file exists or the disk fails.
    pub fn write_segment(&self, path: &Path) -> io::Result<()> {
        let mut covered = self.covered.clone();
        covered.resize(Tier::Second.file_buckets(), 0);
        let mut segment = SegmentWriter::new(path, Tier::Second, self.start, &covered)?;
        for (number, series) in &self.series {
            let mut series = series.clone();
            series.pack_before(Tier::Second.file_buckets() / BLOCK_LEN);
            segment.add_packed(*number, &series.packed)?;
        }
        segment.finish()
    }
}
