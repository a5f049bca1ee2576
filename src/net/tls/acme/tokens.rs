//! The proofs of http-01 challenges, which the gateway shows to directories at port 80.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// The key authorizations of open http-01 challenges by their tokens; at most one for each name of a certificate.
#[derive(Clone, Debug, Default)]
pub struct ChallengeTokens(Arc<RwLock<HashMap<String, String>>>);

/// The path where directories look for key authorizations: RFC 8555 section 8.3.
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";

impl ChallengeTokens {
    /// The body of the response to a request for this path, while its challenge is open.
    pub fn authorization(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(WELL_KNOWN)?;
        self.0.read().get(token).cloned()
    }

    pub(super) fn open(&self, token: &str, authorization: &str) {
        let (token, authorization) = (token.to_owned(), authorization.to_owned());
        self.0.write().insert(token, authorization);
    }

    pub(super) fn close(&self, token: &str) {
        self.0.write().remove(token);
    }
}
