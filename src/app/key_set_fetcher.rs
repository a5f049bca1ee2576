//! Fetches one key set again and again, on a thread of its own. No request waits for the thread. If a set cannot be
//! fetched or used, the previous one stays in use. Which sets are fetched is decided in `key_set_fetchers.rs`.

mod fetch;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Builder;
use tokio::sync::Notify;

use fetch::{FETCH_TIMEOUT, FetchError, FetchedKeySet, fetch_key_set};

use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::{Label, Metric, Registry};
use crate::identity::jwt::{RemoteKeySet, VerificationKeys};

/// The shortest time between two fetches for tokens with unknown keys, so that forged tokens do not load the issuer.
const MIN_REFETCH_INTERVAL: Nanos = Nanos::from_secs(60);

/// The delay after the first failure in a row. It doubles with each further one, up to [`MAX_RETRY_DELAY`].
const MIN_RETRY_DELAY: Nanos = Nanos::from_secs(1);

/// The longest delay after a failure.
const MAX_RETRY_DELAY: Nanos = Nanos::from_secs(60);

/// The largest number of doublings that are computed: enough to reach [`MAX_RETRY_DELAY`], and too few to overflow.
const MAX_DOUBLINGS: u32 = 16;

/// The longest real time between two readings of the clock while the next fetch is awaited, because a test may move the
/// clock.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The thread that fetches one key set, and the last usable set. Dropping it ends the thread and waits for that end.
pub struct KeySetFetcher {
    shared: Arc<SharedFetches>,
    thread: Option<JoinHandle<()>>,
}

/// The state of fetching, which the thread shares with the gateway.
struct SharedFetches {
    state: Mutex<FetchState>,
    /// Notified after each fetch.
    fetch_ended: Condvar,
    /// Notified when the thread has to fetch from another source, or to end.
    redirected: Notify,
    /// Notified when a fetched set differs from the one before. All fetchers share it.
    keys_changed: Arc<Notify>,
}

/// What was fetched so far, and what the thread has to do next.
struct FetchState {
    /// The URL of the set to fetch, and how to fetch it.
    source: RemoteKeySet,
    /// The last usable set: its bytes as they were received or passed on, and its keys. `None` before the first one.
    keys: Option<(Bytes, VerificationKeys)>,
    /// Whether keys were fetched that [`KeySetFetcher::take_keys`] has not returned yet.
    has_new_keys: bool,
    /// Whether a fetch from the source at that time has ended, with or without success.
    has_fetched: bool,
    /// Whether the thread has to end.
    is_ended: bool,
}

impl KeySetFetcher {
    /// Fetches the set of `source` from now on. Until the first success `keys` are in use. `keys_changed` is notified
    /// when a fetched set differs from the one before.
    ///
    /// # Errors
    ///
    /// The thread cannot be started, or its runtime cannot be built.
    pub fn start(
        source: RemoteKeySet,
        keys: Option<(Bytes, VerificationKeys)>,
        keys_changed: Arc<Notify>,
        (registry, clock): (Registry, Clock),
    ) -> io::Result<KeySetFetcher> {
        let shared = Arc::new(SharedFetches {
            state: Mutex::new(FetchState {
                source,
                keys,
                has_new_keys: false,
                has_fetched: false,
                is_ended: false,
            }),
            fetch_ended: Condvar::new(),
            redirected: Notify::new(),
            keys_changed,
        });
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let of_thread = shared.clone();
        let run_thread = move || {
            runtime.block_on(fetch_repeatedly(&of_thread, &registry, &clock));
            // A DNS lookup that still runs must not delay the end of the process.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new()
            .name("key-sets".into())
            .spawn(run_thread)?;
        Ok(KeySetFetcher {
            shared,
            thread: Some(thread),
        })
    }

    /// The source from which the set is fetched.
    pub fn source(&self) -> RemoteKeySet {
        self.shared.state.lock().source.clone()
    }

    /// Fetches from `source` from now on. It must be the same set, whose server may be verified by other authorities;
    /// the keys in use stay right. A running fetch from another source is given up.
    pub fn redirect(&self, source: RemoteKeySet) {
        let mut state = self.shared.state.lock();
        if state.source != source {
            state.source = source;
            self.shared.redirected.notify_one();
        }
    }

    /// The keys; `None` before the first usable set. It clears [`KeySetFetcher::has_new_keys`].
    pub fn take_keys(&self) -> Option<VerificationKeys> {
        let mut state = self.shared.state.lock();
        state.has_new_keys = false;
        state.keys.as_ref().map(|(_, keys)| keys.clone())
    }

    /// Whether keys were fetched since the last [`KeySetFetcher::take_keys`].
    pub fn has_new_keys(&self) -> bool {
        self.shared.state.lock().has_new_keys
    }

    /// The bytes of the set in use; `None` before the first usable one.
    pub fn set(&self) -> Option<Bytes> {
        let state = self.shared.state.lock();
        state.keys.as_ref().map(|(set, _)| set.clone())
    }

    /// Waits until a first fetch has ended, with or without success, for at most `timeout`. Returns at once if there
    /// are keys already.
    pub fn wait_for_first(&self, timeout: Duration) {
        let mut state = self.shared.state.lock();
        let is_awaited = |state: &mut FetchState| state.keys.is_none() && !state.has_fetched;
        let fetch_ended = &self.shared.fetch_ended;
        fetch_ended.wait_while_for(&mut state, is_awaited, timeout);
    }
}

impl Drop for KeySetFetcher {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.state.lock().is_ended = true;
            self.shared.redirected.notify_one();
            if thread.join().is_err() {
                tracing::error!("the thread that fetches key sets panicked");
            }
        }
    }
}

