//! Fetches the key set that the gateway file names by URL, on a thread of its own. No request waits for the thread. If
//! a set cannot be fetched or used, the previous one stays in use.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::Empty;
use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::sync::Notify;

use crate::base::clock::{Clock, Nanos};
use crate::base::telemetry::{Label, Metric, Registry};
use crate::identity::jwt::{RemoteKeySet, VerificationKeys, VerificationKeysError};
use crate::identity::{self, jwt, user};
use crate::net::Roots;
use crate::net::client::{BoxError, send_request};

/// The longest time for all requests of one fetch together.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time for which a start waits for the set.
const FIRST_FETCH_TIMEOUT: Duration = Duration::from_secs(3);

/// The shortest time for which a set is used before it is fetched again, whatever `Cache-Control` says.
const MIN_LIFETIME: Nanos = Nanos::from_secs(60);

/// The longest time for which a set is used before it is fetched again.
const MAX_LIFETIME: Nanos = Nanos::from_secs(86_400);

/// The lifetime of a set without `Cache-Control: max-age`.
const DEFAULT_LIFETIME: Nanos = Nanos::from_secs(600);

/// The shortest time between two fetches for tokens with unknown keys, so that forged tokens do not load the issuer.
const MIN_REFETCH_INTERVAL: Nanos = Nanos::from_secs(60);

/// The delay after the first failure in a row. It doubles with each further one, up to [`MAX_RETRY_DELAY`].
const MIN_RETRY_DELAY: Nanos = Nanos::from_secs(1);

/// The longest delay after a failure.
const MAX_RETRY_DELAY: Nanos = Nanos::from_secs(60);

/// How often the clock is read while the next fetch is awaited. A manual clock may jump.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why a key set could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("no response within {} seconds", FETCH_TIMEOUT.as_secs())]
    Timeout,
    #[error("{0}")]
    Connection(BoxError),
    #[error("its server responds with status {0}")]
    Status(StatusCode),
    #[error("the OpenID configuration is of another issuer")]
    Issuer,
    #[error("the OpenID configuration names no key set under https://")]
    KeySetUrl,
    #[error(transparent)]
    Keys(#[from] VerificationKeysError),
}

/// The thread that fetches one key set, and the last usable set. Dropping it ends the thread and waits for that end.
pub struct KeySetFetcher {
    shared: Arc<SharedFetches>,
    thread: Mutex<Option<JoinHandle<()>>>,
    registry: Registry,
    clock: Clock,
}

/// The state of fetching, which the thread shares with the gateway.
#[derive(Default)]
struct SharedFetches {
    state: Mutex<FetchState>,
    /// Notified after each fetch.
    fetched: Condvar,
    /// Notified when the thread has to fetch another set, or to end.
    redirected: Notify,
    /// Notified when other keys than before have come.
    changed: Notify,
}

#[derive(Default)]
struct FetchState {
    /// The set to fetch; `None` while there is nothing to fetch.
    source: Option<RemoteKeySet>,
    /// The last usable set: its bytes as they were received, and its keys.
    keys: Option<(Bytes, VerificationKeys)>,
    /// Whether keys were fetched that [`KeySetFetcher::take_keys`] has not returned yet.
    has_new_keys: bool,
    /// Whether a fetch from the source at that time has ended, with or without success.
    has_fetched: bool,
    /// Whether the thread has to end.
    is_ended: bool,
}

impl KeySetFetcher {
    /// Makes a fetcher without a set.
    pub fn new(registry: Registry, clock: Clock) -> KeySetFetcher {
        KeySetFetcher {
            shared: Arc::default(),
            thread: Mutex::new(None),
            registry,
            clock,
        }
    }

    /// Fetches the set that `settings` name from now on, and writes the keys that were fetched so far into them. If
    /// they name no set, fetching stops.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn follow(&self, settings: &mut identity::Settings) -> io::Result<()> {
        let Some((remote, keys)) = remote_key_set(settings) else {
            self.redirect(None);
            return Ok(());
        };
        let mut thread = self.thread.lock();
        if thread.is_none() {
            *thread = Some(self.spawn()?);
        }
        if let Some(followed) = self.redirect(Some(remote.clone())) {
            *remote = followed;
        }
        let mut state = self.shared.state.lock();
        state.has_new_keys = false;
        if let Some((_, fetched)) = &state.keys {
            *keys = fetched.clone();
        }
        Ok(())
    }

    /// Does the same as [`KeySetFetcher::follow`], and waits a moment for a set that was not fetched yet.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn follow_and_wait(&self, settings: &mut identity::Settings) -> io::Result<()> {
        self.follow(settings)?;
        let mut state = self.shared.state.lock();
        let is_awaited = |state: &mut FetchState| state.source.is_some() && !state.has_fetched;
        self.shared
            .fetched
            .wait_while_for(&mut state, is_awaited, FIRST_FETCH_TIMEOUT);
        drop(state);
        self.follow(settings)
    }

    /// Waits until there are keys that no settings have got yet.
    pub async fn changed(&self) {
        while !self.shared.state.lock().has_new_keys {
            self.shared.changed.notified().await;
        }
    }

    /// Makes the thread fetch another set. Returns the set that the thread fetches now: the previous one if both are
    /// equal.
    fn redirect(&self, source: Option<RemoteKeySet>) -> Option<RemoteKeySet> {
        let mut state = self.shared.state.lock();
        if state.source != source {
            // Other authorities, for instance, do not make the keys of an issuer wrong.
            let url = |source: &Option<RemoteKeySet>| source.as_ref().map(|it| it.url.clone());
            if url(&state.source) != url(&source) {
                *state = FetchState::default();
            }
            state.source = source;
            self.shared.redirected.notify_one();
        }
        state.source.clone()
    }

    fn spawn(&self) -> io::Result<JoinHandle<()>> {
        let (shared, registry) = (self.shared.clone(), self.registry.clone());
        let clock = self.clock.clone();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            runtime.block_on(fetch_repeatedly(&shared, &registry, &clock));
            // A DNS lookup that still runs must not delay the end of the process.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("key-sets".into()).spawn(run)
    }
}

