//! Fetches a JSON Web Key Set (RFC 7517, section 5) once. Nothing is kept between two fetches; `key_set_fetcher.rs`
//! repeats them.

use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::Empty;
use serde_json::Value;

use crate::base::clock::Nanos;
use crate::identity::jwt::{self, RemoteKeySet, VerificationKeys, VerificationKeysError};
use crate::net::Roots;
use crate::net::client::{BoxError, send_request};

/// The longest time for both requests of one fetch together.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The shortest time for which a set is used before it is fetched again, whatever `Cache-Control` says.
const MIN_LIFETIME: Nanos = Nanos::from_secs(60);

/// The longest time for which a set is used before it is fetched again.
const MAX_LIFETIME: Nanos = Nanos::from_secs(86_400);

/// The lifetime of a set without `Cache-Control: max-age`.
const DEFAULT_LIFETIME: Nanos = Nanos::from_secs(600);

/// Why a key set could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("no response within {} seconds", FETCH_TIMEOUT.as_secs())]
    Timeout,
    /// The request could not be sent, or its response not be read, for instance because it is longer than 1 MiB.
    #[error("{0}")]
    Connection(BoxError),
    #[error("its server responds with status {0}")]
    Status(StatusCode),
    /// The configuration names another issuer than the gateway file, or none.
    #[error("the OpenID configuration is of another issuer")]
    Issuer,
    /// The `jwks_uri` is no URL that keys may come from: see [`key_set_url`].
    #[error("the OpenID configuration names no key set under https://")]
    KeySetUrl,
    #[error(transparent)]
    Keys(#[from] VerificationKeysError),
}

/// A set that was fetched and can be used.
pub(super) struct FetchedKeySet {
    /// The set as it was received.
    pub(super) body: Bytes,
    pub(super) keys: VerificationKeys,
    /// How long the set is used before it is fetched again.
    pub(super) lifetime: Nanos,
}

/// Fetches a set once. If its URL leads to an OpenID configuration, fetches the set that the configuration names. There
/// is no timeout; the caller gives up after [`FETCH_TIMEOUT`].
///
/// # Errors
///
/// A server cannot be reached, responds with another status than 200, or sends more than 1 MiB. The configuration is of
/// another issuer, or names a URL that is not trusted. The set has no usable keys.
pub(super) async fn fetch_key_set(source: &RemoteKeySet) -> Result<FetchedKeySet, FetchError> {
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

/// Requests a document. Any other status than 200 is an error, also a redirect.
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

/// The URL of the set, if the document is an OpenID configuration (OpenID Connect Discovery 1.0, section 4); `None` for
/// other documents.
///
/// # Errors
///
/// The configuration is of another issuer than `source`, or its URL is malformed or not trusted. Trusted are
/// `https://`, and `http://` on this machine if `source` has no `https://` URL itself.
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
    // If the configuration comes over TLS, so must the set, even one on this machine.
    let is_trusted = |url: &Uri| {
        let is_downgrade =
            source.url.scheme() == Some(&Scheme::HTTPS) && url.scheme() != Some(&Scheme::HTTPS);
        jwt::has_valid_authority(url) && jwt::is_trusted_url(url) && !is_downgrade
    };
    let url = url.filter(is_trusted);
    url.map(Some).ok_or(FetchError::KeySetUrl)
}

/// The first valid `max-age` of a response, moved into the range from [`MIN_LIFETIME`] to [`MAX_LIFETIME`].
/// [`DEFAULT_LIFETIME`] if there is none. Other directives such as `no-store` are ignored.
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
        let lifetime_seconds = |lines: &[&str]| {
            let mut fields = HeaderMap::new();
            for line in lines {
                fields.append(header::CACHE_CONTROL, line.parse().unwrap());
            }
            Duration::from(parse_lifetime(&fields)).as_secs()
        };
        assert_eq!(lifetime_seconds(&[]), 600);
        assert_eq!(lifetime_seconds(&["public, Max-Age=300"]), 300);
        assert_eq!(lifetime_seconds(&["no-store", "max-age=\"120\""]), 120);
        assert_eq!(lifetime_seconds(&["max-age=0"]), 60);
        assert_eq!(lifetime_seconds(&["s-maxage=5, max-age=99999999"]), 86_400);
        assert_eq!(lifetime_seconds(&["max-age=soon", "max-age=-1"]), 600);
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
            let url = key_set_url(&source, text.as_bytes());
            let url = url.map(|url| url.map(|url| url.to_string()));
            let url = url.map_err(|error| error.to_string());
            let expected = expected.map(|url| url.map(str::to_owned));
            assert_eq!(url, expected.map_err(str::to_owned), "{text}");
        };
        let issuer = Some("https://idp.example");
        let configuration =
            r#"{"issuer": "https://idp.example", "jwks_uri": "https://keys.example/k"}"#;
        check(None, r#"{"keys": []}"#, Ok(None));
        check(None, "<html>", Ok(None));
        check(issuer, configuration, Ok(Some("https://keys.example/k")));
        check(None, configuration, Ok(Some("https://keys.example/k")));
        let other_issuer = "the OpenID configuration is of another issuer";
        check(
            Some("https://other.example"),
            configuration,
            Err(other_issuer),
        );
        check(
            issuer,
            r#"{"jwks_uri": "https://keys.example/k"}"#,
            Err(other_issuer),
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
