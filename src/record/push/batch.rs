//! What is to be sent next: of the seconds that a destination does not have, the oldest ones, in steps.
//!
//! A counter is sent as all that was ever counted. That is what was known of it at [`Cursor::base_at`], behind which nothing
//! changes any more, and what the record says of the seconds since then. So whatever was sent, lost, sent again, or added to a
//! second that was sent already, the next sample has all of it once.
//!
//! What a batch says is noted before it is sent ([`Cursor::trying`]). A process may find a batch noted and not know
//! whether it arrived. It sends those seconds again, and no later ones with them, if they would say the same: then,
//! and only then, an answer
//! that they are known already counts as delivered. If something was added to those seconds meanwhile, it goes on behind
//! them: an engine that has two values of a second may take the step between them for a counter that began anew. What was
//! noted and never sent loses samples in this way, but no counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use super::cursor::Cursor;
use super::row::{Row, TimedValue, families, stack};
use crate::record::{Grid, Kind, RangeResult, Record, Series, Tier};

/// Most samples of a request.
pub const MOST_SAMPLES: usize = 5_000;
/// Most seconds of a batch that are read one by one, unless a step is longer; and most of those that are not.
const MOST_SECONDS: u64 = 900;
const MOST_LONGER: u64 = 86_400;
/// Most buckets of gauges that are read at a time, unless a single one has more.
const MOST_READ: usize = 1 << 17;
/// Seconds for which a record is new.
const FRESH: u64 = 60;
/// Hours in which the end of a gap is looked for at a time.
const GAP: u64 = 24 * 366;

const HOUR: u64 = Tier::Hour.step();
const DAY: u64 = Tier::Day.step();

/// How far a destination has got, and what need not be read again.
#[derive(Debug)]
pub struct Progress {
    /// What outlives the process.
    pub cursor: Cursor,
    /// What was counted before the cursor, if that is still so.
    totals: Option<Totals>,
    /// Series may begin at the cursor: nobody has sent anything of that second.
    begin: bool,
}

#[derive(Debug)]
struct Totals {
    /// [`Record::late`] when they were read.
    late: u64,
    counted: HashMap<u32, u64>,
}

/// What is sent in one go, and where that leads to.
#[derive(Debug)]
pub struct Batch {
    /// Samples; none where nothing was recorded.
    pub rows: Vec<Row>,
    /// The first second of a sample.
    pub from: u64,
    /// The last.
    pub to: u64,
    sent: Vec<(u32, u64)>,
    totals: Option<Totals>,
}

/// A counter that is sent, at the beginning of a batch and at the end of each step.
struct Counter<'a> {
    number: u32,
    series: &'a Series,
    told: bool,
    values: Vec<u64>,
}

/// All that is pushed: not what is only a sum of others, which engines make themselves.
fn series(record: &Record) -> Vec<(Series, u32)> {
    let mut all = record.series();
    all.retain(|(series, _)| !series.name.contains(':'));
    all
}

impl Progress {
    /// Of a destination that has got nothing yet: it begins now, with all that was counted before.
    pub fn begin(record: &Record, now: u64, every: u64) -> io::Result<Progress> {
        let oldest = record.oldest()?.unwrap_or(now);
        let first = match record.folder().is_some() {
            // Of a record that has just begun nothing is left out.
            true if oldest + FRESH >= now => oldest.min(now),
            true => now,
            // A process before may have ended in this second.
            false => now + 1,
        };
        let at = first - first % every;
        let cursor = Cursor {
            at,
            begun: oldest.min(at),
            ..Cursor::default()
        };
        let mut progress = Progress {
            cursor,
            totals: None,
            begin: record.folder().is_some(),
        };
        progress.settle(record)?;
        Ok(progress)
    }

    /// Of one that goes on where another process has ended.
    pub fn resume(cursor: Cursor, record: &Record) -> io::Result<Progress> {
        let mut progress = Progress {
            cursor,
            totals: None,
            begin: true,
        };
        let cursor = &progress.cursor;
        if cursor.trying > cursor.at {
            let all = series(record);
            let counters = all.iter().map(|(series, number)| (series, *number));
            let counters = counters.filter(|(series, _)| series.kind == Kind::Counter);
            let tier = finest(record, cursor.trying)?;
            let counters: Vec<_> = counters.collect();
            let counted = progress.count(record, cursor.trying, tier, &counters)?;
            let same = cursor.counts.iter().all(|(number, count)| {
                let now = counted.get(number).copied().unwrap_or(0).max(count.sent);
                count.trying.is_none_or(|trying| trying == now)
            });
            if !same {
                progress.arrived(cursor.trying);
            }
        }
        Ok(progress)
    }