/// The work of the thread: fetches the set until the fetcher is dropped. The next fetch follows after the lifetime of
/// the set or the delay of a failure, or when a token has an unknown key.
async fn fetch_repeatedly(shared: &SharedFetches, registry: &Registry, clock: &Clock) {
    let count = |outcome| registry.counter(Metric::KeySetFetches, &[(Label::Outcome, outcome)]);
    // Both series begin at 0, because Prometheus sees no increase in one whose first sample is 1.
    let (fetched, failed) = (count("ok"), count("failed"));
    let mut failure_count = 0;
    loop {
        let (source, is_ended) = {
            let state = shared.state.lock();
            (state.source.clone(), state.is_ended)
        };
        if is_ended {
            return;
        }
        let result = tokio::select! {
            result = tokio::time::timeout(FETCH_TIMEOUT, fetch_key_set(&source)) => {
                result.unwrap_or(Err(FetchError::Timeout))
            }
            // The source has changed or the thread has to end, so this fetch is of no use.
            () = shared.redirected.notified() => {
                failure_count = 0;
                continue;
            }
        };
        let counter = if result.is_ok() { &fetched } else { &failed };
        counter.increment(1);
        failure_count = if result.is_ok() { 0 } else { failure_count + 1 };
        let now = clock.now();
        let delay = shared.accept_fetch(&source, result, failure_count);
        tokio::select! {
            () = wait_until(clock, now.after(delay)) => {}
            () = shared.redirected.notified() => failure_count = 0,
            () = wait_for_unknown_key(&source, clock, now.after(MIN_REFETCH_INTERVAL)) => {}
        }
    }
}

/// Waits for a token with an unknown key, and returns not before `earliest`.
async fn wait_for_unknown_key(source: &RemoteKeySet, clock: &Clock, earliest: Nanos) {
    wait_until(clock, earliest).await;
    source.unknown_key().await;
}

/// Waits until `clock` has reached `time`.
async fn wait_until(clock: &Clock, time: Nanos) {
    loop {
        let remaining = Duration::from(time.since(clock.now()));
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(remaining.min(CLOCK_CHECK_INTERVAL)).await;
    }
}

impl SharedFetches {
    /// Keeps a fetched set if the fetch succeeded, and logs a failure. Returns the time until the next fetch. If the
    /// source has changed during the fetch, the result is dropped and the time is zero.
    fn accept_fetch(
        &self,
        source: &RemoteKeySet,
        result: Result<FetchedKeySet, FetchError>,
        failure_count: u32,
    ) -> Nanos {
        let mut state = self.state.lock();
        if state.source != *source {
            return Nanos(0);
        }
        state.has_fetched = true;
        self.fetch_ended.notify_all();
        match result {
            Ok(set) => {
                let is_same_set = state
                    .keys
                    .as_ref()
                    .is_some_and(|(body, _)| *body == set.body);
                if !is_same_set {
                    tracing::info!(url = %source.url, keys = ?set.keys, "fetched a key set");
                    state.keys = Some((set.body, set.keys));
                    state.has_new_keys = true;
                    self.keys_changed.notify_one();
                }
                set.lifetime
            }
            Err(error) => {
                let in_use = match state.keys {
                    Some(_) => "the keys before stay in use",
                    None => "no token verifies until it is there",
                };
                tracing::warn!(url = %source.url, %error, in_use, "fetching the key set failed");
                retry_delay(failure_count)
            }
        }
    }
}

/// The delay after this many failures in a row.
fn retry_delay(failure_count: u32) -> Nanos {
    let doublings = failure_count.saturating_sub(1).min(MAX_DOUBLINGS);
    Nanos(MIN_RETRY_DELAY.0 << doublings).min(MAX_RETRY_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_after_failures() {
        let delays = [1, 2, 3, 6, 7, 8, u32::MAX]
            .map(|failure_count| Duration::from(retry_delay(failure_count)).as_secs());
        assert_eq!(delays, [1, 2, 4, 32, 60, 60, 60]);
    }
}
