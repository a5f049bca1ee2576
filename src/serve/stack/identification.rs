//! Who the client of a request is, by its head and the credential in its body. A connection remembers what it has found for
//! requests with the same fields. `identify.rs` asks for it, and reads ahead in bodies.

use std::rc::Rc;

use super::request_context::RequestContext;
use super::stages::Routed;
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::identity::{
    CheckCondition, ClientIdentity, FieldValue, Identifier, RequestParts, Unverified,
};
use crate::limit::pressure::Pressure;
use crate::limit::{Identity, IdentitySet};
use crate::route::Route;
use crate::serve::http1::repeat_cache::RouteDecision;
use crate::throttle::admission::{Admission, AdmissionRequest};

/// Identifies the client by the head alone. Also returns the decision that the connection remembers for the next request
/// with the same fields; `None` if it does not remember one, for instance because the identities depend on more.
pub(super) fn identify_client(
    routed: &Routed,
    sought_custom: IdentitySet,
) -> (Rc<ClientIdentity>, Option<Rc<RouteDecision>>) {
    let arrival = &routed.arrival;
    let route = routed.route();
    let generation = &arrival.context.generation;
    let identifier = &generation.identifier;
    // The version is read first: if keys change meanwhile, the decision does not hold for the next request.
    let key_version = identifier.runtime_key_version();
    let client = identify_with_credential(
        &arrival.context,
        &arrival.head,
        route,
        routed.now,
        (FieldValue::Absent, sought_custom),
    );
    let client = Rc::new(client);
    // A credential that was not checked now may be checked with the next request.
    let is_checked = client.unverified != Some(Unverified::Unchecked);
    let runtime_key = client.runtime_key.as_ref();
    let is_repeatable = is_checked
        && runtime_key.is_none_or(|key| key.expires_at.is_none())
        && identifier.identifies_by_fields_alone()
        && !route.reads.parameter
        && !route.needs(Identity::Email);
    let repeated_fields = arrival.repeated_fields.as_ref();
    let fields_and_route = repeated_fields
        .zip(routed.matched_route.single_route_index())
        .filter(|_| is_repeatable)
        .filter(|(fields, route_index)| fields.replace_last_route(*route_index));
    let route_decision = fields_and_route.map(|(fields, route_index)| {
        let prepared = generation.admission.prepare(&AdmissionRequest {
            rules: &route.rules,
            client: &client,
            identifier,
            now: routed.now,
            pressure: None,
            reserved_units: &[],
        });
        let client = client.clone();
        // Of an identity that only a ban names it is not known whether it is a part of the path.
        let depends_on_head =
            route.reads.path_part || route.reads.preflight || sought_custom != route.reads.custom;
        let only_for_head = depends_on_head.then(|| arrival.head.clone());
        let decision = RouteDecision::new(generation, route_index, only_for_head, client, prepared);
        fields.remember_route_decision(decision.with_basis(sought_custom, key_version))
    });
    (client, route_decision)
}

/// The custom identities that are looked for: those of the route, and those by which clients are banned. They are
/// computed once for a head, because bans may change meanwhile.
#[inline]
pub(super) fn sought_custom(route: &Route, banned_identities: IdentitySet) -> IdentitySet {
    route.reads.custom.union(banned_identities.custom_only())
}

/// Whether clients of preflights that get their responses here are identified by more than their addresses: if a limit
/// counts preflights, or a list may deny the client.
pub(super) fn identifies_preflights(route: &Route) -> bool {
    !(route.own_response_rules.for_preflights.is_empty() && route.access.is_empty())
}

/// Identifies the client of a preflight that gets its response here.
#[cold]
pub(super) fn identify_for_preflight(routed: &Routed) -> Rc<ClientIdentity> {
    let route = routed.route();
    if identifies_preflights(route) {
        let sought_custom =
            sought_custom(route, routed.arrival.context.generation.bans.identities());
        return identify_client(routed, sought_custom).0;
    }
    let context = &routed.arrival.context;
    let connection = context.peer.connection_peer();
    let identifier = &context.generation.identifier;
    Rc::new(identifier.identify_by_address(connection, &routed.arrival.head.fields))
}

/// Identifies the client by the head and by the credential in the body, and looks for these custom identities. A
/// credential is verified only if [`may_verify_credential`] allows it.
pub(super) fn identify_with_credential(
    context: &RequestContext,
    head: &Head,
    route: &Route,
    now: Nanos,
    (credential_in_body, sought_custom): (FieldValue<'_>, IdentitySet),
) -> ClientIdentity {
    let generation = &context.generation;
    let identifier = &generation.identifier;
    let wall_time = || generation.clock.wall();
    let may_verify = |client: &ClientIdentity| {
        let pressure = generation.pressure_on(route);
        let pressure = pressure.map(|pressure| &**pressure);
        may_verify_credential(
            &generation.admission,
            route,
            client,
            identifier,
            pressure,
            now,
        )
    };
    let check = CheckCondition {
        now,
        may_check: &may_verify,
    };
    let connection = context.peer.connection_peer();
    let request = RequestParts {
        head,
        credential_in_body,
        route: Some(route),
        wanted_custom: Some(sought_custom),
    };
    identifier.identify_with_check(connection, request, wall_time, Some(&check))
}

/// Whether a credential of this client may be verified: not if a limit by ip refuses the address anyway. To verify a
/// signature costs far more than a refusal, and guesses of keys beyond the limit must reveal nothing.
pub fn may_verify_credential(
    admission: &Admission,
    route: &Route,
    client: &ClientIdentity,
    identifier: &Identifier,
    pressure: Option<&Pressure>,
    now: Nanos,
) -> bool {
    let request = AdmissionRequest {
        rules: &route.own_response_rules.by_ip,
        client,
        identifier,
        now,
        pressure,
        reserved_units: &[],
    };
    request.rules.is_empty() || admission.peek(&request).is_admitted
}