    /// Notes that a batch is on its way.
    pub fn try_out(&mut self, batch: &Batch) {
        self.cursor.trying = batch.to;
        for (number, value) in &batch.sent {
            let count = self.cursor.counts.entry(*number).or_default();
            count.trying = Some(*value);
        }
    }

    /// What was on its way is there, or is taken for that.
    fn arrived(&mut self, to: u64) {
        self.cursor.at = self.cursor.at.max(to);
        for count in self.cursor.counts.values_mut() {
            if let Some(trying) = count.trying.take() {
                (count.sent, count.told) = (trying.max(count.sent), true);
            }
        }
    }

    /// What is next, of the seconds before `until`; nothing if that is no later than the cursor.
    pub fn next(
        &self,
        record: &Record,
        every: u64,
        until: u64,
        living: &BTreeSet<Series>,
    ) -> io::Result<Option<Batch>> {
        if until <= self.cursor.at {
            return Ok(None);
        }
        let late = record.late();
        let all = series(record);
        let (span, moved) = self.span(record, &all, every, until, living.len())?;
        let Span { grid, tier, .. } = span;
        let from = grid.from;
        let (counters, gauges): (Vec<_>, Vec<_>) = all
            .iter()
            .map(|(series, number)| (series, *number))
            .partition(|(series, _)| series.kind == Kind::Counter);
        let known = self.totals.as_ref();
        let known = known.filter(|known| known.late == late && self.cursor.at == from);
        let before;
        let totals = match known {
            Some(known) => &known.counted,
            None => {
                before = self.count(record, from, tier, &counters)?;
                &before
            }
        };
        let moving = counters.iter().filter(|(_, number)| moved.contains(number));
        let moving: Vec<_> = moving.copied().collect();
        let found = record.read(&grid, &numbers(&moving))?;
        if found.covered.iter().all(|covered| *covered == 0) {
            return self.gap(record, &span).map(Some);
        }
        let (counters, ended) = self.counters(&counters, totals, &found, living);
        let mut batch = Batch {
            rows: span.gauges(record, &gauges, &moved, living)?,
            from,
            to: span.end(grid.buckets - 1),
            sent: Vec::new(),
            // Steps that are not exact, and one that is not over, are counted anew.
            totals: (tier == Tier::Second && grid.to() <= until).then_some(Totals {
                late,
                counted: ended,
            }),
        };
        batch.add(counters, &found.covered, &span, self.begin);
        Ok(Some(batch))
    }

    /// The steps of the next batch, and the series that have moved in them: few of all that there ever were, but maybe more
    /// than live now. The more, the fewer steps.
    fn span(
        &self,
        record: &Record,
        all: &[(Series, u32)],
        every: u64,
        until: u64,
        living: usize,
    ) -> io::Result<(Span, BTreeSet<u32>)> {
        let from = self.cursor.at - self.cursor.at % every;
        let tier = finest(record, from)?;
        let seconds = match tier {
            Tier::Second => MOST_SECONDS,
            _ => MOST_LONGER,
        };
        let room = |series: usize| (MOST_SAMPLES / series.max(1)).max(1) as u64;
        let steps = room(living).min((seconds / every).max(1));
        let steps = steps.min((until - from).div_ceil(every));
        let numbers: Vec<u32> = all.iter().map(|(_, number)| *number).collect();
        let whole = Grid::of(from, every * steps, 1, tier);
        let moved: BTreeSet<u32> = record.read(&whole, &numbers)?.columns.into_keys().collect();
        let steps = steps.min(room(moved.len())) as usize;
        let grid = Grid::of(from, every, steps, tier);
        Ok((Span { grid, tier, until }, moved))
    }

    /// What was counted before a second, by what is known of its hour in steps of `tier`.
    fn count(
        &self,
        record: &Record,
        at: u64,
        tier: Tier,
        counters: &[(&Series, u32)],
    ) -> io::Result<HashMap<u32, u64>> {
        let base_at = self.cursor.base_at.min(at);
        let hour = (at - at % HOUR).max(base_at);
        let base = self.cursor.counts.iter();
        let base = base.map(|(number, count)| (*number, count.base));
        let mut counted: HashMap<u32, u64> = base.collect();
        let numbers = numbers(counters);
        let spans = [(base_at, hour, finest(record, base_at)?), (hour, at, tier)];
        for (from, to, tier) in spans {
            for (number, sum) in sums(record, from, to, tier, &numbers)? {
                *counted.entry(number).or_default() += sum;
            }
        }
        Ok(counted)
    }

