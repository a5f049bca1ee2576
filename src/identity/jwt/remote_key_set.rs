//! A key set at a URL. This file says where the set is and who needs it; `app/key_sets.rs` fetches it.

use std::sync::Arc;

use http::Uri;
use tokio::sync::Notify;

use crate::net::Roots;

/// The source of a key set that is fetched while the gateway runs.
#[derive(Clone, Debug)]
pub struct RemoteKeySet {
    /// The URL of the set, or of the OpenID configuration that names the set's URL.
    pub url: Uri,
    /// The authorities that verify the server's certificate.
    pub roots: Roots,
    /// The issuer that an OpenID configuration must be of.
    pub issuer: Option<String>,
    unknown_key: Arc<Notify>,
}

impl RemoteKeySet {
    /// Describes a set that nobody has asked for yet.
    pub fn new(url: Uri, roots: Roots, issuer: Option<String>) -> RemoteKeySet {
        RemoteKeySet {
            url,
            roots,
            issuer,
            unknown_key: Arc::default(),
        }
    }

    /// Reports a token whose key is not in the set: the issuer may have a new one.
    pub fn report_unknown_key(&self) {
        self.unknown_key.notify_one();
    }

    /// Waits for a call of [`RemoteKeySet::report_unknown_key`], or returns at once if there was one since the last return.
    pub async fn unknown_key(&self) {
        self.unknown_key.notified().await;
    }
}

/// Two sets are equal if they have the same source.
impl PartialEq for RemoteKeySet {
    fn eq(&self, other: &RemoteKeySet) -> bool {
        (&self.url, &self.roots, &self.issuer) == (&other.url, &other.roots, &other.issuer)
    }
}
