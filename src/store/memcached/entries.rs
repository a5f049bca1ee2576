//! How [`MemcachedClient`] keeps the entries that gateways share, such as bans: as lines of a number of items, which are
//! changed by compare-and-swap, and a version that every change replaces by a random one. One server has all of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::client::{MemcachedClient, MemcachedServer};
use super::incarnation::random_bytes;
use super::keys::NO_EXPIRY;
use super::link::unexpected_reply;
use super::wire::{MAX_VALUE_BYTES, MetaReply, Replaces};
use crate::limit::Fingerprint;
use crate::store::shared::call::{CounterName, StoreError};
use crate::store::shared::shared_entries::{ORDER_BYTES, StoredEntry};

/// The number of items that have entries. 10,000 entries of 1 KB take a third of [`MAX_VALUE_BYTES`] in each.
const ITEM_COUNT: u64 = 64;
/// Most attempts to change an item, while other gateways do the same.
const MAX_ATTEMPTS: usize = 64;
/// Separates the name of an entry from its value.
const NAME_END: char = '\t';

impl MemcachedClient {
    /// The version of the entries: another one after every change. Empty before the first.
    ///
    /// # Errors
    ///
    /// There is no connection, or no usable reply.
    pub async fn entries_version(&self, connection_index: usize) -> Result<Vec<u8>, StoreError> {
        let key = self.entries_version_key();
        let replies = self.entries_server().call(connection_index, |batch| {
            batch.get(&key);
        });
        match replies.await?.get(0) {
            Some(MetaReply::Value { bytes, .. }) => Ok(bytes.to_vec()),
            Some(MetaReply::Missing) => Ok(Vec::new()),
            other => Err(unexpected_reply(other)),
        }
    }

    /// The values of all entries.
    ///
    /// # Errors
    ///
    /// There is no connection, or no usable reply.
    pub async fn read_entries(&self, connection_index: usize) -> Result<Vec<String>, StoreError> {
        let replies = self.entries_server().call(connection_index, |batch| {
            for item in 0..ITEM_COUNT {
                batch.get(&self.entries_key(item));
            }
        });
        let replies = replies.await?;
        let mut values = Vec::new();
        for index in 0..ITEM_COUNT as usize {
            match replies.get(index) {
                Some(MetaReply::Value { bytes, .. }) => values.extend(decode(bytes).into_values()),
                Some(MetaReply::Missing) => {}
                other => return Err(unexpected_reply(other)),
            }
        }
        Ok(values)
    }

    /// Stores those entries that are newer than the ones in the store, and removes those that are over.
    ///
    /// # Errors
    ///
    /// There is no connection, no usable reply, or an item has no room. Then a part may be stored.
    pub async fn write_entries(
        &self,
        connection_index: usize,
        entries: &[StoredEntry],
    ) -> Result<(), StoreError> {
        let mut entries_by_item: BTreeMap<u64, Vec<&StoredEntry>> = BTreeMap::new();
        for entry in entries {
            let item = item_of(&entry.name);
            entries_by_item.entry(item).or_default().push(entry);
        }
        let mut has_changed = false;
        for (item, entries) in entries_by_item {
            has_changed |= self.write_item(connection_index, item, &entries).await?;
        }
        if !has_changed {
            return Ok(());
        }
        let (key, version) = (self.entries_version_key(), random_bytes()?);
        let replies = self.entries_server().call(connection_index, |batch| {
            batch.set(&key, &version, NO_EXPIRY, Replaces::Anything);
        });
        match replies.await?.get(0) {
            Some(MetaReply::Done) => Ok(()),
            other => Err(unexpected_reply(other)),
        }
    }

    /// Changes one item. Returns whether anything in it was older.
    async fn write_item(
        &self,
        connection_index: usize,
        item: u64,
        entries: &[&StoredEntry],
    ) -> Result<bool, StoreError> {
        let key = self.entries_key(item);
        for _ in 0..MAX_ATTEMPTS {
            let replies = self.entries_server().call(connection_index, |batch| {
                batch.get_with_version(&key);
            });
            let (mut lines, replaces) = match replies.await?.get(0) {
                Some(MetaReply::Missing) => (BTreeMap::new(), Replaces::Nothing),
                Some(MetaReply::Value { bytes, version }) => {
                    (decode(bytes), Replaces::Version(*version))
                }
                other => return Err(unexpected_reply(other)),
            };
            if !change(&mut lines, entries) {
                return Ok(false);
            }
            let value = encode(&lines);
            if value.len() > MAX_VALUE_BYTES {
                return Err(StoreError::Other(Cow::Borrowed(
                    "there are too many long entries",
                )));
            }
            let replies = self.entries_server().call(connection_index, |batch| {
                batch.set(&key, value.as_bytes(), NO_EXPIRY, replaces);
            });
            match replies.await?.get(0) {
                Some(MetaReply::Done) => return Ok(true),
                // Another gateway was faster.
                Some(MetaReply::NotStored | MetaReply::Missing) => {}
                other => return Err(unexpected_reply(other)),
            }
        }
        Err(StoreError::Other(Cow::Borrowed(
            "too many gateways change the entries at once",
        )))
    }

    /// The server that has the entries: the same one for all gateways.
    fn entries_server(&self) -> &MemcachedServer {
        let name = CounterName {
            limit: 0,
            key: Fingerprint(0),
        };
        &self.servers[self.server_index(&name)]
    }

    fn entries_version_key(&self) -> String {
        format!("{}:entries-version", self.prefix)
    }

    fn entries_key(&self, item: u64) -> String {
        format!("{}:entries:{item}", self.prefix)
    }
}

/// The item that has the entry of this name.
fn item_of(name: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(name.as_bytes());
    hasher.finish() % ITEM_COUNT
}

/// Takes over those entries that are newer, and removes those that are over. Returns whether anything has changed.
fn change(lines: &mut BTreeMap<String, String>, entries: &[&StoredEntry]) -> bool {
    let mut has_changed = false;
    for entry in entries {
        let stored_order = lines
            .get(&entry.name)
            .and_then(|value| value.get(..ORDER_BYTES));
        let order = entry.value.get(..ORDER_BYTES);
        if entry.is_over && stored_order.is_some() && stored_order <= order {
            lines.remove(&entry.name);
            has_changed = true;
        } else if !entry.is_over && stored_order < order {
            lines.insert(entry.name.clone(), entry.value.clone());
            has_changed = true;
        }
    }
    has_changed
}

/// The values in an item by their names. Lines that are none are left out.
fn decode(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(bytes);
    let parse = |line: &str| {
        let (name, value) = line.split_once(NAME_END)?;
        Some((name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(parse).collect()
}

fn encode(lines: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (name, value) in lines {
        text.push_str(name);
        text.push(NAME_END);
        text.push_str(value);
        text.push('\n');
    }
    text
}
