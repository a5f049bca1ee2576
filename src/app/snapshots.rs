//! Restores the counts that the previous process saved, and starts and ends the thread that saves the counts of this
//! process. A snapshot holds counts, the secret with which their keys are hashed, and the time at which it was made.

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
    /// The newest snapshot; `None` if there is none, or if the gateway file configures none.
    snapshot: Option<SavedCounts>,
    /// A clock that continues from the time of the snapshot; without a snapshot, the clock of the process as it was.
    pub clock: Clock,
    /// The hasher of keys, with the secret of the snapshot or a random one.
    pub keyer: Keyer,
}

impl RestoredState {
    /// Reads the newest complete snapshot. No other part may have a reading of `clock` yet, because the snapshot moves
    /// it.
    ///
    /// # Errors
    ///
    /// The folder of the snapshots cannot be used.
    pub fn read_newest(process: &ProcessSettings, clock: Clock) -> Result<RestoredState, Error> {
        let snapshot = match &process.snapshots {
            Some(settings) => SavedCounts::newest(settings)?,
            None => None,
        };
        Ok(match &snapshot {
            Some(saved_counts) => RestoredState {
                clock: saved_counts.clock(clock),
                keyer: Keyer::new(saved_counts.secret()),
                snapshot,
            },
            None => RestoredState {
                clock,
                keyer: Keyer::random(),
                snapshot,
            },
        })
    }

    /// Loads the counts into the store, which must have its limits already and no counts yet. Damage is logged; counts
    /// behind the damage start at zero.
    pub fn restore_counts(self, store: &MemoryStore) {
        let now = self.clock.now();
        if let Some(Err(damage)) = self.snapshot.map(|snapshot| snapshot.load(store, now)) {
            tracing::error!(%damage, "restoring counts failed halfway; the rest starts at zero");
        }
    }
}

impl Gateway {
    /// Starts to write snapshots regularly, if the gateway file configures them.
    ///
    /// # Errors
    ///
    /// The folder of the snapshots cannot be used, or the thread that writes them cannot be started.
    pub(super) fn start_snapshots(&self) -> Result<(), Error> {
        if let Some(settings) = &self.process_settings.snapshots {
            let (store, clock) = (Arc::clone(&self.memory_store), self.clock.clone());
            let writer = SnapshotWriter::start(settings, store, self.keyer.secret(), clock)?;
            *self.snapshot_writer.lock() = Some(writer);
        }
        Ok(())
    }

    /// Writes a snapshot for a process that is about to start, if the gateway file configures snapshots. Waits until it
    /// is on the disk or has failed.
    pub fn write_snapshot(&self) {
        if let Some(writer) = &*self.snapshot_writer.lock() {
            writer.write();
        }
    }

    /// Leaves the snapshots and the files of Unix sockets to the process that has taken over: this one writes no more
    /// snapshots, and removes no files of sockets when it ends.
    pub fn leave_files_to_successor(&self) {
        self.socket_files.lock().clear();
        if let Some(writer) = self.snapshot_writer.lock().take() {
            writer.end_without_writing();
        }
    }
}
