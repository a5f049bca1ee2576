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
use crate::store::shared::shared_entries::{
    MAX_ENTRIES, MAX_YIELDING, ORDER_BYTES, StoredEntry, YIELDING_MARK,
};

/// The number of items that have entries. 10,000 entries of 1 KB take a third of [`MAX_VALUE_BYTES`] in each.
const ITEM_COUNT: u64 = 64;
/// The most entries of an item before it takes no new ones that give way: twice its share.
const MAX_YIELDING_IN_ITEM: usize = 2 * MAX_YIELDING / ITEM_COUNT as usize;
/// The most entries of an item before it takes no new ones at all.
const MAX_ENTRIES_IN_ITEM: usize = 2 * MAX_ENTRIES / ITEM_COUNT as usize;
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
    pub async fn read_entries(&self, connection_index: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let replies = self.entries_server().call(connection_index, |batch| {
            for item in 0..ITEM_COUNT {
                batch.get(&self.entries_key(item));
            }
        });
        let replies = replies.await?;
        let mut values = Vec::new();
        for index in 0..ITEM_COUNT as usize {
            match replies.get(index) {
                Some(MetaReply::Value { bytes, .. }) => {
                    values.extend(decode(bytes).into_values().map(String::into_bytes));
                }
                Some(MetaReply::Missing) => {}
                other => return Err(unexpected_reply(other)),
            }
        }
        Ok(values)
    }

    /// Stores those entries that are newer than the ones in the store, and removes those that are over. Where there are too
    /// many, new ones are left out.
    ///
    /// # Errors
    ///
    /// There is no connection, no usable reply, or an item has no room. Then the other items are stored nevertheless.
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
        let (mut has_changed, mut outcome) = (false, Ok(()));
        for (item, entries) in entries_by_item {
            match self.write_item(connection_index, item, &entries).await {
                Ok(is_changed) => has_changed |= is_changed,
                Err(error) => outcome = Err(error),
            }
        }
        if !has_changed {
            return outcome;
        }
        let (key, version) = (self.entries_version_key(), random_bytes()?);
        let replies = self.entries_server().call(connection_index, |batch| {
            batch.set(&key, &version, NO_EXPIRY, Replaces::Anything);
        });
        match replies.await?.get(0) {
            Some(MetaReply::Done) => outcome,
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
            let Some(value) = encode_within(&mut lines, MAX_VALUE_BYTES) else {
                return Err(StoreError::Other(Cow::Borrowed(
                    "there are too many long entries",
                )));
            };
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
        } else if !entry.is_over
            && stored_order < order
            && (stored_order.is_some() || has_room(lines.len(), &entry.name))
        {
            lines.insert(entry.name.clone(), entry.value.clone());
            has_changed = true;
        }
    }
    has_changed
}

/// Whether an item of so many lines takes a new one of this name.
fn has_room(line_count: usize, name: &str) -> bool {
    let most = match name.starts_with(YIELDING_MARK) {
        true => MAX_YIELDING_IN_ITEM,
        false => MAX_ENTRIES_IN_ITEM,
    };
    line_count < most
}

/// The text of an item, of at most `max_bytes`. If it is longer, lines that give way are dropped; `None` if that does not
/// suffice.
fn encode_within(lines: &mut BTreeMap<String, String>, max_bytes: usize) -> Option<String> {
    loop {
        let text = encode(lines);
        if text.len() <= max_bytes {
            return Some(text);
        }
        // The mark comes after all letters, so these lines are the last ones.
        let last = lines.last_entry()?;
        if !last.key().starts_with(YIELDING_MARK) {
            return None;
        }
        last.remove();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, change: u64) -> StoredEntry {
        StoredEntry {
            name: name.into(),
            value: format!("{change:030}{{}}"),
            is_over: false,
        }
    }

    #[test]
    fn entries_that_give_way_are_dropped_first() {
        let names = [
            "ban user=a",
            "~ban user=b",
            "ban user=z",
            "~ban ip=192.0.2.1",
        ];
        let entries = names.map(|name| entry(name, 1));
        let mut lines = BTreeMap::new();
        assert!(change(&mut lines, &entries.each_ref()));
        let orders: BTreeMap<_, _> = lines
            .iter()
            .filter(|(name, _)| !name.starts_with(YIELDING_MARK))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let bytes = encode(&orders).len();
        assert_eq!(encode_within(&mut lines, bytes), Some(encode(&orders)));
        assert_eq!(encode_within(&mut lines, bytes - 1), None);
    }

    #[test]
    fn a_full_item_takes_orders_and_changes_only() {
        let mut lines = BTreeMap::new();
        for number in 0..MAX_YIELDING_IN_ITEM {
            let entry = entry(&format!("~ban user={number}"), 1);
            assert!(change(&mut lines, &[&entry]), "{number}");
        }
        assert!(!change(&mut lines, &[&entry("~ban user=late", 1)]));
        assert!(change(&mut lines, &[&entry("~ban user=0", 2)]));
        assert!(change(&mut lines, &[&entry("ban user=late", 1)]));
    }
}
