//! Takes over counts from the previous process, and leaves them to the next one.
//!
//! A snapshot holds the counts, the secret by which keys are hashed, and the time of both.

use std::sync::Arc;

use super::error::Error;
use super::gateway::App;
use crate::base::clock::Clock;
use crate::identity::Keyer;
use crate::policy::Process;
use crate::store::Memory;
use crate::store::snapshot::{SavedCounts, SnapshotWriter};

/// The state that the previous process has left.
pub struct RestoredState {
    snapshot: Option<SavedCounts>,
    /// The clock, which continues where that process ended.
    pub clock: Clock,
    /// The same secret as before, or a random one without a snapshot.
    pub keyer: Keyer,
}

impl RestoredState {
    /// Looks for a snapshot. Call it before anything reads the clock.
    pub fn find(process: &Process, clock: Clock) -> Result<RestoredState, Error> {
        let snapshot = match &process.snapshots {
            Some(settings) => SavedCounts::newest(settings)?,
            None => None,
        };
        Ok(match &snapshot {
            Some(newest) => RestoredState {
                clock: newest.clock(clock),
                keyer: Keyer::new(newest.secret()),
                snapshot,
            },
            None => RestoredState {
                clock,
                keyer: Keyer::random(),
                snapshot,
            },
        })
    }

    /// Loads the counts into a store that has the limits.
    pub fn restore_counts(self, store: &Memory) {
        let now = self.clock.now();
        if let Some(Err(damage)) = self.snapshot.map(|snapshot| snapshot.load(store, now)) {
            tracing::error!(%damage, "restoring counts failed halfway; the rest starts at zero");
        }
    }
}

impl App {
    pub(super) fn start_snapshots(&self) -> Result<(), Error> {
        if let Some(settings) = &self.process.snapshots {
            let (store, clock) = (Arc::clone(&self.store), self.clock.clone());
            let writer = SnapshotWriter::start(settings, store, self.keyer.secret(), clock)?;
            *self.snapshots.lock() = Some(writer);
        }
        Ok(())
    }

    /// Writes a snapshot for a process that is about to start.
    pub fn write_snapshot(&self) {
        if let Some(writer) = &*self.snapshots.lock() {
            writer.write();
        }
    }

    /// Leaves snapshots and the files of Unix sockets to the process that has started.
    pub fn finish_handover(&self) {
        self.socket_files.lock().clear();
        if let Some(writer) = self.snapshots.lock().take() {
            writer.leave();
        }
    }
}
