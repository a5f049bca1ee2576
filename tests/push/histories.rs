//! Random histories of a record, and a destination that is away, forgets to answer, and is sent to by processes that die:
//! in the end it has all that was counted, and never had more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tollgate::record::push::batch::{Batch, MAX_BATCH_SAMPLES};
use tollgate::record::push::cursor::Cursor;
use tollgate::record::push::progress::Progress;
use tollgate::record::{Record, Second, Series, SeriesKind, Settings};

const START: u64 = 1_700_006_400;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

fn open(folder: &Path, memory: bool) -> Record {
    let folder = (!memory).then(|| folder.join("record"));
    let settings = Settings {
        folder,
        max_bytes: 1 << 30,
    };
    Record::open(&settings).unwrap()
}

fn series(number: u64) -> Series {
    let (name, kind) = match number % 4 {
        0 => ("g", SeriesKind::Gauge),
        _ => ("n_total", SeriesKind::Counter),
    };
    Series {
        name: name.to_owned(),
        labels: vec![("of".to_owned(), number.to_string())],
        kind,
        decimals: 0,
    }
}

/// What a destination has.
#[derive(Default)]
struct Peer(BTreeMap<Series, BTreeMap<u64, u64>>);

impl Peer {
    fn take(&mut self, batch: &Batch) {
        let samples: usize = batch.rows.iter().map(|row| row.samples.len()).sum();
        assert!(samples <= 2 * MAX_BATCH_SAMPLES);
        for row in &batch.rows {
            let known = self.0.entry(row.series.clone()).or_default();
            for sample in &row.samples {
                assert!(sample.second <= batch.to);
                // Of what it has already it may be told more, never less.
                let before = known.insert(sample.second, sample.value).unwrap_or(0);
                let counts = row.series.kind == SeriesKind::Counter;
                assert!(
                    !counts || sample.value >= before,
                    "{:?} at {}",
                    row.series,
                    sample.second
                );
            }
        }
    }

    fn check(&self, counted: &BTreeMap<Series, u64>, exact: bool) {
        for (series, samples) in self
            .0
            .iter()
            .filter(|(series, _)| series.kind == SeriesKind::Counter)
        {
            let values: Vec<u64> = samples.values().copied().collect();
            let mut pairs = samples.iter().zip(samples.iter().skip(1));
            let back = pairs.find(|((_, before), (_, after))| before > after);
            assert_eq!(back, None, "{series:?}");
            let most = values.last().copied().unwrap_or(0);
            let sum = counted.get(series).copied().unwrap_or(0);
            assert!(most <= sum, "{series:?}: {most} of {sum}");
            assert!(!exact || most == sum, "{series:?}: {most} of {sum}");
        }
        if exact {
            let missing = counted.keys().find(|series| !self.0.contains_key(*series));
            assert_eq!(missing, None);
        }
    }
}

/// One gateway and one destination.
struct World {
    random: Random,
    folder: tempfile::TempDir,
    memory: bool,
    record: Record,
    now: u64,
    every: u64,
    progress: Option<Progress>,
    peer: Peer,
    counted: BTreeMap<Series, u64>,
}

impl World {
    fn new(seed: u64, memory: bool) -> World {
        let mut random = Random(seed);
        let folder = tempfile::tempdir().unwrap();
        let record = open(folder.path(), memory);
        let every = [1, 7, 15, 60, 3_600][random.below(5) as usize];
        World {
            random,
            folder,
            memory,
            record,
            now: START,
            every,
            progress: None,
            peer: Peer::default(),
            counted: BTreeMap::new(),
        }
    }

    /// Counts in a second, which may be over already.
    fn second(&mut self, at: u64) {
        let mut values = BTreeMap::new();
        for number in 0..6 {
            let series = series(number);
            let value = self.random.below(4);
            let Some(place) = self.record.number_of(&series) else {
                continue;
            };
            values.insert(place, value);
            if series.kind == SeriesKind::Counter {
                *self.counted.entry(series).or_default() += value;
            }
        }
        self.record.add(Second {
            at,
            values: values.into_iter().collect(),
        });
    }

    fn live(&mut self, seconds: u64, each: u64) {
        for _ in 0..seconds.div_ceil(each) {
            self.second(self.now);
            if self.random.one_in(20) {
                let back = self.random.below(90);
                self.second(self.now - back.min(self.now - START));
            }
            self.now += each;
            if each == 1 || self.now % 3_600 < each {
                self.record.write_pending().unwrap();
            }
        }
    }

    /// The process ends, and another begins with what is on the disk.
    fn restart(&mut self) {
        if self.memory {
            return;
        }
        self.record.close().unwrap();
        self.record = open(self.folder.path(), false);
        self.progress = None;
    }

