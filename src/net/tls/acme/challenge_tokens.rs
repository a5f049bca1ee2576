//! The proofs of http-01 challenges, which the gateway serves to directories at port 80.

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
    /// The body of the response to a request for this path, while its challenge is open.
    pub fn key_authorization(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(CHALLENGE_PATH)?;
        self.0.read().get(token).cloned()
    }

    /// Serves the key authorization of a challenge from now on.
    pub(super) fn insert(&self, token: &str, key_authorization: &str) {
        let (token, key_authorization) = (token.to_owned(), key_authorization.to_owned());
        self.0.write().insert(token, key_authorization);
    }

    /// Stops serving the key authorization of a challenge.
    pub(super) fn remove(&self, token: &str) {
        self.0.write().remove(token);
    }
}
