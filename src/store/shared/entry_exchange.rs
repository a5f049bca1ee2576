//! [`EntryExchange`]: writes entries to the store and reads those of other gateways. The thread that watches the store drives
//! it.

use tokio::time::timeout;

use super::call::StoreError;
use super::shared_entries::SharedEntries;
use super::shared_store::{BACKGROUND_TIMEOUT, SharedStore};

/// The most entries that are written at a time, so that heartbeats are not late.
const MAX_WRITES: usize = 200;
/// The number of ticks between two looks at the version of the entries.
const TICKS_PER_LOOK: u64 = 2;
/// The number of ticks after which all entries are read though their version is the same: a store that is full may have
/// dropped some.
const TICKS_PER_READ: u64 = 600;

/// What the store's keeper knows of the entries in the store.
#[derive(Debug, Default)]
pub(super) struct EntryExchange {
    /// The version of the entries that were read last; `None` if they must be read anew.
    version: Option<Vec<u8>>,
    /// The tick at which they were read last.
    read_at_tick: u64,
    /// Whether the store has refused a command, which was logged.
    has_refused: bool,
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
        let exchange = self.try_exchange(shared, &**entries, connection_index, tick);
        let outcome = timeout(BACKGROUND_TIMEOUT, exchange).await;
        match outcome {
            Ok(Ok(())) => self.has_refused = false,
            Ok(Err(StoreError::Other(error))) => {
                self.version = None;
                if !std::mem::replace(&mut self.has_refused, true) {
                    tracing::error!(%error, "the store does not share bans");
                }
            }
            _ => self.version = None,
        }
    }

    async fn try_exchange(
        &mut self,
        shared: &SharedStore,
        entries: &dyn SharedEntries,
        connection_index: usize,
        tick: u64,
    ) -> Result<(), StoreError> {
        let unpublished = entries.take_unpublished(MAX_WRITES);
        if !unpublished.is_empty() {
            shared
                .client
                .write_entries(connection_index, &unpublished)
                .await?;
        }
        if !tick.is_multiple_of(TICKS_PER_LOOK) && self.version.is_some() {
            return Ok(());
        }
        // The version is read first. If an entry changes in between, the next look finds another version.
        let version = shared.client.entries_version(connection_index).await?;
        let is_overdue = tick.saturating_sub(self.read_at_tick) >= TICKS_PER_READ;
        if self.version.as_ref() == Some(&version) && !is_overdue {
            return Ok(());
        }
        let values = shared.client.read_entries(connection_index).await?;
        entries.merge(&values);
        self.version = Some(version);
        self.read_at_tick = tick;
        Ok(())
    }
}
