//! [`ApiKeyRegistry`]: the API keys among the entries of a gateway. It makes keys and shows each once; what it keeps is the
//! SHA-256 hash. Operators revoke a key by its id, which is made of that hash and discloses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::api_key_id::{find_id, hex_digits};
use super::entry::{EntryGroup, EntryKind, OperatorEntry};
use super::entry_registry::{EntryRegistry, RefreshedEntries};
use super::entry_terms::{ApiKeyTerms, EntryTerms};
use super::error::ApiKeyError;
use super::new_api_key::{NewApiKey, check_new_key, make_key};
use super::registry_state::{RegistryState, bounded_name};
use crate::identity::Settings;
use crate::identity::api_keys::sha256;
use crate::identity::runtime_keys::{RuntimeKeyIndex, RuntimeKeyOwner, RuntimeKeys};

/// The API keys that operators have added.
#[derive(Debug)]
pub struct ApiKeyRegistry {
    entries: Arc<EntryRegistry>,
    keys: Arc<RuntimeKeys>,
    is_published: AtomicBool,
}

/// A key as it is listed, without the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedApiKey {
    /// The entry; its key is the id of the API key.
    pub entry: OperatorEntry,
    /// Whose the key is.
    pub terms: ApiKeyTerms,
    /// Whether the entry is on the disk.
    pub is_kept: bool,
}

/// A key that was made just now.
pub struct AddedApiKey {
    /// The key. Nothing else has it.
    pub key: String,
    /// What is known of it later.
    pub listed: ListedApiKey,
}

impl ApiKeyRegistry {
    /// The most keys, those included that were revoked and could come back.
    pub const MAX_KEYS: usize = EntryGroup::ApiKeys.max_entries();

    /// The API keys among these entries.
    pub fn new(entries: Arc<EntryRegistry>) -> ApiKeyRegistry {
        ApiKeyRegistry {
            entries,
            keys: Arc::default(),
            is_published: AtomicBool::new(false),
        }
    }

    /// The keys as workers see them.
    pub fn runtime_keys(&self) -> &Arc<RuntimeKeys> {
        &self.keys
    }

    /// Makes a key. Its entry is on the disk when this returns, if it can be kept.
    ///
    /// # Errors
    ///
    /// See [`ApiKeyError`].
    pub fn add(&self, new_key: NewApiKey, settings: &Settings) -> Result<AddedApiKey, ApiKeyError> {
        check_new_key(&new_key, settings)?;
        let key = make_key()?;
        let hash = sha256(key.as_bytes()).ok_or(ApiKeyError::NoRandom)?;
        let id = find_id(&hash).ok_or(ApiKeyError::NoRandom)?;
        let mut state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let slots = state.entries.slots();
        let kept = slots.filter(|slot| {
            slot.entry.kind == EntryKind::ApiKey && wall_millis < slot.entry.keep_until
        });
        if kept.count() >= ApiKeyRegistry::MAX_KEYS {
            return Err(ApiKeyError::Full(ApiKeyRegistry::MAX_KEYS));
        }
        let end = |duration: Duration| wall_millis.saturating_add(duration.as_millis() as u64);
        let until = new_key.duration.map_or(OperatorEntry::NO_END, end);
        let entry = OperatorEntry {
            kind: EntryKind::ApiKey,
            key: id.clone(),
            hash: None,
            reason: new_key.name,
            by: bounded_name(&new_key.by),
            since: wall_millis,
            until,
            keep_until: until,
            changed_at: wall_millis,
            origin: self.entries.origin(),
            earlier_bans: 0,
            terms: Some(EntryTerms::ApiKey(ApiKeyTerms {
                sha256: hex_digits(&hash),
                user: new_key.user,
                plan: new_key.plan,
                identities: new_key.identities,
            })),
            is_revoked: false,
        };
        if !state.change(entry) {
            return Err(ApiKeyError::Superseded(id));
        }
        state.save();
        let listed = listed_key(&state, &id, wall_millis);
        let listed = listed.ok_or(ApiKeyError::Superseded(id))?;
        Ok(AddedApiKey { key, listed })
    }

    /// Revokes the key with this id, and returns it as it was. The change is on the disk when this returns, if it is kept.
    ///
    /// # Errors
    ///
    /// No key that holds has this id, or a gateway whose clock is far ahead has changed it.
    pub fn revoke(&self, id: &str, by: &str) -> Result<ListedApiKey, ApiKeyError> {
        let mut state = self.entries.lock();
        let revocation = self.entries.revocation(by);
        let wall_millis = revocation.wall_millis;
        let id = id.trim();
        let Some(listed) = listed_key(&state, id, wall_millis) else {
            return Err(ApiKeyError::unknown(id));
        };
        state.revoke((EntryKind::ApiKey, id), &revocation);
        state.save();
        match listed_key(&state, id, wall_millis) {
            None => Ok(ListedApiKey {
                is_kept: state.is_kept(&listed.entry),
                ..listed
            }),
            Some(_) => Err(ApiKeyError::Superseded(id.to_owned())),
        }
    }

    /// The keys that hold, in the order of their users; of one user, the oldest first.
    pub fn list(&self) -> Vec<ListedApiKey> {
        let state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let slots = state.entries.slots();
        let ids = slots.filter(|slot| slot.entry.kind == EntryKind::ApiKey);
        let mut keys: Vec<ListedApiKey> = ids
            .filter_map(|slot| listed_key(&state, &slot.entry.key, wall_millis))
            .collect();
        keys.sort_by(|a, b| (&a.terms.user, a.entry.since).cmp(&(&b.terms.user, b.entry.since)));
        keys
    }

    /// The number of keys that hold.
    pub fn count(&self) -> usize {
        let state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        state.entries.active_count(EntryKind::ApiKey, wall_millis)
    }

    /// Publishes a new index if a key has changed or ended.
    pub fn publish(&self, refreshed: &RefreshedEntries) {
        let was_published = self.is_published.swap(true, Ordering::Relaxed);
        if was_published && !refreshed.concerns(&[EntryKind::ApiKey]) {
            return;
        }
        let index = build_index(&self.entries.lock());
        if was_published || !index.is_empty() {
            self.keys.publish(index);
        }
    }
}

/// The key with this id as it is listed; `None` if none holds.
fn listed_key(state: &RegistryState, id: &str, wall_millis: u64) -> Option<ListedApiKey> {
    let entry = &state.entries.get(EntryKind::ApiKey, id)?.entry;
    let Some(EntryTerms::ApiKey(terms)) = &entry.terms else {
        return None;
    };
    entry.is_active(wall_millis).then(|| ListedApiKey {
        entry: entry.clone(),
        terms: terms.clone(),
        is_kept: state.is_kept(entry),
    })
}

/// The index of all keys, so that a request with one that has ended learns why it is refused.
fn build_index(state: &RegistryState) -> RuntimeKeyIndex {
    let mut index = RuntimeKeyIndex::default();
    for slot in state.entries.slots() {
        let entry = &slot.entry;
        let Some(EntryTerms::ApiKey(terms)) = &entry.terms else {
            continue;
        };
        let Some(hash) = terms.hash() else {
            continue;
        };
        let identities = terms.identities.iter();
        let owner = RuntimeKeyOwner {
            id: entry.key.as_str().into(),
            user: terms.user.as_str().into(),
            plan: terms.plan.as_deref().map(Into::into),
            custom: identities
                .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
                .collect(),
            expires_at: entry.end().map(Duration::from_millis),
            is_revoked: entry.is_revoked,
        };
        index.insert(hash, owner);
    }
    index
}
