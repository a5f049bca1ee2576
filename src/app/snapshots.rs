//! Restores the counts that the previous process saved, and starts and ends the thread that saves the counts of this
//! process. A snapshot holds counts, the secret with which their keys are hashed, and the time at which it was made.

use std::collections::HashSet;
use std::sync::Arc;

use super::error::Error;
use super::gateway::Gateway;
use crate::base::clock::Clock;
use crate::identity::Keyer;
use crate::operator::GrantRegistry;
use crate::policy::{ProcessSettings, Ruleset};
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
    /// behind the damage start at zero. Returns whether all counts of a snapshot were loaded.
    pub fn restore_counts(self, store: &MemoryStore) -> bool {
        let now = self.clock.now();
        match self.snapshot.map(|snapshot| snapshot.load(store, now)) {
            Some(Ok(_)) => true,
            Some(Err(damage)) => {
                tracing::error!(%damage, "restoring counts failed halfway; the rest starts at zero");
                false
            }
            None => false,
        }
    }
}

/// Logs how many accounts of limits with credits there are, where the counts of what was used of them are missing.
pub fn log_uncounted_accounts(ruleset: &Ruleset, grants: &GrantRegistry) {
    let rules = ruleset.rules.iter();
    let credits = rules.filter(|rule| rule.limit.is_credits());
    let limits: HashSet<String> = credits.map(|rule| rule.granted_limit()).collect();
    if limits.is_empty() {
        return;
    }
    let grants = grants.list();
    let accounts = grants
        .iter()
        .filter(|grant| grant.is_account() && limits.contains(&grant.terms.limit));
    let accounts = accounts.count();
    if accounts > 0 {
        tracing::error!(
            accounts,
            "no complete snapshot of counts was found, so used credits of accounts can be used again"
        );
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
