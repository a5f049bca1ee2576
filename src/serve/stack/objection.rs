//! Why a route does not serve a request, whatever its limits decide: its credential, an identity, or the size of its body.
//! Whether lists deny its client is decided in `screening.rs`.
//!
//! `identify.rs` and `explain.rs` call these functions before the limits decide.

use http_body::Body;

use super::matched_route::MatchedRoute;
use super::refusal::RefusalCause;
use super::stages::{Arrival, Routed};
use crate::http::head::Head;
use crate::identity::custom_value::{CustomValue, IdentityValue};
use crate::identity::{ClientIdentity, Identifier, Unverified};
use crate::limit::{Identity, IdentitySet};
use crate::route::Route;

/// Bounds the size of the body where the route does. Returns why the route does not take the body, if it is known to be too
/// large.
pub(super) fn bound_body_size(
    arrival: &mut Arrival,
    matched_route: &MatchedRoute,
) -> Option<RefusalCause> {
    let Arrival {
        head,
        body,
        context,
        ..
    } = arrival;
    let route = matched_route.route(&context.generation.ruleset);
    let max_bytes = route.max_body_bytes?;
    let objection = find_size_objection(route, head, body.size_hint().lower());
    if objection.is_none() && head.upgrade.is_none() {
        body.bound_size(max_bytes);
    }
    objection
}

/// Why the route does not take a body of at least `known_bytes`; `None` if it may take it. A tunnel has no body.
pub(super) fn find_size_objection(
    route: &Route,
    head: &Head,
    known_bytes: u64,
) -> Option<RefusalCause> {
    let max_bytes = route.max_body_bytes?;
    let is_too_large = head.upgrade.is_none() && known_bytes > max_bytes;
    is_too_large.then_some(RefusalCause::BodyTooLarge(max_bytes))
}

/// Why the route of this request does not serve its client; `None` if the route serves it.
#[inline]
pub(super) fn find_request_objection(
    routed: &Routed,
    client: &ClientIdentity,
) -> Option<RefusalCause> {
    let identifier = &routed.arrival.context.generation.identifier;
    find_route_objection(routed.route(), client, identifier)
}

/// Why the route does not serve requests of this client, whatever its limits decide; `None` if the route serves them.
#[inline]
pub fn find_route_objection(
    route: &Route,
    client: &ClientIdentity,
    identifier: &Identifier,
) -> Option<RefusalCause> {
    if (client.unverified.is_some() || client.is_token_ambiguous)
        && let Some(cause) = credential_objection(route, client, identifier)
    {
        return Some(cause);
    }
    if client.is_ip_disputed && route.access.has_networks() {
        return Some(RefusalCause::Bad(DISPUTED_ADDRESS));
    }
    if let Some(detail) = client
        .unclear_email_reason
        .filter(|_| route.needs(Identity::Email))
    {
        return Some(RefusalCause::Bad(detail));
    }
    let mut ambiguous_values = client
        .custom
        .iter()
        .filter(|custom| custom.value == IdentityValue::Ambiguous);
    if ambiguous_values.any(|value| route.needs(Identity::Custom(value.identity))) {
        return Some(RefusalCause::Bad(AMBIGUOUS_IDENTITY));
    }
    let mut required_identities = route.require.iter();
    if let Some(missing_identity) = required_identities.find(|identity| !client.has(**identity)) {
        return Some(RefusalCause::Unidentified(*missing_identity));
    }
    let is_of_source = route.user_sources.accepts(client.user_source);
    (!is_of_source).then_some(RefusalCause::OtherUserSource)
}

