//! One worker's end of the access log: collects lines in a batch, and hands the batch to the writer ten times a second.
//!
//! It never waits for the writer.

use std::cell::{Cell, RefCell};

use super::log_writer::LogWriter;
use super::members::{push_fraction, push_number};
use crate::base::clock::{Clock, Nanos};
use crate::policy::settings::{LogFormat, LoggedField, LoggedRequests};

/// Bytes of lines that a worker collects before it hands them over without waiting for the next tick.
pub const BATCH_BYTES: usize = 64 * 1024;

/// Bytes reserved for the line that fills the batch. Few lines are longer, so a batch seldom needs new memory.
const LINE_HEADROOM_BYTES: usize = 1024;

/// Nanoseconds in a second.
pub(super) const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond, the precision of times in the log.
const NANOS_PER_MILLI: u64 = 1_000_000;

/// One worker's end of the log.
pub struct WorkerLog {
    writer: LogWriter,
    /// See [`WorkerLog::needs_extra_facts`].
    needs_extra_facts: bool,
    /// The lines that have not been handed over yet.
    batch: RefCell<Vec<u8>>,
    /// Wall-clock time at the clock's zero, read in the last tick. After the wall clock was set, the times of lines are
    /// wrong until the next tick.
    wall_origin: Cell<Nanos>,
    line_start: RefCell<LineStart>,
}

/// The text that all lines of one second share: the member `time` up to whole seconds, or the date.
#[derive(Default)]
struct LineStart {
    /// The second that the text names, since 1970.
    second: u64,
    text: Vec<u8>,
}

/// Hands over the last batch, also when the end of a worker has cut off requests.
impl Drop for WorkerLog {
    fn drop(&mut self) {
        self.flush();
    }
}

impl WorkerLog {
    /// Makes an empty log that hands its batches to `writer`.
    pub fn new(writer: LogWriter, clock: &Clock) -> WorkerLog {
        WorkerLog {
            needs_extra_facts: writer
                .fields
                .iter()
                .any(|field| matches!(field, LoggedField::BytesIn | LoggedField::UpstreamMillis)),
            writer,
            batch: RefCell::new(Vec::new()),
            wall_origin: Cell::new(wall_origin(clock)),
            line_start: RefCell::default(),
        }
    }

    /// Hands over the batch and reads the wall clock. A worker does so ten times a second.
    pub fn flush_and_update_time(&self, clock: &Clock) {
        self.flush();
        self.wall_origin.set(wall_origin(clock));
    }

    /// Whether any request may be logged, so that its target must be kept.
    pub fn may_log(&self) -> bool {
        self.writer.logged_requests != LoggedRequests::Off
    }

    /// The form of a line.
    #[inline]
    pub(super) fn format(&self) -> LogFormat {
        self.writer.format
    }

    /// The members of lines that the gateway file lists.
    #[inline]
    pub(super) fn fields(&self) -> &[LoggedField] {
        &self.writer.fields
    }

    /// Whether lines have the bytes of requests' bodies, so that they must be counted.
    #[inline]
    pub fn has_bytes_in(&self) -> bool {
        self.writer.fields.contains(&LoggedField::BytesIn)
    }

    /// Whether lines have what the context of a request keeps only for them.
    #[inline]
    pub fn needs_extra_facts(&self) -> bool {
        self.needs_extra_facts
    }

    /// Hands the batch over to the writer.
    pub fn flush(&self) {
        let batch = std::mem::take(&mut *self.batch.borrow_mut());
        if !batch.is_empty() {
            self.writer.send_batch(batch);
        }
    }

    /// Adds the line that `write_line` writes, unless the log leaves out such requests. A request is notable if it was not
    /// admitted, or was above a limit.
    #[inline]
    pub(super) fn add_line(&self, is_notable: bool, write_line: impl FnOnce(&mut Vec<u8>)) {
        match self.writer.logged_requests {
            LoggedRequests::Off => return,
            LoggedRequests::Refused if !is_notable => return,
            LoggedRequests::Refused | LoggedRequests::All => {}
        }
        let mut batch = self.batch.borrow_mut();
        if batch.is_empty() {
            batch.reserve(BATCH_BYTES + LINE_HEADROOM_BYTES);
        }
        write_line(&mut batch);
        if batch.len() >= BATCH_BYTES {
            let batch = std::mem::take(&mut *batch);
            self.writer.send_batch(batch);
        }
    }

    /// Writes the beginning of a request's line: the wall-clock time of `arrived_at`, in seconds with three digits.
    #[inline]
    pub(super) fn begin_line(&self, out: &mut Vec<u8>, arrived_at: Nanos) {
        let nanos = self.push_second(out, arrived_at, |text, second| {
            push_number(text, "{\"time\":", second);
        });
        push_fraction::<3>(out, (nanos / NANOS_PER_MILLI) as u32);
    }

    /// Writes the text of the second of `arrived_at`, and returns the nanoseconds since that second. `write_second` gets
    /// the seconds since 1970. It is called once for each second, so a log must always pass the same one.
    #[inline]
    pub(super) fn push_second(
        &self,
        out: &mut Vec<u8>,
        arrived_at: Nanos,
        write_second: impl FnOnce(&mut Vec<u8>, u64),
    ) -> u64 {
        let wall_nanos = self.wall_origin.get().after(arrived_at).0;
        let LineStart { second, text } = &mut *self.line_start.borrow_mut();
        let wall_second = wall_nanos / NANOS_PER_SECOND;
        if *second != wall_second || text.is_empty() {
            *second = wall_second;
            text.clear();
            write_second(text, wall_second);
        }
        out.extend_from_slice(text);
        wall_nanos % NANOS_PER_SECOND
    }
}

/// Wall-clock time at the zero of `clock`.
fn wall_origin(clock: &Clock) -> Nanos {
    Nanos::from(clock.wall()).since(clock.now())
}
