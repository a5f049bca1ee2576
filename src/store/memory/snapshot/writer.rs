//! The thread that writes snapshots. It begins two in each [`Settings::every`], because a complete snapshot lacks the units
//! counted since it was begun.

use std::fs::{File, TryLockError};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::copy::{CopyError, copy};
use super::folder::{FolderError, SnapshotFolder};
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};
use crate::store::Memory;

/// How often a folder that another process has locked is tried again.
const RETRY: Nanos = Nanos::from_secs(1);

enum WriterOrder {
    /// Write at once, and report the end.
    Now(Sender<()>),
    /// Write a last time.
    Last,
    /// Stop without writing.
    Leave,
}

/// A handle to the thread.
#[derive(Debug)]
pub struct SnapshotWriter {
    orders: Sender<WriterOrder>,
    thread: JoinHandle<()>,
}

impl SnapshotWriter {
    /// Starts the thread; `secret` is the one with which keys are hashed.
    ///
    /// # Errors
    ///
    /// When the folder cannot be used, or the system gives no thread.
    pub fn start(
        settings: &Settings,
        memory: Arc<Memory>,
        secret: [u8; 16],
        clock: Clock,
    ) -> Result<SnapshotWriter, FolderError> {
        let folder = SnapshotFolder::new(&settings.folder)?;
        let (orders, received) = channel();
        let mut keeping = WriterThread {
            every: settings.every.into(),
            folder,
            memory,
            secret,
            clock,
            orders: received,
            next: None,
            lock: None,
            state: WriterState::Well,
        };
        let thread = thread::Builder::new().name("snapshots".into());
        let thread = thread.spawn(move || keeping.run());
        let thread = thread.map_err(|cause| FolderError::new(&settings.folder, cause))?;
        Ok(SnapshotWriter { orders, thread })
    }

    /// Writes a snapshot of all counts so far, and waits until it is on the disk or has failed.
    pub fn write(&self) {
        let (done, wait) = channel();
        if self.orders.send(WriterOrder::Now(done)).is_ok() {
            // The thread ends only when it is told to.
            let _ = wait.recv();
        }
    }

    /// Writes the last snapshot; no request may be counted any more.
    pub fn finish(self) {
        self.end(WriterOrder::Last);
    }

    /// Stops without writing, so that another process may write.
    pub fn leave(self) {
        self.end(WriterOrder::Leave);
    }

    fn end(self, order: WriterOrder) {
        let told = self.orders.send(order).is_ok();
        if self.thread.join().is_err() || !told {
            tracing::error!("the thread that writes snapshots of counts panicked");
        }
    }
}

/// The result of the last attempt, so that only changes are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterState {
    Well,
    Slow,
    Failing,
    Locked,
}

struct WriterThread {
    every: Nanos,
    folder: SnapshotFolder,
    memory: Arc<Memory>,
    secret: [u8; 16],
    clock: Clock,
    orders: Receiver<WriterOrder>,
    /// An order that came while a snapshot was written.
    next: Option<WriterOrder>,
    lock: Option<File>,
    state: WriterState,
}

impl WriterThread {
    fn run(&mut self) {
        // A snapshot begins in each half of `every`. When it is on the disk, the one before is as old as half of `every`
        // plus the time that this one took. So a pass takes half of that half, and the rest is for the final sync.
        let half = Nanos(self.every.0 / 2);
        let pass = Nanos(half.0 / 2);
        loop {
            let began = self.clock.now();
            self.write(Some((began, pass)));
            let took = self.clock.now().since(began);
            if self.state == WriterState::Well && took > half {
                let (took, every) = (Duration::from(took), Duration::from(self.every));
                tracing::warn!(
                    ?took,
                    ?every,
                    "a snapshot of counts took too long; a crash forgives more than is counted in `every`"
                );
                self.state = WriterState::Slow;
            }
            if self.next.is_none() {
                let rest = half.since(took);
                // The other process may end soon.
                let locked = self.state == WriterState::Locked;
                self.pause(if locked { rest.min(RETRY) } else { rest });
            }
            match self.next.take() {
                None => {}
                Some(WriterOrder::Now(done)) => {
                    self.write(None);
                    // The caller may be gone.
                    let _ = done.send(());
                }
                Some(WriterOrder::Last) => return self.write(None),
                Some(WriterOrder::Leave) => return,
            }
        }
    }

    /// Waits for an order, for `span` at most.
    fn pause(&mut self, span: Nanos) {
        self.next = match self.orders.recv_timeout(span.into()) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(WriterOrder::Leave),
        };
    }

    /// Writes a snapshot at once, or spread over a pass: its start and length.
    fn write(&mut self, spread: Option<(Nanos, Nanos)>) {
        let written = match self.locked() {
            Ok(true) => self.copy(spread),
            Ok(false) => {
                if self.state != WriterState::Locked {
                    tracing::warn!(
                        folder = %self.folder.path().display(),
                        "another process keeps its counts here; this one keeps none before that one ends. \
                         Two gateways need two folders"
                    );
                }
                self.state = WriterState::Locked;
                return;
            }
            Err(error) => Err(CopyError::Failed(error)),
        };
        match written {
            Ok(()) if matches!(self.state, WriterState::Failing | WriterState::Locked) => {
                tracing::info!("snapshots of counts are written again");
                self.state = WriterState::Well;
            }
            Ok(()) | Err(CopyError::Told) => {}
            Err(CopyError::Failed(error)) => {
                if self.state != WriterState::Failing {
                    tracing::error!(
                        folder = %self.folder.path().display(), %error,
                        "a snapshot of counts cannot be written; a crash forgives what is counted from now on. \
                         See that the disk has room and the folder can be written to"
                    );
                }
                self.state = WriterState::Failing;
            }
        }
    }

    /// Whether this process has the lock, and so writes.
    fn locked(&mut self) -> io::Result<bool> {
        if self.lock.is_some() {
            return Ok(true);
        }
        let file = self.folder.lock_file()?;
        match file.try_lock() {
            Ok(()) => self.lock = Some(file),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(true)
    }

    fn copy(&mut self, spread: Option<(Nanos, Nanos)>) -> Result<(), CopyError> {
        let WriterThread {
            folder,
            memory,
            secret,
            clock,
            orders,
            next,
            ..
        } = self;
        let breathe = |done: u32, of: u32| {
            let Some((began, pass)) = spread else {
                return true;
            };
            let due = began.after(Nanos(pass.0 / u64::from(of) * u64::from(done)));
            let wait = due.since(clock.now()).min(pass);
            *next = match orders.recv_timeout(wait.into()) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(WriterOrder::Leave),
            };
            next.is_none()
        };
        folder.write(|number, out| copy(memory, out, (number, *secret), clock, breathe))
    }
}