impl Drop for KeySetFetcher {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.lock().take() {
            self.shared.state.lock().is_ended = true;
            self.shared.redirected.notify_one();
            if thread.join().is_err() {
                tracing::error!("the thread that fetches key sets panicked");
            }
        }
    }
}

/// The set at a URL in the settings, and the keys that come from it.
fn remote_key_set(
    settings: &mut identity::Settings,
) -> Option<(&mut RemoteKeySet, &mut VerificationKeys)> {
    settings.users.iter_mut().find_map(|user| match user {
        user::Settings::Jwt(jwt) => Some((jwt.remote.as_mut()?, &mut jwt.keys)),
        _ => None,
    })
}

/// Fetches the set again and again, until the fetcher is dropped. This is the work of the thread.
async fn fetch_repeatedly(shared: &SharedFetches, registry: &Registry, clock: &Clock) {
    let mut failure_count = 0;
    loop {
        let (source, is_ended) = {
            let state = shared.state.lock();
            (state.source.clone(), state.is_ended)
        };
        if is_ended {
            return;
        }
        let Some(source) = source else {
            shared.redirected.notified().await;
            continue;
        };
        let fetched = tokio::select! {
            fetched = tokio::time::timeout(FETCH_TIMEOUT, fetch_key_set(&source)) => {
                fetched.unwrap_or(Err(FetchError::Timeout))
            }
            // The source has changed or the thread has to end, so this fetch is of no use.
            () = shared.redirected.notified() => {
                failure_count = 0;
                continue;
            }
        };
        let outcome = if fetched.is_ok() { "ok" } else { "failed" };
        registry
            .counter(Metric::KeySetFetches, &[(Label::Outcome, outcome)])
            .increment(1);
        failure_count = if fetched.is_ok() {
            0
        } else {
            failure_count + 1
        };
        let now = clock.now();
        let delay = shared.accept_fetch(&source, fetched, failure_count);
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
        fetched: Result<FetchedKeySet, FetchError>,
        failure_count: u32,
    ) -> Nanos {
        let mut state = self.state.lock();
        if state.source.as_ref() != Some(source) {
            return Nanos(0);
        }
        state.has_fetched = true;
        self.fetched.notify_all();
        match fetched {
            Ok(set) => {
                let is_same_set = state
                    .keys
                    .as_ref()
                    .is_some_and(|(body, _)| *body == set.body);
                if !is_same_set {
                    tracing::info!(url = %source.url, keys = ?set.keys, "fetched a key set");
                    state.keys = Some((set.body, set.keys));
                    state.has_new_keys = true;
                    self.changed.notify_one();
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
    let doublings = failure_count.saturating_sub(1).min(16);
    Nanos(MIN_RETRY_DELAY.0 << doublings).min(MAX_RETRY_DELAY)
}

/// A set that was fetched and can be used.
struct FetchedKeySet {
    body: Bytes,
    keys: VerificationKeys,
    /// How long it is used before it is fetched again.
    lifetime: Nanos,
}

/// Fetches a set once. If its URL leads to an OpenID configuration, the set that this names is fetched.
async fn fetch_key_set(source: &RemoteKeySet) -> Result<FetchedKeySet, FetchError> {
    let mut response = send_get(&source.roots, &source.url).await?;
    if let Some(url) = key_set_url(source, response.body())? {
        response = send_get(&source.roots, &url).await?;
    }
    Ok(FetchedKeySet {
        keys: VerificationKeys::from_jwks(response.body())?,
        lifetime: parse_lifetime(response.headers()),
        body: response.into_body(),
    })
}

async fn send_get(roots: &Roots, url: &Uri) -> Result<Response<Bytes>, FetchError> {
    let request = Request::get(url.clone())
        .header(header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| FetchError::Connection(error.into()))?;
    let response = send_request(Some(roots), request)
        .await
        .map_err(FetchError::Connection)?;
    match response.status() {
        StatusCode::OK => Ok(response),
        status => Err(FetchError::Status(status)),
    }
}

/// The URL of the set if the document is an OpenID configuration (OpenID Connect Discovery 1.0, section 4).
fn key_set_url(source: &RemoteKeySet, document: &[u8]) -> Result<Option<Uri>, FetchError> {
    let Ok(document) = serde_json::from_slice::<Value>(document) else {
        return Ok(None);
    };
    let Some(url) = document.get("jwks_uri") else {
        return Ok(None);
    };
    let issuer = document.get("issuer").and_then(Value::as_str);
    if source.issuer.is_some() && issuer != source.issuer.as_deref() {
        return Err(FetchError::Issuer);
    }
    let url: Option<Uri> = url.as_str().and_then(|url| url.parse().ok());
    // A set that comes over TLS stays so, also when this machine names it.
    let is_trusted = |url: &Uri| {
        let is_downgrade =
            source.url.scheme() == Some(&Scheme::HTTPS) && url.scheme() != Some(&Scheme::HTTPS);
        jwt::has_valid_authority(url) && jwt::is_trusted_url(url) && !is_downgrade
    };
    let url = url.filter(is_trusted);
    url.map(Some).ok_or(FetchError::KeySetUrl)
}

/// The `max-age` of a response, from [`MIN_LIFETIME`] to [`MAX_LIFETIME`].
fn parse_lifetime(fields: &HeaderMap) -> Nanos {
    let lines = fields.get_all(header::CACHE_CONTROL).into_iter();
    let mut directives = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    let seconds = directives.find_map(|directive| {
        let (name, seconds) = directive.trim().split_once('=')?;
        let is_max_age = name.eq_ignore_ascii_case("max-age");
        is_max_age.then(|| seconds.trim_matches('"').parse().ok())?
    });
    seconds.map_or(DEFAULT_LIFETIME, |seconds| {
        Nanos::from_secs(seconds).clamp(MIN_LIFETIME, MAX_LIFETIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes() {
        let of = |lines: &[&str]| {
            let mut fields = HeaderMap::new();
            for line in lines {
                fields.append(header::CACHE_CONTROL, line.parse().unwrap());
            }
            Duration::from(parse_lifetime(&fields)).as_secs()
        };
        assert_eq!(of(&[]), 600);
        assert_eq!(of(&["public, Max-Age=300"]), 300);
        assert_eq!(of(&["no-store", "max-age=\"120\""]), 120);
        assert_eq!(of(&["max-age=0"]), 60);
        assert_eq!(of(&["s-maxage=5, max-age=99999999"]), 86_400);
        assert_eq!(of(&["max-age=soon", "max-age=-1"]), 600);
    }

    #[test]
    fn delays_after_failures() {
        let delays = [1, 2, 3, 6, 7, 8, u32::MAX]
            .map(|failure_count| Duration::from(retry_delay(failure_count)).as_secs());
        assert_eq!(delays, [1, 2, 4, 32, 60, 60, 60]);
    }

    #[test]
    fn urls_of_openid_configurations() {
        let check = |issuer: Option<&str>, text: &str, expected: Result<Option<&str>, &str>| {
            let url = "https://idp.example/.well-known/openid-configuration";
            let source = RemoteKeySet::new(
                url.parse().unwrap(),
                Roots::from_system().unwrap(),
                issuer.map(str::to_owned),
            );
            let found = key_set_url(&source, text.as_bytes());
            let found = found.map(|url| url.map(|url| url.to_string()));
            let found = found.map_err(|error| error.to_string());
            let expected = expected.map(|url| url.map(str::to_owned));
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        };
        let issuer = Some("https://idp.example");
        let configuration =
            r#"{"issuer": "https://idp.example", "jwks_uri": "https://keys.example/k"}"#;
        check(None, r#"{"keys": []}"#, Ok(None));
        check(None, "<html>", Ok(None));
        check(issuer, configuration, Ok(Some("https://keys.example/k")));
        check(None, configuration, Ok(Some("https://keys.example/k")));
        let other = "the OpenID configuration is of another issuer";
        check(Some("https://other.example"), configuration, Err(other));
        check(
            issuer,
            r#"{"jwks_uri": "https://keys.example/k"}"#,
            Err(other),
        );
        let password = r#"{"jwks_uri": "https://u:p@keys.example/k"}"#;
        let unsafe_url = "the OpenID configuration names no key set under https://";
        check(
            None,
            r#"{"jwks_uri": "http://keys.example/k"}"#,
            Err(unsafe_url),
        );
        check(None, r#"{"jwks_uri": 1}"#, Err(unsafe_url));
        check(
            None,
            r#"{"jwks_uri": "http://localhost/k"}"#,
            Err(unsafe_url),
        );
        check(None, password, Err(unsafe_url));
    }
}