    fn push(&mut self, last: bool) {
        let living: BTreeSet<Series> = (0..6).map(series).collect();
        let mut progress = match self.progress.take() {
            Some(progress) => progress,
            None => match Cursor::load(self.folder.path(), "peer").unwrap() {
                Some(cursor) => Progress::resume(cursor, &self.record).unwrap(),
                None => {
                    let progress = Progress::start(&self.record, START, self.every).unwrap();
                    progress.cursor.save(self.folder.path(), "peer").unwrap();
                    progress
                }
            },
        };
        let durable = self.record.durable_until();
        let until = if last {
            durable
        } else {
            durable - durable % self.every
        };
        while let Some(batch) = progress
            .next_batch(&self.record, self.every, until, &living)
            .unwrap()
        {
            assert!(batch.to > progress.cursor.delivered_until, "it goes on");
            progress.mark_attempted(&batch);
            progress.cursor.save(self.folder.path(), "peer").unwrap();
            self.peer.take(&batch);
            if !last && !self.memory && self.random.one_in(5) {
                // It died before it could say so.
                return;
            }
            progress.advance(batch, &self.record).unwrap();
            progress.cursor.save(self.folder.path(), "peer").unwrap();
        }
        self.progress = Some(progress);
    }

    fn end(mut self) {
        self.restart();
        self.now += 1;
        self.second(self.now);
        if !self.memory {
            self.record.close().unwrap();
        }
        self.push(true);
        self.peer.check(&self.counted, true);
    }
}

fn check(seed: u64, memory: bool) {
    println!("seed {seed}");
    let mut world = World::new(seed, memory);
    for _ in 0..40 {
        let seconds = world.random.below(200);
        world.live(seconds, 1);
        match world.random.below(8) {
            0 => world.restart(),
            1 => {
                // Nobody is there.
                let gap = [30, 4_000, 90_000][world.random.below(3) as usize];
                if !memory {
                    world.now += world.random.below(gap);
                }
            }
            2 => world.every = [1, 7, 15, 60, 3_600][world.random.below(5) as usize],
            _ => world.push(false),
        }
        world.peer.check(&world.counted, false);
    }
    world.end();
}

#[test]
fn nothing_is_lost_and_nothing_counted_twice() {
    for seed in 0..12 {
        check(seed, false);
    }
}

#[test]
fn in_memory_too() {
    for seed in 100..110 {
        check(seed, true);
    }
}

/// What is not kept by the second any more is known by the minute, and later by the hour.
#[test]
fn a_destination_that_was_away_for_long() {
    for (seed, days) in [(1, 8), (2, 92)] {
        let mut world = World::new(seed, false);
        world.every = 60;
        world.live(100, 1);
        world.push(false);
        let each = if days > 20 { 613 } else { 59 };
        world.live(days * 86_400, each);
        world.live(300, 1);
        world.push(false);
        world.peer.check(&world.counted, false);
        world.live(100, 1);
        world.restart();
        world.push(false);
        world.end();
    }
}

/// In memory a destination that is away for longer than that misses samples and no counts.
#[test]
fn memory_waits_for_nobody() {
    let mut world = World::new(7, true);
    world.every = 15;
    world.live(100, 1);
    world.push(false);
    for _ in 0..8 * 360 {
        world.live(10, 1);
        if let Some(progress) = &mut world.progress {
            progress.skip_dropped_hour(&world.record).unwrap();
        }
    }
    world.push(false);
    world.end();
}

/// Many series that are gone bound a batch as many that live do.
#[test]
fn a_batch_is_bounded_by_what_moved() {
    let folder = tempfile::tempdir().unwrap();
    let record = open(folder.path(), true);
    let numbers: Vec<u32> = (0..4_000)
        .map(|number| record.number_of(&series(number)).unwrap())
        .collect();
    for at in START..START + 100 {
        record.add(Second {
            at,
            values: numbers.iter().map(|number| (*number, 1)).collect(),
        });
    }
    let cursor = Cursor {
        delivered_until: START,
        counted_since: START,
        ..Cursor::default()
    };
    let mut progress = Progress::resume(cursor, &record).unwrap();
    let mut peer = Peer::default();
    let mut batches = 0;
    while let Some(batch) = progress
        .next_batch(&record, 1, START + 100, &BTreeSet::new())
        .unwrap()
    {
        peer.take(&batch);
        progress.advance(batch, &record).unwrap();
        batches += 1;
    }
    let counted = (0..4_000).map(|number| (series(number), 100));
    let counted = counted.filter(|(series, _)| series.kind == SeriesKind::Counter);
    peer.check(&counted.collect(), true);
    assert_eq!(batches, 100);
}
