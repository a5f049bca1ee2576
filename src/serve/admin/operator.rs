//! [`AdminOperator`]: who sent a request to the admin listener, by its token. Wrong tokens are bounded by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use parking_lot::Mutex;

use super::connections::network_of;
use super::control::Control;
use super::problem::problem_response;
use crate::base::clock::Nanos;
use crate::operator::{Right, TokenError};

/// The name of an operator who gives none, where no token is needed.
const UNNAMED_OPERATOR: &str = "operator";

/// Who sent a request.
#[derive(Clone, Debug)]
pub(super) struct AdminOperator {
    /// The name of the token; `None` if the listener needs none.
    pub(super) name: Option<Arc<str>>,
    pub(super) right: Right,
    /// The address of the connection.
    pub(super) peer: IpAddr,
}

impl AdminOperator {
    /// Who signs an order that names `by`. An operator with a token signs with the token's name, and may add for whom.
    /// Without tokens any name will do.
    pub(super) fn signature(&self, by: Option<&str>) -> String {
        let by = by.map(str::trim).filter(|by| !by.is_empty());
        match (&self.name, by) {
            (None, by) => by.unwrap_or(UNNAMED_OPERATOR).to_owned(),
            (Some(name), Some(by)) if by != &**name => format!("{name} for {by}"),
            (Some(name), _) => name.to_string(),
        }
    }
}

/// The operator that `authorization.rs` has found. Other requests get 401.
impl<S: Sync> FromRequestParts<S> for AdminOperator {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<AdminOperator, Response> {
        let operator = parts.extensions.get::<AdminOperator>().cloned();
        operator.ok_or_else(|| TokenRefusal::Missing.to_response())
    }
}

/// Why a request has no operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenRefusal {
    /// It has no token.
    Missing,
    /// It has more than one `Authorization`.
    Repeated,
    /// No operator has its token.
    Unknown,
    /// The time of its token is over.
    Expired,
    /// No operator has its token, and too many wrong ones came from its network.
    TooMany,
}

impl TokenRefusal {
    /// The response to the request.
    pub(super) fn to_response(self) -> Response {
        let (status, detail) = match self {
            TokenRefusal::Missing | TokenRefusal::Unknown => (
                StatusCode::UNAUTHORIZED,
                "send the token as `Authorization: Bearer TOKEN`",
            ),
            TokenRefusal::Repeated => (
                StatusCode::UNAUTHORIZED,
                "send one token as `Authorization: Bearer TOKEN`",
            ),
            TokenRefusal::Expired => (
                StatusCode::UNAUTHORIZED,
                "this token has expired; send another one as `Authorization: Bearer TOKEN`",
            ),
            TokenRefusal::TooMany => (
                StatusCode::TOO_MANY_REQUESTS,
                "too many wrong tokens came from this address; try again in some seconds",
            ),
        };
        let mut response = problem_response(status, detail);
        let (name, value) = match status {
            StatusCode::UNAUTHORIZED => (header::WWW_AUTHENTICATE, "Bearer"),
            _ => (header::RETRY_AFTER, "5"),
        };
        let value = header::HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
        response
    }
}

/// Finds the operator of a request by its token. Wrong tokens are counted elsewhere, so that those of others never keep an
/// operator out behind the same address.
///
/// # Errors
///
/// See [`TokenRefusal`].
pub(super) fn find_operator(
    gateway: &dyn Control,
    headers: &HeaderMap,
    peer: IpAddr,
) -> Result<AdminOperator, TokenRefusal> {
    let Some(tokens) = gateway.running().ruleset.operators.clone() else {
        return Ok(AdminOperator {
            name: None,
            right: Right::Admin,
            peer,
        });
    };
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let field = fields.next().ok_or(TokenRefusal::Missing)?;
    if fields.next().is_some() {
        return Err(TokenRefusal::Repeated);
    }
    let token = bearer_token(field.as_bytes()).ok_or(TokenRefusal::Missing)?;
    let found = tokens.find(token, gateway.clock().wall());
    let token = found.map_err(|error| match error {
        TokenError::Unknown => TokenRefusal::Unknown,
        TokenError::Expired => TokenRefusal::Expired,
    })?;
    Ok(AdminOperator {
        name: Some(token.name.clone()),
        right: token.right,
        peer,
    })
}

