//! Restores the counts that the previous process saved, and saves the counts of this process. A snapshot holds counts,
//! the secret with which their keys are hashed, and the time at which it was taken.

use std::sync::Arc;

use super::error::Error;
use super::gateway::Gateway;
use crate::base::clock::Clock;
use crate::identity::Keyer;
use crate::policy::ProcessSettings;
use crate::store::MemoryStore;
use crate::store::snapshot::{SavedCounts, SnapshotWriter};

/// The state that the previous process saved, or a fresh state without a snapshot.
pub struct RestoredState {
    snapshot: Option<SavedCounts>,
    /// A clock that continues from the time of the snapshot.
    pub clock: Clock,
    /// The hasher of keys, with the secret of the snapshot or a random one.
    pub keyer: Keyer,
}

impl RestoredState {
    /// Finds the newest snapshot. Nothing may read the clock before, because the snapshot may move it.
    pub fn find(process: &ProcessSettings, clock: Clock) -> Result<RestoredState, Error> {
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

    /// Loads the counts into the store, which must know the limits already.
    pub fn restore_counts(self, store: &MemoryStore) {
        let now = self.clock.now();
        if let Some(Err(damage)) = self.snapshot.map(|snapshot| snapshot.load(store, now)) {
            tracing::error!(%damage, "restoring counts failed halfway; the rest starts at zero");
        }
    }
}

impl Gateway {
    /// Starts to write snapshots regularly, if the gateway file asks for them.
    pub(super) fn start_snapshots(&self) -> Result<(), Error> {
        if let Some(settings) = &self.process_settings.snapshots {
            let (store, clock) = (Arc::clone(&self.memory_store), self.clock.clone());
            let writer = SnapshotWriter::start(settings, store, self.keyer.secret(), clock)?;
            *self.snapshot_writer.lock() = Some(writer);
        }
        Ok(())
    }

    /// Writes a snapshot for a process that is about to start.
    pub fn write_snapshot(&self) {
        if let Some(writer) = &*self.snapshot_writer.lock() {
            writer.write();
        }
    }

    /// Leaves the snapshots and the files of Unix sockets to the process that has taken over.
    pub fn leave_files_to_successor(&self) {
        self.socket_files.lock().clear();
        if let Some(writer) = self.snapshot_writer.lock().take() {
            writer.end_without_writing();
        }
    }
}
