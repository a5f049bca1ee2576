//! Fetches the key sets that the gateway file names by URL, each with a fetcher of its own from `key_set_fetcher.rs`.
//!
//! Sets that the previous process has passed on are in use until they can be fetched. The number of fetchers is bounded
//! by the settings.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::key_set_fetcher::KeySetFetcher;
use super::passed_key_sets::PassedKeySets;
use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::Registry;
use crate::identity::jwt::{RemoteKeySet, VerificationKeys};
use crate::identity::{self, user};

/// The longest time for which a start waits for all sets together.
const FIRST_FETCH_TIMEOUT: Nanos = Nanos::from_secs(3);

/// The fetchers of all sets that the settings name.
pub struct KeySetFetchers {
    fetchers: Mutex<Vec<KeySetFetcher>>,
    /// Notified when a fetcher has got other keys than before.
    keys_changed: Arc<Notify>,
    registry: Registry,
    clock: Clock,
}

impl KeySetFetchers {
    /// Creates the list without a fetcher. [`KeySetFetchers::use_keys_of`] starts fetchers.
    pub fn new(registry: Registry, clock: Clock) -> KeySetFetchers {
        KeySetFetchers {
            fetchers: Mutex::default(),
            keys_changed: Arc::default(),
            registry,
            clock,
        }
    }

    /// Fetches the sets that `settings` name from now on, and no others. Writes the keys that were fetched so far into
    /// `settings`, with the sources to which tokens with unknown keys are reported.
    ///
    /// # Errors
    ///
    /// A thread cannot be started. The sets that were fetched before are still fetched, some of them perhaps from the
    /// sources of `settings`.
    pub fn use_keys_of(&self, settings: &mut identity::Settings) -> io::Result<()> {
        self.use_keys_with(settings, &PassedKeySets::default())
    }

    /// Does the same as [`KeySetFetchers::use_keys_of`] at the start, with passed sets in use at first. Waits for the
    /// first fetch of sets that have no keys yet, but no longer than [`FIRST_FETCH_TIMEOUT`] for all together.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn use_keys_of_and_wait(
        &self,
        settings: &mut identity::Settings,
        passed: &PassedKeySets,
    ) -> io::Result<()> {
        self.use_keys_with(settings, passed)?;
        let end = self.clock.now().after(FIRST_FETCH_TIMEOUT);
        // Only a start waits. Nothing else uses the fetchers yet, so the lock may be held.
        for fetcher in &*self.fetchers.lock() {
            fetcher.wait_for_first(Duration::from(end.since(self.clock.now())));
        }
        self.use_keys_of(settings)
    }

    /// Does the work of [`KeySetFetchers::use_keys_of`]. New fetchers begin with the keys of `passed`.
    fn use_keys_with(
        &self,
        settings: &mut identity::Settings,
        passed: &PassedKeySets,
    ) -> io::Result<()> {
        let mut fetchers = self.fetchers.lock();
        let mut previous_fetchers = mem::take(&mut *fetchers);
        for (source, keys) in remote_key_sets(settings) {
            let fetcher = match take_fetcher(&mut previous_fetchers, source) {
                Some(fetcher) => fetcher,
                None => {
                    let started = KeySetFetcher::start(
                        source.clone(),
                        passed.find(source),
                        self.keys_changed.clone(),
                        (self.registry.clone(), self.clock.clone()),
                    );
                    match started {
                        Ok(fetcher) => fetcher,
                        Err(error) => {
                            fetchers.append(&mut previous_fetchers);
                            return Err(error);
                        }
                    }
                }
            };
            // Unknown keys are reported to the source in the settings, so it must be the one that the fetcher listens
            // to.
            *source = fetcher.source();
            if let Some(fetched) = fetcher.take_keys() {
                *keys = fetched;
            }
            fetchers.push(fetcher);
        }
        Ok(())
    }

    /// The sets in use, for a process that takes over.
    pub fn sets(&self) -> PassedKeySets {
        let mut passed = PassedKeySets::default();
        for fetcher in &*self.fetchers.lock() {
            if let Some(set_bytes) = fetcher.set() {
                passed.add(&fetcher.source(), &set_bytes);
            }
        }
        passed
    }

    /// Waits until keys were fetched that no settings have got yet. Only one task may wait, because one is woken.
    pub async fn wait_for_new_keys(&self) {
        while !self.has_new_keys() {
            self.keys_changed.notified().await;
        }
    }

    fn has_new_keys(&self) -> bool {
        self.fetchers.lock().iter().any(KeySetFetcher::has_new_keys)
    }
}

/// Takes out the fetcher of an equal source, or else one of the same URL and issuer, and lets it fetch from `source`.
/// `None` if there is neither.
fn take_fetcher(fetchers: &mut Vec<KeySetFetcher>, source: &RemoteKeySet) -> Option<KeySetFetcher> {
    let is_equal = |fetcher: &KeySetFetcher| fetcher.source() == *source;
    let has_set = |fetcher: &KeySetFetcher| fetcher.source().is_same_set(source);
    let index = fetchers
        .iter()
        .position(is_equal)
        .or_else(|| fetchers.iter().position(has_set))?;
    let fetcher = fetchers.swap_remove(index);
    fetcher.redirect(source.clone());
    Some(fetcher)
}

/// The source of each set at a URL in the settings, and the keys that come from it.
fn remote_key_sets(
    settings: &mut identity::Settings,
) -> impl Iterator<Item = (&mut RemoteKeySet, &mut VerificationKeys)> {
    let issuers = settings
        .user_sources
        .iter_mut()
        .flat_map(|source| match source {
            user::Settings::Jwt(issuers) => issuers.as_mut_slice(),
            _ => &mut [],
        });
    issuers.filter_map(|jwt| Some((jwt.remote.as_mut()?, &mut jwt.keys)))
}
