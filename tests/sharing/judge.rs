//! Remembers what was admitted and holds every window against what may be in it.

use std::collections::BTreeMap;

use tollgate::base::clock::Nanos;

/// Clocks go faster than time by at most this, in millionths; a window is as long as the fastest of them says.
pub const DRIFT: u64 = 499;

/// One unit that was admitted.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// When it counted: at the store, or where it was decided.
    pub at: u64,
    pub gateway: usize,
    /// Decided without the store.
    pub alone: bool,
}

/// Units above a limit that may be in a window that ends from a time on, until another.
#[derive(Clone, Copy, Debug)]
struct Extra {
    from: u64,
    until: u64,
    units: u32,
}

/// What one key has been admitted.
#[derive(Debug)]
pub struct Track {
    pub name: String,
    /// Units and length of each window.
    pub windows: Vec<(u32, u64)>,
    units: Vec<Unit>,
    extras: Vec<Vec<Extra>>,
    /// What each gateway may admit alone by late answers, since when, for each window.
    late: BTreeMap<usize, Vec<(u64, Vec<u32>)>>,
    /// Most units above nothing in each window, and above what was allowed besides.
    pub worst: Vec<u32>,
    pub admitted: u64,
}

impl Track {
    pub fn new(name: String, windows: &[(u32, Nanos)]) -> Track {
        let shortened = |window: u64| window - window * DRIFT / 1_000_000 - 1;
        let windows: Vec<(u32, u64)> = windows.iter().map(|(n, w)| (*n, shortened(w.0))).collect();
        Track {
            name,
            extras: vec![Vec::new(); windows.len()],
            worst: vec![0; windows.len()],
            windows,
            units: Vec::new(),
            late: BTreeMap::new(),
            admitted: 0,
        }
    }

    fn longest(&self) -> u64 {
        self.windows.last().map_or(0, |(_, window)| *window)
    }

    /// Allows more in windows that end between two moments.
    pub fn allow(&mut self, window: usize, from: u64, until: u64, units: u32) {
        self.extras[window].push(Extra { from, until, units });
    }

    /// What is allowed without an end ends: two windows after `at`, and what it takes to find out.
    pub fn heal(&mut self, at: u64) {
        for (extras, (_, window)) in self.extras.iter_mut().zip(&self.windows) {
            for extra in extras.iter_mut().filter(|extra| extra.until == u64::MAX) {
                extra.until = at + 2 * window + 10_000_000_000;
            }
        }
    }

    /// A gateway may admit so much of each window by a late answer at `at`.
    pub fn allow_late(&mut self, gateway: usize, at: u64, units: Vec<u32>) {
        self.late.entry(gateway).or_default().push((at, units));
    }

    /// Notes a unit, and says which window holds too much.
    pub fn admit(&mut self, unit: Unit) -> Result<(), String> {
        self.admitted += 1;
        let place = self.units.partition_point(|other| other.at <= unit.at);
        self.units.insert(place, unit);
        for window in 0..self.windows.len() {
            for last in place..self.units.len() {
                if self.units[last].at >= unit.at + self.windows[window].1 {
                    break;
                }
                self.check(window, last)?;
            }
        }
        let old = unit.at.saturating_sub(3 * self.longest() + 120_000_000_000);
        if self.units.len() > 20_000 {
            self.units.retain(|unit| unit.at > old);
        }
        Ok(())
    }

    fn check(&mut self, window: usize, last: usize) -> Result<(), String> {
        let (quota, length) = self.windows[window];
        let end = self.units[last].at;
        let start = end.saturating_sub(length);
        let first = self.units.partition_point(|unit| unit.at <= start);
        let count = (last + 1 - first) as u32;
        self.worst[window] = self.worst[window].max(count);
        if count <= quota {
            return Ok(());
        }
        let inside = &self.units[first..=last];
        let counted = inside.iter().filter(|unit| !unit.alone).count() as u32;
        let extra = self.extras[window]
            .iter()
            .filter(|extra| (extra.from..extra.until).contains(&end))
            .map(|extra| extra.units)
            .sum::<u32>();
        let mut late = 0;
        for (gateway, list) in &self.late {
            let alone = |unit: &&Unit| unit.alone && unit.gateway == *gateway;
            let units = inside.iter().filter(alone).count() as u32;
            let recent = list.iter().filter(|(at, _)| *at >= start && *at <= end);
            let free = recent.map(|(_, free)| free[window]).max().unwrap_or(0);
            late += free.min(units);
        }
        if count <= quota + extra + late {
            return Ok(());
        }
        Err(format!(
            "{}: {count} in a window of {quota} ({counted} by the store), {extra} and {late} more allowed, at {} ms",
            self.name,
            end / 1_000_000
        ))
    }

    /// Units admitted between two moments.
    pub fn between(&self, from: u64, until: u64) -> usize {
        let inside = |unit: &&Unit| (from..until).contains(&unit.at);
        self.units.iter().filter(inside).count()
    }
}
