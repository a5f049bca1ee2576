//! What looks after one destination: sends batches in the order of time, and each until it is known what became of it.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge};
use parking_lot::Mutex;

use super::batch::{Batch, MOST_SAMPLES, Progress};
use super::cursor::Cursor;
use super::deliver::{Outcome, deliver};
use super::row::{Part, Row};
use super::{Living, Settings, Start, Status};
use crate::chance::Chance;
use crate::clock::{Clock, Nanos};
use crate::net::Roots;
use crate::record::{Record, Series};
use crate::telemetry::{Label, Metric};

/// How often is looked whether there is something to send.
const LOOK: Duration = Duration::from_secs(1);
/// Pauses after failures, doubled each time.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Most bytes of a request, before it is packed, unless a single series has more.
const MOST_BYTES: usize = 1 << 20;

/// See the module.
pub struct Sender {
    settings: Settings,
    record: Arc<OnceLock<Record>>,
    folder: Option<PathBuf>,
    living: Living,
    clock: Clock,
    chance: Chance,
    status: Arc<Mutex<Status>>,
    sent: Counter,
    refused: Counter,
    behind: Gauge,
    /// Nothing before the first look.
    progress: Option<Progress>,
    /// Whom the system trusts, once that was needed.
    system: OnceCell<Roots>,
    pending: Option<Pending>,
    /// A process before may have sent the next batch and not lived to say so.
    resumed: bool,
    /// Failures since the last success.
    failures: u32,
    /// What was said last of the destination, and of the disk.
    trouble: String,
    unsaved: String,
    /// What it was said to refuse.
    refusal: String,
}

/// A batch under way.
struct Pending {
    batch: Batch,
    /// Requests that are to be made of it, the first one last.
    pieces: Vec<Piece>,
    /// It may be there already.
    tried: bool,
}

/// Some rows, of some seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    rows: Range<usize>,
    from: u64,
    to: u64,
}

impl Sender {
    /// Looks after the destination of `settings`.
    pub fn new(start: &Start, settings: &Settings, folder: Option<PathBuf>, seed: u64) -> Sender {
        let to = (Label::To, settings.name.as_str());
        let counter = |result| {
            let labels = [to, (Label::Result, result)];
            start.registry.counter(Metric::PushSamples, &labels)
        };
        let status = Status {
            name: settings.name.clone(),
            engine: settings.engine,
            url: settings.url.to_string(),
            behind_seconds: 0,
            sent: 0,
            refused: 0,
            trouble: String::new(),
        };
        Sender {
            settings: settings.clone(),
            record: start.record.clone(),
            folder,
            living: start.living.clone(),
            clock: start.clock.clone(),
            chance: Chance::new(seed),
            status: Arc::new(Mutex::new(status)),
            sent: counter("sent"),
            refused: counter("refused"),
            behind: start.registry.gauge(Metric::PushBehind, &[to]),
            progress: None,
            system: OnceCell::new(),
            pending: None,
            resumed: false,
            failures: 0,
            trouble: String::new(),
            unsaved: String::new(),
            refusal: String::new(),
        }
    }

    /// How the destination does, from now on.
    pub fn status(&self) -> Arc<Mutex<Status>> {
        self.status.clone()
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
        self.status.lock().behind_seconds = behind;
    }

