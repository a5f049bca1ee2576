//! The key authorizations that prove names in http-01 challenges. The gateway serves them on all HTTP/1 connections
//! without TLS; directories request them at port 80.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// The path below which directories request key authorizations: RFC 8555 section 8.3.
const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// The key authorizations of open http-01 challenges, by their tokens. There is at most one for each name of a
/// certificate.
#[derive(Clone, Debug, Default)]
pub struct ChallengeTokens(Arc<RwLock<HashMap<String, String>>>);

impl ChallengeTokens {
    /// The body of the response to a request for this path; `None` if the path is that of no open challenge.
    pub fn key_authorization(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(CHALLENGE_PATH)?;
        self.0.read().get(token).cloned()
    }

    /// Adds the key authorization of a challenge, which is served from now on.
    pub(super) fn insert(&self, token: &str, key_authorization: &str) {
        let (token, key_authorization) = (token.to_owned(), key_authorization.to_owned());
        self.0.write().insert(token, key_authorization);
    }

    /// Removes the key authorization of a challenge, which is no longer served.
    pub(super) fn remove(&self, token: &str) {
        self.0.write().remove(token);
    }
}
