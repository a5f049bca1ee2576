//! Queries of an open record: which seconds it has, which of them may still change, and the values of series. Nothing
//! here writes, but a segment that proves to be damaged when it is read is set aside.

use std::collections::BTreeMap;
use std::io;

use super::open_record::{MAX_HOURS, Record};
use super::range::{self, Grid, RangeResult};
use super::tier::Tier;

impl Record {
    /// The second after the latest one in memory; 0 if no hour is in memory.
    pub fn end(&self) -> u64 {
        let memory = self.memory.lock();
        memory.hours.last().map_or(0, |hour| hour.end())
    }

    /// The second after the one that was added last; 1 if this process has added none. It is before [`Record::end`]
    /// when the clock has gone back.
    pub fn last_second_end(&self) -> u64 {
        self.memory.lock().last_second + 1
    }

    /// The end of the seconds that survive a crash of the machine. No second of a record in memory survives one, so
    /// there it is [`Record::end`].
    pub fn durable_until(&self) -> u64 {
        match self.disk {
            Some(_) => self.memory.lock().durable_until,
            None => self.end(),
        }
    }

    /// The end of the seconds to which nothing is added any more. In a record in memory, that is the start of the last
    /// hour but one, or 0 with fewer hours: only a clock that goes back by more than an hour could add to earlier
    /// seconds.
    pub fn final_until(&self) -> u64 {
        let memory = self.memory.lock();
        let second_to_last = memory.hours.len().checked_sub(2);
        match (&self.disk, second_to_last) {
            (None, Some(index)) => memory.hours[index].start(),
            _ => memory.sealed_until,
        }
    }

    /// The end of the hour that a record in memory will drop next; `None` while there is room for another hour, and for
    /// a record on the disk.
    pub fn next_dropped_until(&self) -> Option<u64> {
        let memory = self.memory.lock();
        let is_full = self.disk.is_none() && memory.hours.len() == MAX_HOURS;
        is_full.then(|| memory.hours[0].next_hour())
    }

    /// How often a second was added that was not after all seconds in memory. While the count stays the same, results
    /// for finished seconds stay valid.
    pub fn late_addition_count(&self) -> u64 {
        self.memory.lock().late_addition_count
    }

    /// The finest tier that reaches back to the second `from`, or as far as any other tier. Fails if the disk does.
    pub fn finest_tier(&self, from: u64) -> io::Result<Tier> {
        let memory_start = self.memory.lock().hours.first().map(|hour| hour.start());
        if memory_start.is_some_and(|start| start <= from) {
            return Ok(Tier::Second);
        }
        let reaches_back = self.reach_predicate(from)?;
        Ok(Tier::ALL
            .into_iter()
            .find(|tier| reaches_back(*tier))
            .unwrap_or(Tier::Second))
    }

    /// The start of the oldest bucket that is still kept; `None` for an empty record. Without segments it is the start
    /// of the first hour in memory. The first recorded second may be later in that bucket or hour. Fails if the disk
    /// does.
    pub fn oldest_second(&self) -> io::Result<Option<u64>> {
        let oldest_by_tier = self.oldest_by_tier()?;
        Ok(oldest_by_tier.into_iter().flatten().min())
    }

    /// Returns the finest grid from the second `from` to before `to` that has at most `max_buckets`, and for which the
    /// record reaches back. See [`Grid::new`]. Fails if the disk does.
    pub fn finest_grid(&self, from: u64, to: u64, max_buckets: usize) -> io::Result<Grid> {
        Ok(Grid::new(
            from,
            to,
            max_buckets,
            self.reach_predicate(from)?,
        ))
    }

    /// The start of the oldest bucket of each tier that has recorded seconds, in the order of [`Tier::ALL`]; `None` if
    /// none has. The tier of seconds without a segment begins with the first hour in memory. Fails if the disk does.
    pub fn oldest_by_tier(&self) -> io::Result<[Option<u64>; Tier::ALL.len()]> {
        let mut oldest_by_tier = [None; Tier::ALL.len()];
        if let Some(disk) = &self.disk {
            for (tier, oldest_second) in Tier::ALL.into_iter().zip(&mut oldest_by_tier) {
                *oldest_second = disk.folder.oldest_recorded_second(tier)?;
            }
        }
        let memory_start = self.memory.lock().hours.first().map(|hour| hour.start());
        // The hours in memory have seconds, the finest tier.
        oldest_by_tier[0] = oldest_by_tier[0].or(memory_start);
        Ok(oldest_by_tier)
    }

    /// Returns a predicate: whether a tier reaches back to the second `from`, or as far as any coarser one.
    fn reach_predicate(&self, from: u64) -> io::Result<impl Fn(Tier) -> bool + use<>> {
        let oldest_by_tier = self.oldest_by_tier()?;
        Ok(move |tier: Tier| {
            let own_oldest = oldest_by_tier[tier as usize];
            let tiers = Tier::ALL.into_iter().zip(oldest_by_tier);
            let mut coarser_tiers = tiers.skip(tier as usize + 1);
            own_oldest.is_some_and(|own_oldest| from >= own_oldest)
                // A coarser bucket may begin before the seconds that it is made of.
                || !coarser_tiers.any(|(coarser, coarser_oldest)| {
                    match (own_oldest, coarser_oldest) {
                        (Some(own_oldest), Some(coarser_oldest)) => {
                            coarser_oldest + coarser.step_seconds() <= own_oldest
                        }
                        (own_oldest, coarser_oldest) => {
                            own_oldest.is_none() && coarser_oldest.is_some()
                        }
                    }
                })
        })
    }

    /// Sums each series over all seconds before `until`, by the numbers of the series. Series whose sum is zero are
    /// missing. The second `until` must be the start of a [`Grid`] or a multiple of the finest step that reaches back
    /// to it. Fails if the disk does.
    pub fn totals_before(
        &self,
        until: u64,
        series_numbers: &[u32],
    ) -> io::Result<BTreeMap<u32, u64>> {
        let hours = self.memory.lock().hours.clone();
        let folder = self.disk.as_ref().map(|disk| &disk.folder);
        range::totals_before(folder, &hours, until, series_numbers)
    }

    /// Reads series, by their numbers, on a grid. The hours in memory are shared first, so that reading the disk delays
    /// no addition. Fails if the disk does.
    pub fn read(&self, grid: &Grid, series_numbers: &[u32]) -> io::Result<RangeResult> {
        let hours = self.memory.lock().hours.clone();
        let folder = self.disk.as_ref().map(|disk| &disk.folder);
        range::read_range(folder, &hours, grid, series_numbers)
    }
}