/// Why a client is refused of which one of these identities is unclear, by which clients are banned. `None` if all are
/// clear. Unclear is what has several readings, or comes from a credential that was not checked.
pub(super) fn find_ambiguity(
    client: &ClientIdentity,
    identifier: &Identifier,
    banned_identities: IdentitySet,
) -> Option<RefusalCause> {
    let is_banned = |custom: &CustomValue| {
        custom.value == IdentityValue::Ambiguous
            && banned_identities.contains(Identity::Custom(custom.identity))
    };
    if client.custom.iter().any(is_banned) {
        return Some(RefusalCause::Bad(AMBIGUOUS_IDENTITY));
    }
    if client.is_token_ambiguous && banned_identities.contains(Identity::Token) {
        return Some(RefusalCause::Bad(AMBIGUOUS_CREDENTIAL));
    }
    let unverified = client.unverified?;
    if unverified == Unverified::Field && banned_identities.contains(Identity::User) {
        return Some(RefusalCause::Bad(INVALID_USER_FIELD));
    }
    let settings = identifier.settings();
    let mut identities = banned_identities.iter();
    if !identities.any(|identity| settings.needs_proof(identity)) {
        return None;
    }
    match unverified {
        Unverified::Ambiguous => Some(RefusalCause::Bad(AMBIGUOUS_CREDENTIAL)),
        Unverified::Unchecked => Some(RefusalCause::Unchecked),
        _ => None,
    }
}

/// Why a credential that does not verify ends the request; `None` if the request goes on. Counted as absent, it could let
/// an uncounted request pass: an upstream may read it in another way, or its clock may be behind.
#[cold]
fn credential_objection(
    route: &Route,
    client: &ClientIdentity,
    identifier: &Identifier,
) -> Option<RefusalCause> {
    if client.is_token_ambiguous && route.needs(Identity::Token) {
        return Some(RefusalCause::Bad(AMBIGUOUS_CREDENTIAL));
    }
    let unverified = client.unverified?;
    let settings = identifier.settings();
    let custom_identities = settings
        .custom
        .iter()
        .map(|custom| Identity::Custom(custom.identity));
    let identities_of_credentials = [Identity::User, Identity::Token, Identity::Plan]
        .into_iter()
        .chain(custom_identities);
    let mut proven_identities =
        identities_of_credentials.filter(|identity| settings.needs_proof(*identity));
    let depends_on_credential = || {
        let mut identities = proven_identities.clone();
        identities.any(|identity| route.depends_on(identity))
    };
    match unverified {
        Unverified::Ambiguous if depends_on_credential() => {
            return Some(RefusalCause::Bad(AMBIGUOUS_CREDENTIAL));
        }
        Unverified::Unchecked => {
            return depends_on_credential().then_some(RefusalCause::Unchecked);
        }
        _ => {}
    }
    if unverified == Unverified::Field && route.needs(Identity::User) {
        return Some(RefusalCause::Bad(INVALID_USER_FIELD));
    }
    if client.user.is_some() {
        return None;
    }
    // No limit counts what the path of `usage` answers, so a guess that passed for an anonymous client would be free there.
    let is_guess = route.action.is_usage() && unverified != Unverified::Scheme;
    // A plan with a default matters too: a token that gateway and upstream read differently would count for two plans.
    let is_needed = |identity| {
        let is_required = route.require.contains(&identity);
        let is_refused = is_guess || identifier.is_refused(unverified);
        is_required || (is_refused && route.needs(identity))
    };
    proven_identities
        .any(is_needed)
        .then_some(RefusalCause::Unverified(unverified))
}

/// Why a request with an unclear address is refused where lists name networks.
pub(super) const DISPUTED_ADDRESS: &str = "the header fields that name the address of the client cannot be read, or contradict each other";

/// Why a request with an ambiguous credential is refused.
const AMBIGUOUS_CREDENTIAL: &str =
    "the credential can be read in more than one way: send it once, alone, in its plain form";

/// Why a request with an ambiguous custom identity is refused.
const AMBIGUOUS_IDENTITY: &str = "a value that clients are known by here can be read in more than one way: send each header, cookie, parameter and field once, in its plain form";

/// Why a request of a trusted proxy with an invalid user field is refused.
const INVALID_USER_FIELD: &str = "the user field of the trusted proxy is not one name of 1 to 256 bytes in UTF-8 without control characters and blanks at its ends";
