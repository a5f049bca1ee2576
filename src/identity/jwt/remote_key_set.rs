//! A key set at a URL: where the set is, and reports of tokens whose key the set lacks. Nothing here fetches the set;
//! `app/key_set_fetcher.rs` does.

use std::sync::Arc;

use http::Uri;
use tokio::sync::Notify;

use crate::net::Roots;
use crate::net::client::named_port;

/// The source of a key set that is fetched while the gateway runs.
#[derive(Clone, Debug)]
pub struct RemoteKeySet {
    /// The URL of the set, or of the OpenID configuration that names the set's URL.
    pub url: Uri,
    /// The authorities that verify the server's certificate.
    pub roots: Roots,
    /// The issuer that an OpenID configuration must be of; `None` allows any.
    pub issuer: Option<String>,
    /// Notified of tokens whose key is not in the set. Clones share it, so that a report reaches the fetcher.
    unknown_key: Arc<Notify>,
}

impl RemoteKeySet {
    /// Describes a set for which no unknown key has been reported yet.
    pub fn new(url: Uri, roots: Roots, issuer: Option<String>) -> RemoteKeySet {
        RemoteKeySet {
            url,
            roots,
            issuer,
            unknown_key: Arc::default(),
        }
    }

    /// Whether both have the same URL and issuer. The authorities that verify the server may differ, as opposed to `==`.
    pub fn is_same_set(&self, other: &RemoteKeySet) -> bool {
        self.url == other.url && self.issuer == other.issuer
    }

    /// Reports a token whose key is not in the set: the issuer may have a new one.
    pub fn report_unknown_key(&self) {
        self.unknown_key.notify_one();
    }

    /// Waits for a call of [`RemoteKeySet::report_unknown_key`], or returns at once if there was one since the last return.
    /// A call ends the wait of one task only.
    pub async fn unknown_key(&self) {
        self.unknown_key.notified().await;
    }
}

/// Whether keys may come from a URL. Somebody who can change a key set on its way can sign tokens, so a set must come over
/// TLS or from this machine.
pub fn is_trusted_url(url: &Uri) -> bool {
    let is_local = |host: &str| {
        host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]"
    };
    match (url.scheme_str(), url.host()) {
        (Some("https"), Some(_)) => true,
        (Some("http"), Some(host)) => is_local(host),
        _ => false,
    }
}

/// Whether a URL has a host, a valid port if it names one, and neither user nor password.
pub fn has_valid_authority(url: &Uri) -> bool {
    url.authority().is_some_and(|authority| {
        let has_userinfo = authority.as_str().contains('@');
        !has_userinfo && !authority.host().is_empty() && named_port(authority).is_ok()
    })
}

/// Compares URL, authorities and issuer. Equal sets need not share reports of unknown keys.
impl PartialEq for RemoteKeySet {
    fn eq(&self, other: &RemoteKeySet) -> bool {
        (&self.url, &self.roots, &self.issuer) == (&other.url, &other.roots, &other.issuer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_key_sets() {
        let check = |text: &str, is_valid: bool, is_trusted: bool| {
            let url: Uri = text.parse().unwrap();
            let actual = (has_valid_authority(&url), is_trusted_url(&url));
            assert_eq!(actual, (is_valid, is_trusted), "{text}");
        };
        check("https://idp.example/keys", true, true);
        check("https://idp.example:8443/keys", true, true);
        check("https://[2001:db8::1]:443/keys", true, true);
        check("http://LocalHost:80/keys", true, true);
        check("http://[::1]/keys", true, true);
        check("http://127.0.0.1/keys", true, true);
        check("http://127.0.0.2/keys", true, false);
        check("http://idp.example/keys", true, false);
        check("ftp://idp.example/keys", true, false);
        check("https://idp.example:65536/keys", false, true);
        check("https://idp.example:0/keys", false, true);
        check("https://idp.example:/keys", false, true);
        check("https://ann:secret@idp.example/keys", false, true);
        check("/keys", false, false);
    }
}
