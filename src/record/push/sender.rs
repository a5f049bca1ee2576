//! What looks after one destination: sends batches in the order of time, and each until it is known what became of it.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use metrics::{Counter, Gauge};

use super::batch::{Batch, Progress};
use super::cursor::Cursor;
use super::deliver::{Outcome, deliver};
use super::destination::{Destination, LiveSeries, PushContext};
use super::outage_log::OutageLog;
use super::piece::{SampleRange, pieces};
use super::row::Part;
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};
use crate::base::random::Chance;
use crate::base::telemetry::{Label, Metric};
use crate::net::Roots;
use crate::record::{Record, Series};

/// How often is looked whether there is something to send.
const LOOK: Duration = Duration::from_secs(1);
/// Pauses after failures, doubled each time.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Seconds that a cursor may be ahead of the clock.
const AHEAD: u64 = 120;

/// See the module.
pub struct Sender {
    settings: Settings,
    destination: Arc<Destination>,
    record: Arc<OnceLock<Record>>,
    folder: Option<PathBuf>,
    live_series: LiveSeries,
    clock: Clock,
    chance: Chance,
    sent: Counter,
    refused: Counter,
    behind: Gauge,
    /// Nothing before the first look.
    progress: Option<Progress>,
    /// Whom the system trusts, once that was needed, until something fails.
    system: OnceCell<Roots>,
    pending: Option<Pending>,
    /// Up to here a process before may have sent, and not lived to say so.
    resumed: u64,
    /// Failures since the last success.
    failures: u32,
    /// What was said of the destination, of what it refuses, and of the disk.
    trouble: OutageLog,
    refusal: OutageLog,
    unsaved: OutageLog,
}

/// A batch under way.
struct Pending {
    batch: Batch,
    /// Requests that are to be made of it, the first one last.
    pieces: Vec<SampleRange>,
    /// Some of it was refused.
    refused: bool,
}

impl Sender {
    /// Looks after a destination.
    pub fn new(context: &PushContext, destination: Arc<Destination>, seed: u64) -> Sender {
        let settings = destination.settings.lock().clone();
        let to = (Label::To, settings.name.as_str());
        let counter = |result| {
            let labels = [to, (Label::Result, result)];
            context.registry.counter(Metric::PushSamples, &labels)
        };
        Sender {
            sent: counter("sent"),
            refused: counter("refused"),
            behind: context.registry.gauge(Metric::PushBehind, &[to]),
            settings,
            destination,
            record: context.record.clone(),
            folder: context.cursors(),
            live_series: context.live_series.clone(),
            clock: context.clock.clone(),
            chance: Chance::new(seed),
            progress: None,
            system: OnceCell::new(),
            pending: None,
            resumed: 0,
            failures: 0,
            trouble: OutageLog::default(),
            refusal: OutageLog::default(),
            unsaved: OutageLog::default(),
        }
    }