    /// Sends all there is, or fails and says after which pause to go on.
    async fn round(&mut self, last: bool) -> Result<(), Duration> {
        let record = self.record.clone();
        let Some(record) = record.get() else {
            return Ok(());
        };
        loop {
            if self.pending.is_none() {
                let prepared = self.prepare(record, last);
                let unreadable = |error| format!("the record cannot be read: {error}");
                let prepared = prepared.map_err(|error| self.failed(unreadable(error), None));
                self.pending = prepared?;
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
        let Some(piece) = pending.pieces.last().cloned() else {
            return Ok(false);
        };
        let part = piece.of(&pending.batch.rows);
        let (begun, now) = (progress.cursor.begun, self.clock.wall());
        // It may be dropped on the way.
        let tried = std::mem::replace(&mut pending.tried, true);
        let outcome = deliver(&self.settings, &self.system, part, begun, now).await;
        if let Outcome::Again(why, after) = outcome {
            return Err(self.failed(why, after));
        }
        pending.tried = tried;
        let count = part.count() as u64;
        let halves = piece.halves(part);
        pending.pieces.pop();
        match (outcome, halves) {
            (Outcome::Known(_) | Outcome::TooOld(_), Some((earlier, later))) => {
                pending.pieces.extend([later, earlier]);
            }
            (Outcome::Known(_), None) if tried => self.count(count, None),
            (Outcome::Known(why) | Outcome::TooOld(why) | Outcome::Refused(why), _) => {
                self.count(0, Some((count, why)))
            }
            (Outcome::Partly(refused, why), _) => {
                let refused = refused.min(count);
                self.count(count - refused, Some((refused, why)));
            }
            (Outcome::Taken | Outcome::Again(..), _) => self.count(count, None),
        }
        Ok(true)
    }

    /// Counts what was taken and what was refused, and says once why.
    fn count(&mut self, taken: u64, refused: Option<(u64, String)>) {
        self.sent.increment(taken);
        let mut status = self.status.lock();
        status.sent += taken;
        if let Some((samples, why)) = refused {
            self.refused.increment(samples);
            status.refused += samples;
            if why != self.refusal {
                let name = &self.settings.name;
                tracing::error!(name, why, "the destination refuses what is pushed");
                self.refusal = why;
            }
        }
    }

    /// The next batch; nothing if there is none yet.
    fn prepare(&mut self, record: &Record, last: bool) -> io::Result<Option<Pending>> {
        let every = self.settings.every;
        if self.progress.is_none() {
            self.progress = Some(self.begin(record)?);
        }
        let Some(progress) = &mut self.progress else {
            return Ok(None);
        };
        let durable = record.durable();
        let until = if last {
            durable
        } else {
            durable - durable % every
        };
        if until <= progress.cursor.at {
            return Ok(None);
        }
        let living: BTreeSet<Series> = (self.living)();
        let Some(batch) = progress.next(record, every, until, &living)? else {
            return Ok(None);
        };
        progress.try_out(&batch);
        let cursor = progress.cursor.clone();
        self.save(&cursor);
        Ok(Some(Pending {
            pieces: pieces(&batch),
            tried: self.resumed,
            batch,
        }))
    }

    fn begin(&mut self, record: &Record) -> io::Result<Progress> {
        let loaded = self
            .folder
            .as_ref()
            .map(|folder| Cursor::load(folder, &self.settings.name));
        match loaded {
            Some(Ok(Some(cursor))) => {
                self.resumed = true;
                return Progress::resume(cursor, record);
            }
            Some(Err(error)) => {
                let name = &self.settings.name;
                tracing::error!(name, %error, "the cursor of a destination is of no use: it is pushed to from now on");
            }
            Some(Ok(None)) | None => {}
        }
        let now = self.clock.wall().as_secs();
        let progress = Progress::begin(record, now, self.settings.every)?;
        // A destination that is away from the start gets what happened since then.
        self.save(&progress.cursor);
        Ok(progress)
    }

    fn save(&mut self, cursor: &Cursor) {
        let Some(folder) = &self.folder else {
            return;
        };
        let name = &self.settings.name;
        let saved = cursor.save(folder, name);
        let unsaved = saved
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        if unsaved != self.unsaved && !unsaved.is_empty() {
            tracing::error!(
                name,
                unsaved,
                "how far a destination has got cannot be kept"
            );
        }
        self.unsaved = unsaved;
    }

    /// The pending batch is there.
    fn delivered(&mut self, record: &Record) {
        let (Some(pending), Some(progress)) = (self.pending.take(), &mut self.progress) else {
            return;
        };
        let advanced = progress.advance(pending.batch, record);
        let cursor = progress.cursor.clone();
        if let Err(error) = advanced {
            // What is counted already is read again the next time.
            tracing::error!(name = self.settings.name, %error, "the record cannot be read");
        }
        self.save(&cursor);
        self.resumed = false;
        self.failures = 0;
        let name = &self.settings.name;
        if !std::mem::take(&mut self.trouble).is_empty() {
            tracing::info!(name, "the destination is pushed to again");
        }
        self.status.lock().trouble.clear();
    }

    /// How long to pause.
    fn failed(&mut self, why: String, after: Option<Duration>) -> Duration {
        let doubled = SHORTEST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        let pause = self.chance.around(doubled.min(LONGEST_PAUSE * 4 / 5));
        if why != self.trouble {
            let name = &self.settings.name;
            tracing::warn!(
                name,
                why,
                "nothing can be pushed; it is kept and sent later"
            );
            self.status.lock().trouble.clone_from(&why);
            self.trouble = why;
        }
        pause.max(SHORTEST_PAUSE).max(after.unwrap_or_default())
    }
}

impl Piece {
    fn of<'a>(&self, rows: &'a [Row]) -> Part<'a> {
        Part {
            rows: &rows[self.rows.clone()],
            from: self.from,
            to: self.to,
        }
    }

    /// Earlier and later seconds.
    fn halves(&self, part: Part<'_>) -> Option<(Piece, Piece)> {
        let middle = part.middle()?;
        let half = |from, to| Piece {
            rows: self.rows.clone(),
            from,
            to,
        };
        Some((half(self.from, middle), half(middle + 1, self.to)))
    }
}

/// Requests of which none is too large, the first one last.
fn pieces(batch: &Batch) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut samples, mut bytes) = (0, 0);
    for (place, row) in batch.rows.iter().enumerate() {
        let labels = row.series.labels.iter();
        let labels: usize = labels
            .map(|(label, value)| label.len() + value.len() + 8)
            .sum();
        let name = row.series.name.len() + labels;
        let own = name + (name + 32) * row.samples.len();
        samples += row.samples.len();
        bytes += own;
        match pieces.last_mut() {
            Some(last) if samples <= MOST_SAMPLES && bytes <= MOST_BYTES => {
                last.rows.end = place + 1
            }
            _ => {
                (samples, bytes) = (row.samples.len(), own);
                pieces.push(Piece {
                    rows: place..place + 1,
                    from: batch.from,
                    to: batch.to,
                });
            }
        }
    }
    pieces.reverse();
    pieces
}
