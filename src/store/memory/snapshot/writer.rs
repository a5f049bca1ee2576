//! [`SnapshotWriter`]: the thread that writes snapshots. A snapshot lacks the units counted since it was begun. So two are
//! begun in each [`Settings::interval`]. The thread never writes to a folder that another process has locked.

use std::fs::{File, TryLockError};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::copy::{CopyError, write_snapshot};
use super::folder::{FolderError, SnapshotFolder};
use super::settings::Settings;
use crate::base::clock::{Clock, Nanos};
use crate::store::MemoryStore;

/// The longest pause before the thread tries again to lock a folder that another process has locked.
const LOCK_RETRY_DELAY: Nanos = Nanos::from_secs(1);

/// What the thread is ordered to do.
enum WriterOrder {
    /// Write a snapshot at once, and send when that is done.
    Write(Sender<()>),
    /// Write a last snapshot and end.
    WriteAndEnd,
    /// End without a further snapshot.
    End,
}

/// A handle to the thread that writes snapshots.
#[derive(Debug)]
pub struct SnapshotWriter {
    orders: Sender<WriterOrder>,
    thread: JoinHandle<()>,
}

impl SnapshotWriter {
    /// Starts the thread. `secret` is the secret with which keys are hashed.
    ///
    /// # Errors
    ///
    /// When the folder cannot be used, or the system gives no thread.
    pub fn start(
        settings: &Settings,
        memory: Arc<MemoryStore>,
        secret: [u8; 16],
        clock: Clock,
    ) -> Result<SnapshotWriter, FolderError> {
        let folder = SnapshotFolder::new(&settings.folder)?;
        let (orders, received_orders) = channel();
        let mut writer = WriterThread {
            interval: settings.interval.into(),
            folder,
            memory,
            secret,
            clock,
            orders: received_orders,
            next_order: None,
            lock: None,
            health: WriterHealth::Working,
        };
        let thread = thread::Builder::new().name("snapshots".into());
        let thread = thread.spawn(move || writer.run());
        let thread = thread.map_err(|cause| FolderError::new(&settings.folder, cause))?;
        Ok(SnapshotWriter { orders, thread })
    }

    /// Writes a snapshot of all counts so far, and waits until it is on the disk or could not be written.
    pub fn write(&self) {
        let (done_sender, done) = channel();
        if self.orders.send(WriterOrder::Write(done_sender)).is_ok() {
            // Fails only if the thread has panicked, because it ends by an order otherwise.
            let _ = done.recv();
        }
    }

    /// Writes the last snapshot and ends the thread. Units that are counted during or after this call may be missing in it.
    pub fn write_and_end(self) {
        self.order_end(WriterOrder::WriteAndEnd);
    }

    /// Ends the thread without writing, so that another process may write.
    pub fn end_without_writing(self) {
        self.order_end(WriterOrder::End);
    }

    /// Sends an order that ends the thread, and waits for the end.
    fn order_end(self, order: WriterOrder) {
        let is_sent = self.orders.send(order).is_ok();
        if self.thread.join().is_err() || !is_sent {
            tracing::error!("the thread that writes snapshots of counts panicked");
        }
    }
}

/// How the last attempt to write went. It is kept so that only changes are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterHealth {
    /// The last snapshot was written in time, or none was due yet.
    Working,
    /// The last complete snapshot took longer than half of the interval.
    Slow,
    /// The last snapshot could not be written.
    Failing,
    /// Another process has locked the folder.
    Locked,
}

/// When a copy began, and over which time its slices are spread, so that it never takes a processor for long.
#[derive(Clone, Copy)]
struct CopySchedule {
    start: Nanos,
    duration: Nanos,
}

/// What the thread owns.
struct WriterThread {
    /// Two snapshots are begun in each such time: see [`Settings::interval`].
    interval: Nanos,
    folder: SnapshotFolder,
    memory: Arc<MemoryStore>,
    secret: [u8; 16],
    clock: Clock,
    orders: Receiver<WriterOrder>,
    /// An order that came while a snapshot was copied by a schedule, or in the pause after it.
    next_order: Option<WriterOrder>,
    /// The lock file, once this process has locked it; `None` before.
    lock: Option<File>,
    health: WriterHealth,
}

