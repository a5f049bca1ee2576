//! What there is of the process before, and what is left for the next: counts, the secret under which keys are
//! hashed, and the time that both are in.

use std::sync::Arc;

use super::error::Error;
use super::gateway::App;
use crate::base::clock::Clock;
use crate::identity::Keyer;
use crate::policy::Process;
use crate::store::Memory;
use crate::store::snapshot::{Found, Writer};

/// What the process before has left.
pub struct RestoredState {
    found: Option<Found>,
    /// Time, which goes on where it ended.
    pub clock: Clock,
    /// The same secret.
    pub keyer: Keyer,
}

impl RestoredState {
    /// Looks for it, before anything reads the clock.
    pub fn find(process: &Process, clock: Clock) -> Result<RestoredState, Error> {
        let found = match &process.snapshots {
            Some(settings) => Found::newest(settings)?,
            None => None,
        };
        Ok(match &found {
            Some(snapshot) => RestoredState {
                clock: snapshot.clock(clock),
                keyer: Keyer::new(snapshot.secret()),
                found,
            },
            None => RestoredState {
                clock,
                keyer: Keyer::random(),
                found,
            },
        })
    }

    /// Takes its counts into a store that knows the limits.
    pub fn restore_counts(self, store: &Memory) {
        let now = self.clock.now();
        if let Some(Err(damage)) = self.found.map(|found| found.load(store, now)) {
            tracing::error!(%damage, "counts are restored in part only: a disk that fails while it is read");
        }
    }
}

impl App {
    pub(super) fn start_snapshots(&self) -> Result<(), Error> {
        if let Some(settings) = &self.process.snapshots {
            let (store, clock) = (Arc::clone(&self.store), self.clock.clone());
            let writer = Writer::start(settings, store, self.keyer.secret(), clock)?;
            *self.snapshots.lock() = Some(writer);
        }
        Ok(())
    }

    /// Leaves all that is counted by now to a process that is about to start.
    pub fn hand_over(&self) {
        if let Some(writer) = &*self.snapshots.lock() {
            writer.write();
        }
    }

    /// Leaves the writing of snapshots and the files of Unix sockets to the process that has started.
    pub fn handed_over(&self) {
        self.socket_files.lock().clear();
        if let Some(writer) = self.snapshots.lock().take() {
            writer.leave();
        }
    }
}
