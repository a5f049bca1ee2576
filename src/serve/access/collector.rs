//! One worker's end of the access log: collects lines, and hands them over ten times a second.

use std::cell::{Cell, RefCell};

use super::members::{fraction, number};
use super::writer::LogWriter;
use crate::base::clock::{Clock, Nanos};
use crate::policy::settings::Logged;

/// Bytes that a worker collects before it hands them over.
pub const PIECE: usize = 64 * 1024;

/// What a line seldom exceeds.
const ROOM: usize = 1024;

/// One worker's end of the log.
pub struct WorkerLog {
    writer: LogWriter,
    piece: RefCell<Vec<u8>>,
    /// Wall-clock time at the beginning of the clock, as of the last tick. When that clock is set, lines are wrong until the next tick.
    origin: Cell<Nanos>,
    /// The second of the last line, and how a line begins in it.
    second: RefCell<(u64, Vec<u8>)>,
}

/// Requests that the end of a worker cut off are logged too.
impl Drop for WorkerLog {
    fn drop(&mut self) {
        self.flush();
    }
}

impl WorkerLog {
    /// Collects for `writer`.
    pub fn new(writer: LogWriter, clock: &Clock) -> WorkerLog {
        WorkerLog {
            writer,
            piece: RefCell::new(Vec::new()),
            origin: Cell::new(origin(clock)),
            second: RefCell::default(),
        }
    }

    /// Hands over what was collected, and looks at the wall clock. A worker does so ten times a second.
    pub fn tick(&self, clock: &Clock) {
        self.flush();
        self.origin.set(origin(clock));
    }

    /// Whether any request may be logged, so that its target must be kept.
    pub fn wants_targets(&self) -> bool {
        self.writer.requests != Logged::Off
    }

    /// Hands over what was collected.
    pub fn flush(&self) {
        let piece = std::mem::take(&mut *self.piece.borrow_mut());
        if !piece.is_empty() {
            self.writer.hand_over(piece);
        }
    }

    /// Adds the line that `write` writes, where the log has requests like this: `notable` where one was not admitted, or was
    /// above a limit.
    #[inline]
    pub(super) fn add(&self, notable: bool, write: impl FnOnce(&mut Vec<u8>)) {
        match self.writer.requests {
            Logged::Off => return,
            Logged::Refused if !notable => return,
            Logged::Refused | Logged::All => {}
        }
        let mut piece = self.piece.borrow_mut();
        if piece.is_empty() {
            piece.reserve(PIECE + ROOM);
        }
        write(&mut piece);
        if piece.len() >= PIECE {
            let piece = std::mem::take(&mut *piece);
            self.writer.hand_over(piece);
        }
    }

    /// Writes how the line of a request begins that arrived at `at`: with the wall-clock time.
    #[inline]
    pub(super) fn begin_line(&self, out: &mut Vec<u8>, at: Nanos) {
        let began = self.origin.get().after(at).0;
        let (second, beginning) = &mut *self.second.borrow_mut();
        if *second != began / 1_000_000_000 || beginning.is_empty() {
            *second = began / 1_000_000_000;
            beginning.clear();
            number(beginning, "{\"time\":", *second);
        }
        out.extend_from_slice(beginning);
        fraction::<3>(out, (began % 1_000_000_000 / 1_000_000) as u32);
    }
}

fn origin(clock: &Clock) -> Nanos {
    Nanos::from(clock.wall()).since(clock.now())
}
