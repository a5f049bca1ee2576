//! The hour that goes on, in memory: what of it is five minutes old is packed as it will be in its file.
//!
//! Bound: for each series 2,400 bytes for the last five minutes and at most about as much for those before.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::column::{BLOCK, Column, pack, unpack};
use super::journal::Second;
use super::segment::Writing;
use super::tier::Tier;

/// See the module.
#[derive(Clone, Debug)]
pub struct Hour {
    start: u64,
    covered: Vec<u32>,
    strips: BTreeMap<u32, Strip>,
}

/// One series of it.
#[derive(Clone, Debug, Default)]
struct Strip {
    packed: Vec<u8>,
    blocks: usize,
    /// Values behind the blocks; what is missing at the end is zero.
    rest: Vec<u64>,
}

impl Strip {
    /// Packs what comes before block number `block`.
    fn close(&mut self, block: usize) {
        while self.blocks < block {
            let count = self.rest.len().min(BLOCK);
            let mut values: Vec<u64> = self.rest.drain(..count).collect();
            values.resize(BLOCK, 0);
            pack(&values, &mut self.packed);
            self.blocks += 1;
        }
    }

    /// Unpacks block number `block` and those behind it: the clock went back, or two processes served at a time.
    fn reopen(&mut self, block: usize) {
        let mut bytes = &self.packed[..];
        let _ = unpack(&mut bytes, block * BLOCK);
        let length = self.packed.len() - bytes.len();
        let mut values = unpack(&mut bytes, (self.blocks - block) * BLOCK).unwrap_or_default();
        values.append(&mut self.rest);
        self.packed.truncate(length);
        self.rest = values;
        self.blocks = block;
    }

    fn add(&mut self, slot: usize, value: u64) {
        let block = slot / BLOCK;
        if block < self.blocks {
            self.reopen(block);
        }
        let at = slot - self.blocks * BLOCK;
        if self.rest.len() <= at {
            self.rest.resize(at + 1, 0);
        }
        self.rest[at] = self.rest[at].saturating_add(value);
        // What was reopened is packed again by the next newest second.
        if at + 1 == self.rest.len() {
            self.close(block);
        }
    }
}

impl Hour {
    /// An hour of which nothing is recorded yet. It begins at the second `start` since 1970.
    pub fn new(start: u64) -> Hour {
        Hour {
            start,
            covered: Vec::new(),
            strips: BTreeMap::new(),
        }
    }

    /// Its first second.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The second behind its last one.
    pub fn over(&self) -> u64 {
        self.start + Tier::Second.span()
    }

    /// The second behind the last one that was recorded.
    pub fn end(&self) -> u64 {
        self.start + self.covered.len() as u64
    }

    /// Which seconds were recorded, up to the last one.
    pub fn covered(&self) -> &[u32] {
        &self.covered
    }

    /// Adds what happened in a second, to what is known of it already. Whether it is one of this hour.
    pub fn add(&mut self, second: &Second) -> bool {
        let slot = second.at.wrapping_sub(self.start);
        if slot >= Tier::Second.span() {
            return false;
        }
        let slot = slot as usize;
        if self.covered.len() <= slot {
            self.covered.resize(slot + 1, 0);
        }
        self.covered[slot] = 1;
        for (series, value) in second.values.iter().filter(|(_, value)| *value > 0) {
            self.strips.entry(*series).or_default().add(slot, *value);
        }
        true
    }

    /// The series in which anything happened.
    pub fn series(&self) -> impl Iterator<Item = u32> {
        self.strips.keys().copied()
    }

    /// What a series did, up to the last second.
    pub fn column(&self, series: u32) -> Option<Column> {
        let strip = self.strips.get(&series)?;
        let mut bytes = &strip.packed[..];
        let mut values = unpack(&mut bytes, strip.blocks * BLOCK)?;
        values.extend(&strip.rest);
        values.resize(self.covered.len(), 0);
        Some(Column::of_seconds(values))
    }

    /// Writes it to a file, as a whole hour.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut covered = self.covered.clone();
        covered.resize(Tier::Second.slots(), 0);
        let mut out = Writing::new(path, Tier::Second, self.start, &covered)?;
        for (series, strip) in &self.strips {
            let mut strip = strip.clone();
            strip.close(Tier::Second.slots() / BLOCK);
            out.add_packed(*series, &strip.packed)?;
        }
        out.finish()
    }
}