impl WriterThread {
    /// Writes snapshots until an order ends the thread.
    fn run(&mut self) {
        // A period is half of the interval, and one snapshot begins in each. Until it is on the disk, a crash falls back to
        // the former one, which was begun a period earlier. So a snapshot that ends within its period keeps the promise of
        // the interval. The copy is spread over half of the period, and the other half is left for the final sync.
        let period = Nanos(self.interval.0 / 2);
        let duration = Nanos(period.0 / 2);
        loop {
            let start = self.clock.now();
            self.write(Some(CopySchedule { start, duration }));
            let elapsed = self.clock.now().since(start);
            let is_late = elapsed > period;
            if self.health == WriterHealth::Working && is_late {
                let (took, every) = (Duration::from(elapsed), Duration::from(self.interval));
                tracing::warn!(
                    ?took,
                    ?every,
                    "a snapshot of counts took too long; a crash forgives more than is counted in `every`"
                );
                self.health = WriterHealth::Slow;
            } else if self.health == WriterHealth::Slow && !is_late && self.next_order.is_none() {
                // Without an order that stopped the copy, this snapshot is complete and in time.
                self.health = WriterHealth::Working;
            }
            if self.next_order.is_none() {
                let remaining_period = Nanos(period.0.saturating_sub(elapsed.0));
                let pause = match self.health {
                    // The other process may end soon.
                    WriterHealth::Locked => remaining_period.min(LOCK_RETRY_DELAY),
                    _ => remaining_period,
                };
                self.next_order = wait_for_order(&self.orders, pause);
            }
            match self.next_order.take() {
                None => {}
                Some(WriterOrder::Write(done)) => {
                    self.write(None);
                    // The caller may be gone.
                    let _ = done.send(());
                }
                Some(WriterOrder::WriteAndEnd) => return self.write(None),
                Some(WriterOrder::End) => return,
            }
        }
    }

    /// Writes a snapshot, and logs a failure that is not the one before, or the end of failures. Without a schedule it
    /// copies at full speed.
    fn write(&mut self, schedule: Option<CopySchedule>) {
        let written = match self.try_lock() {
            Ok(true) => self.copy(schedule),
            Ok(false) => {
                if self.health != WriterHealth::Locked {
                    tracing::warn!(
                        folder = %self.folder.path().display(),
                        "another process writes its snapshots to this folder; this process writes none until that one ends. \
                         Two gateways need two folders"
                    );
                }
                self.health = WriterHealth::Locked;
                return;
            }
            Err(error) => Err(CopyError::Io(error)),
        };
        match written {
            Ok(()) if matches!(self.health, WriterHealth::Failing | WriterHealth::Locked) => {
                tracing::info!("snapshots of counts are written again");
                self.health = WriterHealth::Working;
            }
            Ok(()) | Err(CopyError::Stopped) => {}
            Err(CopyError::Io(error)) => {
                if self.health != WriterHealth::Failing {
                    tracing::error!(
                        folder = %self.folder.path().display(), %error,
                        "a snapshot of counts cannot be written; a crash forgives what is counted from now on. \
                         See that the disk has room and the folder can be written to"
                    );
                }
                self.health = WriterHealth::Failing;
            }
        }
    }

    /// Locks the folder, unless this process has locked it already. Returns `false` if another process has.
    fn try_lock(&mut self) -> io::Result<bool> {
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

    /// Copies the store into a new file. If the copy has a schedule, an order that comes meanwhile is kept in
    /// `next_order` and stops the copy. Without one, orders wait until the copy is complete.
    fn copy(&mut self, schedule: Option<CopySchedule>) -> Result<(), CopyError> {
        let WriterThread {
            folder,
            memory,
            secret,
            clock,
            orders,
            next_order,
            ..
        } = self;
        let wait_after_slice = |slices_done: u32, slice_count: u32| {
            let Some(CopySchedule { start, duration }) = schedule else {
                return true;
            };
            let slice_time = duration.0 / u64::from(slice_count);
            let due_at = start.after(Nanos(slice_time * u64::from(slices_done)));
            let wait = due_at.since(clock.now()).min(duration);
            *next_order = wait_for_order(orders, wait);
            next_order.is_none()
        };
        folder.write(|number, out| {
            write_snapshot(memory, out, number, *secret, clock, wait_after_slice)
        })
    }
}

/// Waits for an order, for `max_wait` at most; `None` if none came. A dropped handle counts as [`WriterOrder::End`].
fn wait_for_order(orders: &Receiver<WriterOrder>, max_wait: Nanos) -> Option<WriterOrder> {
    match orders.recv_timeout(max_wait.into()) {
        Ok(order) => Some(order),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(WriterOrder::End),
    }
}
