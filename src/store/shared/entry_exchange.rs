//! [`EntryExchange`]: writes entries to the store and reads those of other gateways. The thread that watches the store drives
//! it.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use tokio::time::timeout;

use super::call::StoreError;
use super::shared_entries::SharedEntries;
use super::shared_store::{BACKGROUND_TIMEOUT, SharedStore};

/// The most entries that are written at a time, so that heartbeats are not late.
const MAX_WRITES: usize = 200;
/// The number of ticks between two looks at the version of the entries.
const TICKS_PER_LOOK: u64 = 2;
/// The number of entries that are read in a tick on average: many entries are read less often, however often they change.
const ENTRIES_PER_TICK: u64 = 500;
/// The number of ticks after which all entries are read though their version is the same: a store that is full may have
/// dropped some.
const TICKS_PER_READ: u64 = 600;
/// The number of ticks without an exchange after one that has failed.
const TICKS_AFTER_FAILURE: u64 = 10;

/// What the store's keeper knows of the entries in the store.
#[derive(Debug, Default)]
pub(super) struct EntryExchange {
    /// The version of the entries that were read last; `None` if they must be read anew.
    version: Option<Vec<u8>>,
    /// The tick at which they were read last.
    read_at_tick: u64,
    /// The tick before which they are not read again.
    next_read_tick: u64,
    /// The tick before which nothing is exchanged.
    next_tick: u64,
    /// Whether the last exchange has failed, which was logged.
    has_failed: bool,
}

impl EntryExchange {
    /// Writes what the store may lack, and reads its entries if they have changed. That the store is away is not reported,
    /// because its checks do so. After a failure everything is compared.
    pub(super) async fn exchange(
        &mut self,
        shared: &SharedStore,
        connection_index: usize,
        tick: u64,
    ) {
        let Some(entries) = shared.entries.get() else {
            return;
        };
        if tick < self.next_tick {
            return;
        }
        let exchange = self.try_exchange(shared, &**entries, connection_index, tick);
        let outcome = timeout(BACKGROUND_TIMEOUT, exchange).await;
        let trouble = match outcome {
            Ok(Ok(())) => {
                self.has_failed = false;
                return;
            }
            Ok(Err(StoreError::Other(error))) => Some(error),
            Ok(Err(StoreError::Late)) | Err(_) => Some(Cow::Borrowed("the store is too slow")),
            Ok(Err(_)) => None,
        };
        self.version = None;
        self.next_tick = tick + TICKS_AFTER_FAILURE;
        if let Some(error) = trouble
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::error!(%error, "the store does not share orders of operators");
        }
    }

    /// Writes what was ordered last. An exchange may have been cut short, so what the store has is read first.
    pub(super) async fn finish(shared: &SharedStore, connection_index: usize) {
        let Some(entries) = shared.entries.get() else {
            return;
        };
        let values = shared.client.read_entries(connection_index).await;
        if values.is_ok_and(|values| entries.merge(&values)) {
            let last = entries.take_unpublished(MAX_WRITES);
            // If this fails, the entries are in the file, if there is one.
            let _ = shared.client.write_entries(connection_index, &last).await;
        }
    }

    /// Writes and reads. What cannot be written keeps nothing from being read.
    async fn try_exchange(
        &mut self,
        shared: &SharedStore,
        entries: &dyn SharedEntries,
        connection_index: usize,
        tick: u64,
    ) -> Result<(), StoreError> {
        let client = &shared.client;
        let unpublished = entries.take_unpublished(MAX_WRITES);
        let written = match unpublished.is_empty() {
            true => Ok(()),
            false => client.write_entries(connection_index, &unpublished).await,
        };
        let is_time_to_look = tick.is_multiple_of(TICKS_PER_LOOK) || self.version.is_none();
        if !is_time_to_look || tick < self.next_read_tick {
            return written;
        }
        // The version is read first. If an entry changes in between, the next look finds another version.
        let version = client.entries_version(connection_index).await?;
        let is_overdue = tick.saturating_sub(self.read_at_tick) >= TICKS_PER_READ;
        if self.version.as_ref() == Some(&version) && !is_overdue {
            return written;
        }
        let values = client.read_entries(connection_index).await?;
        self.next_read_tick = tick + values.len() as u64 / ENTRIES_PER_TICK;
        if entries.merge(&values) {
            self.version = Some(version);
            self.read_at_tick = tick;
            shared.has_read_entries.store(true, Ordering::Release);
        }
        written
    }
}
