//! [`RuntimeKeys`]: the API keys that operators add at run time. An operator's change publishes a new index of all keys,
//! and each worker takes it over with its next request. Only hashes of keys are kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::Unverified;
use super::api_keys::{Sha256Hash, sha256};

/// Every key begins so, for programs that search for secrets.
pub const KEY_PREFIX: &str = "tg_";
/// Bytes of a key: the prefix, and 43 letters and digits with 256 random bits.
pub const KEY_BYTES: usize = KEY_PREFIX.len() + 43;

/// The keys that operators have added, as all workers see them.
#[derive(Debug, Default)]
pub struct RuntimeKeys {
    /// Counts the indexes that were published. Workers compare it with that of the index that they have.
    version: AtomicU64,
    index: Mutex<Arc<RuntimeKeyIndex>>,
}

/// All keys by their hashes, those that were revoked or have ended included.
#[derive(Debug, Default)]
pub struct RuntimeKeyIndex {
    owners: HashMap<Sha256Hash, Arc<RuntimeKeyOwner>>,
}

/// What an operator says of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeKeyOwner {
    /// The name of the key for operators, which discloses nothing of it.
    pub id: Box<str>,
    /// The user, spelled as the upstream and the log get it.
    pub user: Arc<str>,
    /// The name of the plan; `None` for the default one.
    pub plan: Option<Box<str>>,
    /// The names and the values of custom identities.
    pub custom: Vec<(Box<str>, Arc<str>)>,
    /// The time since the Unix epoch from which on the key is no longer valid; `None` if it has no end.
    pub expires_at: Option<Duration>,
    /// Whether an operator has revoked the key.
    pub is_revoked: bool,
}

impl RuntimeKeys {
    /// Replaces the index.
    pub fn publish(&self, index: RuntimeKeyIndex) {
        *self.index.lock() = Arc::new(index);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The number of the current index: another number means another index.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The current index.
    pub fn index(&self) -> Arc<RuntimeKeyIndex> {
        self.index.lock().clone()
    }
}

impl RuntimeKeyIndex {
    /// Adds a key. Of two with one hash, that which is not valid stays.
    pub fn insert(&mut self, hash: Sha256Hash, owner: RuntimeKeyOwner) {
        let held = self.owners.entry(hash);
        let held = held.or_insert_with(|| Arc::new(owner.clone()));
        if owner.is_revoked {
            *held = Arc::new(owner);
        }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    fn find(&self, key: &[u8]) -> Option<&Arc<RuntimeKeyOwner>> {
        self.owners.get(&sha256(key)?)
    }
}

impl RuntimeKeyOwner {
    /// Why the key does not verify; `None` if it does. `wall_clock` returns the time since the Unix epoch, and is called
    /// only if the key has an end.
    pub fn fault(&self, wall_clock: impl Fn() -> Duration) -> Option<Unverified> {
        if self.is_revoked {
            return Some(Unverified::Revoked);
        }
        let has_ended = |expires_at: Duration| wall_clock() >= expires_at;
        self.expires_at
            .is_some_and(has_ended)
            .then_some(Unverified::Expired)
    }
}

/// The keys as one worker sees them.
#[derive(Debug)]
pub(super) struct RuntimeKeyView {
    keys: Arc<RuntimeKeys>,
    /// The index that was taken over last, and its version.
    latest: Mutex<(u64, Arc<RuntimeKeyIndex>)>,
}

impl RuntimeKeyView {
    pub(super) fn new(keys: &Arc<RuntimeKeys>) -> RuntimeKeyView {
        // The version is read first: if another index comes meanwhile, the next look takes that over.
        let version = keys.version();
        RuntimeKeyView {
            keys: keys.clone(),
            latest: Mutex::new((version, keys.index())),
        }
    }

    /// See [`RuntimeKeys::version`].
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.keys.version()
    }

    /// The owner of a key, which may have been revoked or have ended; `None` for any other text.
    pub(super) fn find(&self, key: &[u8]) -> Option<Arc<RuntimeKeyOwner>> {
        // Other credentials cost no hash.
        if key.len() != KEY_BYTES || !key.starts_with(KEY_PREFIX.as_bytes()) {
            return None;
        }
        let mut latest = self.latest.lock();
        let version = self.keys.version();
        if latest.0 != version {
            *latest = (version, self.keys.index());
        }
        latest.1.find(key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"tg_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";

    fn owner(expires_at: Option<u64>, is_revoked: bool) -> RuntimeKeyOwner {
        RuntimeKeyOwner {
            id: "k1".into(),
            user: "ann".into(),
            plan: None,
            custom: Vec::new(),
            expires_at: expires_at.map(Duration::from_secs),
            is_revoked,
        }
    }

    fn index(owners: &[RuntimeKeyOwner]) -> RuntimeKeyIndex {
        let mut index = RuntimeKeyIndex::default();
        for owner in owners {
            index.insert(sha256(KEY).unwrap(), owner.clone());
        }
        index
    }

    #[test]
    fn a_view_sees_each_index_that_is_published() {
        let keys = Arc::new(RuntimeKeys::default());
        let view = RuntimeKeyView::new(&keys);
        assert_eq!(view.find(KEY), None);
        keys.publish(index(&[owner(None, false)]));
        assert_eq!(view.version(), 1);
        assert_eq!(view.find(KEY).as_deref(), Some(&owner(None, false)));
        for other in [
            &KEY[..KEY.len() - 1],
            b"",
            b"tg_",
            b"tg_0123456789ABCDEFGhijklmnopqrstuvwxyzABCDEFG",
        ] {
            assert_eq!(view.find(other), None);
        }
        keys.publish(RuntimeKeyIndex::default());
        assert_eq!(view.find(KEY), None);
    }

    #[test]
    fn ends_and_revocations_are_faults() {
        let now = || Duration::from_secs(100);
        assert_eq!(owner(None, false).fault(now), None);
        assert_eq!(owner(Some(101), false).fault(now), None);
        let ended = owner(Some(100), false);
        assert_eq!(ended.fault(now), Some(Unverified::Expired));
        let revoked = owner(Some(101), true);
        assert_eq!(revoked.fault(now), Some(Unverified::Revoked));
        for owners in [
            [owner(None, false), owner(None, true)],
            [owner(None, true), owner(None, false)],
        ] {
            let keys = Arc::new(RuntimeKeys::default());
            keys.publish(index(&owners));
            let found = RuntimeKeyView::new(&keys).find(KEY);
            assert!(found.is_some_and(|owner| owner.is_revoked));
        }
    }
}