    /// All that is to be said of counters, and what was counted in the end.
    fn counters<'a>(
        &self,
        all: &[(&'a Series, u32)],
        totals: &HashMap<u32, u64>,
        found: &RangeResult,
        living: &BTreeSet<Series>,
    ) -> (Vec<Counter<'a>>, HashMap<u32, u64>) {
        let mut ended = totals.clone();
        for (number, column) in &found.columns {
            *ended.entry(*number).or_default() += column.sums.iter().sum::<u64>();
        }
        let before = |number: &u32| totals.get(number).copied().unwrap_or(0);
        let known = |number: &u32| self.cursor.counts.get(number).copied().unwrap_or_default();
        let sent = all.iter().map(|(series, number)| {
            let (known, moved) = (known(number), found.columns.contains_key(number));
            let news = known.told && before(number) > known.sent;
            moved || news || living.contains(*series)
        });
        let mut sent: Vec<bool> = sent.collect();
        // A histogram is sent as a whole.
        for family in families(all.iter().map(|(series, _)| *series)) {
            if family.iter().any(|(_, place)| sent[*place]) {
                family.iter().for_each(|(_, place)| sent[*place] = true);
            }
        }
        let sent = all.iter().zip(sent).filter(|(_, sent)| *sent);
        let counters = sent.map(|((series, number), _)| {
            let (known, mut counted) = (known(number), before(number));
            // What was said once is not taken back.
            let mut values = vec![counted.max(known.sent)];
            let column = found.columns.get(number);
            for step in 0..found.covered.len() {
                counted += column.map_or(0, |column| column.sums[step]);
                values.push(counted.max(known.sent));
            }
            Counter {
                number: *number,
                series,
                told: known.told,
                values,
            }
        });
        (counters.collect(), ended)
    }

    /// Goes to where something is recorded again.
    fn gap(&self, record: &Record, span: &Span) -> io::Result<Batch> {
        let end = span.end(span.grid.buckets - 1);
        let hour = end - end % HOUR;
        let hours = span.until.saturating_sub(hour).div_ceil(HOUR).min(GAP);
        let found = record.read(&Grid::of(hour, HOUR, hours as usize, Tier::Hour), &[])?;
        let first = found.covered.iter().position(|covered| *covered > 0);
        let first = hour + HOUR * first.map_or(hours, |first| first as u64);
        let first = (first - first % span.grid.step).min(span.until);
        Ok(Batch {
            rows: Vec::new(),
            from: end,
            to: end.max(first),
            sent: Vec::new(),
            totals: None,
        })
    }

    /// A batch is delivered.
    pub fn advance(&mut self, batch: Batch, record: &Record) -> io::Result<()> {
        self.try_out(&batch);
        self.arrived(batch.to);
        self.totals = batch.totals;
        self.begin = true;
        self.settle(record)
    }

    /// Where the record is in memory, and its oldest hour about to be forgotten: goes past it, and keeps what it counted.
    /// Whether it did.
    pub fn hurry(&mut self, record: &Record) -> io::Result<bool> {
        match record.leaving() {
            Some(end) if self.cursor.at < end => {
                self.cursor.at = end;
                self.totals = None;
                self.settle(record).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Counts what does not change any more, so that it need not be read again.
    fn settle(&mut self, record: &Record) -> io::Result<()> {
        let settled = record.settled().min(self.cursor.at - self.cursor.at % HOUR);
        let base_at = self.cursor.base_at;
        if settled <= base_at {
            return Ok(());
        }
        let series = series(record);
        let numbers: Vec<u32> = series
            .iter()
            .filter(|(series, _)| series.kind == Kind::Counter)
            .map(|(_, number)| *number)
            .collect();
        // Hours are not kept for as long as days.
        let day = match base_at % DAY {
            0 => settled - settled % DAY,
            _ => base_at,
        };
        let mut counted = sums(record, base_at, day, Tier::Day, &numbers)?;
        counted.extend(sums(record, day, settled, Tier::Hour, &numbers)?);
        for (number, sum) in counted {
            self.cursor.counts.entry(number).or_default().base += sum;
        }
        self.cursor.base_at = settled;
        Ok(())
    }
}

impl Batch {
    /// Adds the counters that are to be sent: at the end of each step with a recorded second. A new counter has one
    /// at its beginning too, so that its first step can be told.
    fn add(&mut self, mut counters: Vec<Counter<'_>>, covered: &[u32], span: &Span, begin: bool) {
        let last = counters.iter();
        let last = last.filter_map(|counter| Some((counter.number, *counter.values.last()?)));
        self.sent = last.collect();
        let values = counters.iter_mut();
        let mut values: Vec<Vec<u64>> = values.map(|c| std::mem::take(&mut c.values)).collect();
        for family in families(counters.iter().map(|counter| counter.series)) {
            stack(&family, &mut values);
        }
        for (counter, values) in counters.iter().zip(values) {
            let value = |step: usize| values.get(step).copied().unwrap_or(0);
            let first = (begin && !counter.told).then(|| TimedValue {
                at: span.grid.from,
                value: value(0),
            });
            let steps = covered
                .iter()
                .enumerate()
                .filter(|(_, covered)| **covered > 0);
            let steps = steps.map(|(step, _)| TimedValue {
                at: span.end(step),
                value: value(step + 1),
            });
            self.rows.push(Row {
                series: counter.series.clone(),
                samples: first.into_iter().chain(steps).collect(),
            });
        }
        self.rows.sort_by(|a, b| a.series.cmp(&b.series));
    }
}

/// The steps of a batch.
struct Span {
    grid: Grid,
    tier: Tier,
    until: u64,
}

impl Span {
    /// The second of a step's sample: the one behind it, unless the process has ended before.
    fn end(&self, step: usize) -> u64 {
        (self.grid.from + self.grid.step * (step as u64 + 1)).min(self.until)
    }

    /// What there was in the last second of each step; where seconds are not kept any more, on average.
    fn gauges(
        &self,
        record: &Record,
        gauges: &[(&Series, u32)],
        moved: &BTreeSet<u32>,
        living: &BTreeSet<Series>,
    ) -> io::Result<Vec<Row>> {
        let Grid {
            from,
            step,
            buckets,
            ..
        } = self.grid;
        let (grid, fine) = match self.tier {
            Tier::Second => (
                Grid::of(from, 1, buckets * step as usize, Tier::Second),
                step as usize,
            ),
            _ => (self.grid, 1),
        };
        let covered = record.read(&grid, &[])?.covered;
        let last: BTreeMap<usize, usize> = (0..buckets)
            .filter_map(|bucket| {
                let mut seconds = (bucket * fine..(bucket + 1) * fine).rev();
                Some((bucket, seconds.find(|second| covered[*second] > 0)?))
            })
            .collect();
        let sent =
            |(series, number): &(&Series, u32)| moved.contains(number) || living.contains(*series);
        let sent: Vec<_> = gauges.iter().copied().filter(sent).collect();
        let mut rows = Vec::new();
        for gauges in sent.chunks((MOST_READ / grid.buckets).max(1)) {
            let columns = record.read(&grid, &numbers(gauges))?.columns;
            for (series, number) in gauges {
                let column = columns.get(number);
                let samples = last.iter().map(|(bucket, second)| TimedValue {
                    at: self.end(*bucket),
                    value: column.map_or(0, |column| column.sums[*second])
                        / u64::from(covered[*second].max(1)),
                });
                rows.push(Row {
                    series: (*series).clone(),
                    samples: samples.collect(),
                });
            }
        }
        Ok(rows)
    }
}

/// The finest step of which hours can be made that is kept as far back as a second.
fn finest(record: &Record, from: u64) -> io::Result<Tier> {
    Ok(record.finest(from)?.min(Tier::Hour))
}

/// All that was counted in the steps of a tier that begin between two seconds.
fn sums(
    record: &Record,
    from: u64,
    to: u64,
    tier: Tier,
    numbers: &[u32],
) -> io::Result<Vec<(u32, u64)>> {
    if from >= to {
        return Ok(Vec::new());
    }
    let found = record.read(&Grid::of(from, to - from, 1, tier), numbers)?;
    let columns = found.columns.into_iter();
    let sums = columns.map(|(number, column)| (number, column.sums.iter().sum()));
    Ok(sums.collect())
}

fn numbers(series: &[(&Series, u32)]) -> Vec<u32> {
    series.iter().map(|(_, number)| *number).collect()
}
