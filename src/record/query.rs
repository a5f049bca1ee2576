//! Queries of an open record.

use std::collections::BTreeMap;
use std::io;

use super::range::{self, Grid, RangeResult};
use super::tier::Tier;
use super::write::{HOURS, Record};

impl Record {
    /// The second behind the last one that is recorded.
    pub fn end(&self) -> u64 {
        let memory = self.memory.lock();
        memory.hours.last().map_or(0, |hour| hour.end())
    }

    /// The second behind the one that was added last: before [`Record::end`] when the clock has gone back.
    pub fn reached(&self) -> u64 {
        self.memory.lock().now + 1
    }

    /// The second behind the last one that no crash takes back any more: of the machine where there is a folder, else of
    /// nothing that this process outlives.
    pub fn durable(&self) -> u64 {
        match self.disk {
            Some(_) => self.memory.lock().durable,
            None => self.end(),
        }
    }

    /// Nothing is added any more to seconds before this one, where it has a folder. In memory it is nothing but the last
    /// two hours that may change.
    pub fn settled(&self) -> u64 {
        let memory = self.memory.lock();
        let before = memory.hours.len().checked_sub(2);
        match (&self.disk, before) {
            (None, Some(before)) => memory.hours[before].start(),
            _ => memory.floor,
        }
    }

    /// Where it is in memory, the second before which it is forgotten next; nothing while that is not near.
    pub fn leaving(&self) -> Option<u64> {
        let memory = self.memory.lock();
        let near = self.disk.is_none() && memory.hours.len() == HOURS;
        near.then(|| memory.hours[0].over())
    }

    /// How often something was added to a second that was not the last. While this stays the same, so does what was read
    /// of seconds that were over.
    pub fn late(&self) -> u64 {
        self.memory.lock().late
    }

    /// The finest step that is kept as far back as a second, or as there is anything.
    pub fn finest(&self, from: u64) -> io::Result<Tier> {
        let memory = self.memory.lock().hours.first().map(|hour| hour.start());
        if memory.is_some_and(|start| start <= from) {
            return Ok(Tier::Second);
        }
        let kept = self.kept(from)?;
        Ok(Tier::ALL
            .into_iter()
            .find(|tier| kept(*tier))
            .unwrap_or(Tier::Second))
    }

    /// The first second of which anything is known.
    pub fn oldest(&self) -> io::Result<Option<u64>> {
        let oldest = self.oldest_of_each()?;
        Ok(oldest.into_iter().flatten().min())
    }

    /// The finest grid with at most `most` buckets between two seconds, as far back as there is anything.
    pub fn grid(&self, from: u64, to: u64, most: usize) -> io::Result<Grid> {
        Ok(Grid::new(from, to, most, self.kept(from)?))
    }

    /// Since when each tier knows anything.
    pub fn oldest_of_each(&self) -> io::Result<[Option<u64>; Tier::ALL.len()]> {
        let mut oldest = [None; Tier::ALL.len()];
        if let Some(disk) = &self.disk {
            for (tier, oldest) in Tier::ALL.into_iter().zip(&mut oldest) {
                *oldest = disk.folder.oldest(tier)?;
            }
        }
        let seconds = self.memory.lock().hours.first().map(|hour| hour.start());
        oldest[0] = oldest[0].or(seconds);
        Ok(oldest)
    }

    /// Whether a tier is kept as far back as a second, or as there is anything.
    fn kept(&self, from: u64) -> io::Result<impl Fn(Tier) -> bool + use<>> {
        let oldest = self.oldest_of_each()?;
        Ok(move |tier: Tier| {
            let own = oldest[tier as usize];
            let mut coarser = Tier::ALL.into_iter().zip(oldest).skip(tier as usize + 1);
            own.is_some_and(|own| from >= own)
                || !coarser.any(|(coarser, oldest)| match (own, oldest) {
                    (Some(own), Some(oldest)) => oldest + coarser.step() <= own,
                    (own, oldest) => own.is_none() && oldest.is_some(),
                })
        })
    }

    /// The sums of all that series did before a second, the first of a [`Grid`] or a multiple of a step.
    pub fn total(&self, until: u64, series: &[u32]) -> io::Result<BTreeMap<u32, u64>> {
        let hours = self.memory.lock().hours.clone();
        let folder = self.disk.as_ref().map(|disk| &disk.folder);
        range::total(folder, &hours, until, series)
    }

    /// What series did on a grid.
    pub fn read(&self, grid: &Grid, series: &[u32]) -> io::Result<RangeResult> {
        let hours = self.memory.lock().hours.clone();
        let folder = self.disk.as_ref().map(|disk| &disk.folder);
        range::read(folder, &hours, grid, series)
    }
}