/// The token after the scheme `Bearer`, whose case does not matter (RFC 9110 section 11.1).
fn bearer_token(field: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"Bearer ";
    let (scheme, token) = field.split_at_checked(SCHEME.len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(SCHEME) && !token.is_empty()).then_some(token)
}

/// Counts wrong tokens by the network of the client: [`TokenGuesses::MAX_AT_ONCE`] at once and then one each second, for
/// at most [`TokenGuesses::MAX_NETWORKS`] networks.
#[derive(Default)]
pub(super) struct TokenGuesses {
    /// The time at which all wrong tokens of a network will be forgotten.
    forgotten_at: Mutex<HashMap<IpAddr, Nanos>>,
}

impl TokenGuesses {
    const MAX_AT_ONCE: u64 = 20;
    const RECOVERY_INTERVAL: Nanos = Nanos::from_secs(1);
    const MAX_NETWORKS: usize = 1_024;

    /// Counts a wrong token of this address. False if there were too many. With too many networks, the one is forgotten that
    /// would be first.
    pub(super) fn take(&self, peer: IpAddr, now: Nanos) -> bool {
        let mut networks = self.forgotten_at.lock();
        let network = network_of(peer);
        if networks.len() >= TokenGuesses::MAX_NETWORKS && !networks.contains_key(&network) {
            let first = networks
                .iter()
                .min_by_key(|(_, forgotten_at)| **forgotten_at);
            if let Some(first) = first.map(|(network, _)| *network) {
                networks.remove(&first);
            }
        }
        let forgotten_at = networks.entry(network).or_default();
        let interval = TokenGuesses::RECOVERY_INTERVAL.0;
        if forgotten_at.since(now).0 + interval > TokenGuesses::MAX_AT_ONCE * interval {
            return false;
        }
        *forgotten_at = (*forgotten_at)
            .max(now)
            .after(TokenGuesses::RECOVERY_INTERVAL);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tokens_are_bounded_by_network() {
        let guesses = TokenGuesses::default();
        let peer = |text: &str| text.parse::<IpAddr>().unwrap();
        let now = Nanos::from_secs(1_000);
        let guess = |from: &str, now| guesses.take(peer(from), now);
        let at_once = (0..100).filter(|_| guess("2001:db8::1", now)).count();
        assert_eq!(at_once, 20);
        assert!(!guess("2001:db8::2", now), "the same /64");
        assert!(guess("192.0.2.1", now));
        let later = now.after(TokenGuesses::RECOVERY_INTERVAL);
        assert!(guess("2001:db8::2", later) && !guess("2001:db8::2", later));
        for number in 0..5_000_u32 {
            guesses.take(IpAddr::V4(number.into()), now);
        }
        assert_eq!(
            guesses.forgotten_at.lock().len(),
            TokenGuesses::MAX_NETWORKS
        );
        assert!(!guess("2001:db8::2", later), "others do not displace it");
    }

    #[test]
    fn tokens_have_a_scheme() {
        for (field, token) in [
            ("Bearer abc", Some("abc")),
            ("bEARER  abc ", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("Bearerabc", None),
        ] {
            assert_eq!(bearer_token(field.as_bytes()), token.map(str::as_bytes));
        }
    }

    #[test]
    fn orders_are_signed() {
        let peer = peer_of_tests();
        let signature = |name: Option<&str>, by| {
            let name = name.map(Arc::from);
            let right = Right::Admin;
            AdminOperator { name, right, peer }.signature(by)
        };
        assert_eq!(signature(None, None), "operator");
        assert_eq!(signature(None, Some("bob")), "bob");
        assert_eq!(signature(Some("alice"), None), "alice");
        assert_eq!(signature(Some("alice"), Some(" ")), "alice");
        assert_eq!(signature(Some("alice"), Some("alice")), "alice");
        assert_eq!(signature(Some("alice"), Some("bob")), "alice for bob");
    }

    fn peer_of_tests() -> IpAddr {
        IpAddr::from([127, 0, 0, 1])
    }
}