    /// Sends for as long as it is polled.
    pub async fn run(&mut self) {
        let mut due = Nanos::ZERO;
        loop {
            if self.clock.now() >= due {
                let pause = self.round(false).await.err();
                due = pause.map_or(Nanos::ZERO, |pause| self.clock.now().after(pause.into()));
            }
            self.look();
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends all that is recorded, up to the last second.
    pub async fn finish(&mut self) {
        let _ = self.round(true).await;
    }

    /// Says how far behind the destination is. A record in memory waits for nobody.
    fn look(&mut self) {
        let (Some(record), Some(progress)) = (self.record.get(), &mut self.progress) else {
            return;
        };
        if progress.hurry(record).unwrap_or(false) {
            self.pending = None;
        }
        let behind = self
            .clock
            .wall()
            .as_secs()
            .saturating_sub(progress.cursor.at);
        self.behind.set(behind as f64);
        self.destination.status.lock().behind_seconds = behind;
    }

    /// Sends all there is, or fails and says after which pause to go on.
    async fn round(&mut self, last: bool) -> Result<(), Duration> {
        let record = self.record.clone();
        let Some(record) = record.get() else {
            return Ok(());
        };
        if self.progress.is_none() {
            let begun = self.begin(record);
            self.progress = Some(begun.map_err(|why| self.failed(&why, None))?);
        }
        loop {
            self.look();
            if self.pending.is_none() {
                let prepared = self.prepare(record, last);
                self.pending = prepared.map_err(|why| self.failed(&why, None))?;
            }
            if self.pending.is_none() {
                return Ok(());
            }
            while self.send().await? {}
            self.delivered(record);
        }
    }

    /// Sends the next piece of the pending batch; whether there was one.
    async fn send(&mut self) -> Result<bool, Duration> {
        let (Some(pending), Some(progress)) = (&mut self.pending, &self.progress) else {
            return Ok(false);
        };
        let Some(next) = pending.pieces.last_mut() else {
            return Ok(false);
        };
        let piece = next.clone();
        // It may be dropped on the way.
        next.tried = true;
        let part = piece.of(&pending.batch.rows);
        let (begun, now) = (progress.cursor.begun, self.clock.wall());
        // A reload may have brought another token.
        self.settings.clone_from(&self.destination.settings.lock());
        let outcome = deliver(&self.settings, &self.system, part, begun, now).await;
        let count = part.count() as u64;
        let all = |why| (0, Some((count, why)));
        let (halves, (taken, refused)) = match outcome {
            Outcome::Taken => (None, (count, None)),
            Outcome::Partly(refused, why) => {
                let refused = refused.min(count);
                (None, (count - refused, Some((refused, why))))
            }
            Outcome::Known(_) if piece.tried => (piece.by_time(part), (count, None)),
            Outcome::Known(why) | Outcome::TooOld(why) => (piece.by_time(part), all(why)),
            Outcome::Refused(why) => (None, all(why)),
            Outcome::TooLarge(why) => match piece.halves(part) {
                // Nobody takes less than one sample: something on the way must be mended.
                None => return Err(self.failed(&why, None)),
                halves => (halves, all(why)),
            },
            Outcome::Again(why, after) => return Err(self.failed(&why, after)),
        };
        pending.pieces.pop();
        match halves {
            Some((first, second)) => pending.pieces.extend([second, first]),
            None => self.count(taken, refused),
        }
        Ok(true)
    }

    /// Counts what was taken and what was refused.
    fn count(&mut self, taken: u64, refused: Option<(u64, String)>) {
        self.sent.increment(taken);
        let mut status = self.destination.status.lock();
        status.sent += taken;
        if let Some((samples, why)) = refused {
            if let Some(pending) = &mut self.pending {
                pending.refused = true;
            }
            status.trouble = format!("it refuses what is sent: {why}");
            self.refused.increment(samples);
            status.refused += samples;
            if self.refusal.fails(&why, self.clock.now()) {
                let (name, refused) = (&self.settings.name, status.refused);
                tracing::error!(name, why, refused, "the destination refuses what is pushed");
            }
        }
    }

    /// The next batch; nothing if there is none yet.
    fn prepare(&mut self, record: &Record, last: bool) -> Result<Option<Pending>, String> {
        let every = self.settings.every;
        let Some(progress) = &mut self.progress else {
            return Ok(None);
        };
        let at = progress.cursor.at;
        if at > self.clock.wall().as_secs() + AHEAD {
            let time = UNIX_EPOCH + Duration::from_secs(at);
            let time = httpdate::fmt_http_date(time);
            return Err(format!(
                "the clock was once ahead, and all until {time} was sent: the next is sent after that"
            ));
        }
        let durable = record.durable();
        let mut until = if last {
            durable
        } else {
            durable - durable % every
        };
        if at < self.resumed {
            // What may be there already is not mixed with what cannot.
            until = until.min(self.resumed);
        }
        if until <= at {
            return Ok(None);
        }
        let living: BTreeSet<Series> = (self.live_series)();
        let next = progress.next(record, every, until, &living);
        let Some(batch) = next.map_err(unreadable)? else {
            return Ok(None);
        };
        progress.try_out(&batch);
        let cursor = progress.cursor.clone();
        self.save(&cursor);
        let tried = batch.to <= self.resumed;
        let whole = Part {
            rows: &batch.rows,
            from: batch.from,
            to: batch.to,
        };
        Ok(Some(Pending {
            pieces: pieces(whole, &self.settings.labels, tried),
            batch,
            refused: false,
        }))
    }

    /// Where the process before has ended, else now. What cannot be read now may be readable later.
    fn begin(&mut self, record: &Record) -> Result<Progress, String> {
        let name = &self.settings.name;
        let loaded = match &self.folder {
            Some(folder) => Cursor::load(folder, name),
            None => Ok(self.destination.cursor.lock().clone()),
        };
        let loaded = match (loaded, &self.folder) {
            (Err(error), Some(folder)) if error.kind() == ErrorKind::InvalidData => {
                tracing::error!(name, %error, "the cursor of a destination is of no use and put aside: what it has not got until now is not sent");
                Cursor::set_aside(folder, name).map(|()| None)
            }
            (loaded, _) => loaded,
        };
        let cursor = loaded.map_err(|error| format!("its cursor cannot be read: {error}"))?;
        if let Some(cursor) = cursor {
            let progress = Progress::resume(cursor, record).map_err(unreadable)?;
            self.resumed = progress.cursor.trying;
            return Ok(progress);
        }
        let now = self.clock.wall().as_secs();
        let progress = Progress::begin(record, now, self.settings.every).map_err(unreadable)?;
        // A destination that is away from the start gets what happened since then.
        self.save(&progress.cursor);
        Ok(progress)
    }

    fn save(&mut self, cursor: &Cursor) {
        let Some(folder) = &self.folder else {
            *self.destination.cursor.lock() = Some(cursor.clone());
            return;
        };
        let name = &self.settings.name;
        match cursor.save(folder, name) {
            Ok(()) => {
                self.unsaved.works();
            }
            Err(error) => {
                let why = error.to_string();
                if self.unsaved.fails(&why, self.clock.now()) {
                    tracing::error!(name, why, "how far a destination has got cannot be kept");
                }
            }
        }
    }

    /// The pending batch is there.
    fn delivered(&mut self, record: &Record) {
        let (Some(pending), Some(progress)) = (self.pending.take(), &mut self.progress) else {
            return;
        };
        let advanced = progress.advance(pending.batch, record);
        let cursor = progress.cursor.clone();
        let name = &self.settings.name;
        if let Err(error) = advanced {
            // What is counted already is read again the next time.
            tracing::error!(name, %error, "the record cannot be read");
        }
        self.failures = 0;
        if self.trouble.works() {
            tracing::info!(name, "the destination is pushed to again");
        }
        if !pending.refused {
            self.destination.status.lock().trouble.clear();
        }
        self.save(&cursor);
    }

    /// How long to pause.
    fn failed(&mut self, why: &str, after: Option<Duration>) -> Duration {
        // A certificate may have been renewed.
        self.system.take();
        let doubled = SHORTEST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        let pause = self.chance.around(doubled.min(LONGEST_PAUSE * 4 / 5));
        let mut status = self.destination.status.lock();
        why.clone_into(&mut status.trouble);
        if self.trouble.fails(why, self.clock.now()) {
            let (name, behind) = (&self.settings.name, status.behind_seconds);
            tracing::warn!(
                name,
                why,
                behind,
                "nothing can be pushed; it is kept and sent later"
            );
        }
        pause.max(SHORTEST_PAUSE).max(after.unwrap_or_default())
    }
}

fn unreadable(error: io::Error) -> String {
    format!("the record cannot be read: {error}")
}
