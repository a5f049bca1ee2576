//! How [`RedisClient`] keeps the entries that gateways share, such as bans: one hash, and a version that every change
//! replaces by a random one. A counter would not do: after a failover it could come to the same number with other entries.

use std::borrow::Cow;

use redis::Value;

use super::client::RedisClient;
use crate::store::shared::call::StoreError;
use crate::store::shared::shared_entries::{
    MAX_ENTRIES, MAX_YIELDING, ORDER_BYTES, StoredEntry, YIELDING_MARK,
};

/// Bytes of a version.
const VERSION_BYTES: usize = 16;

impl RedisClient {
    /// The version of the entries: another one after every change. Empty before the first.
    ///
    /// # Errors
    ///
    /// There is no connection, or no usable reply.
    pub async fn entries_version(&self, connection_index: usize) -> Result<Vec<u8>, StoreError> {
        let mut get = redis::cmd("GET");
        get.arg(self.entries_key("entries-version"));
        match self.send(connection_index, 0, &get).await? {
            Value::BulkString(version) => Ok(version),
            Value::Nil => Ok(Vec::new()),
            _ => Err(unexpected()),
        }
    }

    /// The values of all entries. They are bytes, because others may have written them.
    ///
    /// # Errors
    ///
    /// There is no connection, or no usable reply.
    pub async fn read_entries(&self, connection_index: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut read = redis::cmd("HVALS");
        read.arg(self.entries_key("entries"));
        let values = self.send(connection_index, 0, &read).await?;
        let Value::Array(values) = values else {
            return Err(unexpected());
        };
        let bytes_of = |value| match value {
            Value::BulkString(bytes) => Some(bytes),
            _ => None,
        };
        Ok(values.into_iter().filter_map(bytes_of).collect())
    }

    /// Stores those entries that are newer than the ones in the store, and removes those that are over. Where there are too
    /// many, new ones are left out.
    ///
    /// # Errors
    ///
    /// There is no connection, or no usable reply.
    pub async fn write_entries(
        &self,
        connection_index: usize,
        entries: &[StoredEntry],
    ) -> Result<(), StoreError> {
        let mut version = [0; VERSION_BYTES];
        let no_random = |_| StoreError::Other(Cow::Borrowed("the system gives no random bytes"));
        getrandom::fill(&mut version).map_err(no_random)?;
        let reply = self.run_script(connection_index, 0, &self.entries_script, |command| {
            command
                .arg(2)
                .arg(self.entries_key("entries"))
                .arg(self.entries_key("entries-version"))
                .arg(&version[..])
                .arg(ORDER_BYTES)
                .arg(YIELDING_MARK.to_string())
                .arg(MAX_YIELDING)
                .arg(MAX_ENTRIES);
            for entry in entries {
                command
                    .arg(&entry.name)
                    .arg(&entry.value)
                    .arg(u8::from(entry.is_over));
            }
        });
        reply.await.map(|_| ())
    }

    fn entries_key(&self, name: &str) -> String {
        format!("{}{name}", self.key_prefix(0))
    }
}

fn unexpected() -> StoreError {
    StoreError::Other(Cow::Borrowed("the entries in the store are malformed"))
}
