//! Refuses clients by the lists of `deny` and `allow`, and banned clients. No limit counts a request that is refused here,
//! because that would cost more than the refusal. The exception is a client whose credential does not verify, so that guesses
//! end in 429.
//!
//! `routing.rs` asks for the address before anything else, and `identify.rs` for what depends on the route or on other
//! identities. Both functions for the address return without work where no list has networks.

use std::rc::Rc;
use std::sync::Arc;

use super::objection::{DISPUTED_ADDRESS, find_ambiguity, find_route_objection};
use super::refusal::{Refusal, RefusalCause};
use super::stages::Arrival;
use crate::http::head::Fields;
use crate::identity::{ClientIdentity, ConnectionPeer, Denial, IdentificationStage, Identifier};
use crate::limit::AccessLists;
use crate::operator::ActiveBan;
use crate::policy::Ruleset;
use crate::route::Route;
use crate::serve::http1::repeat_cache::{BannedAddress, RouteDecision};

/// Why these lists refuse a request for its client's address; `None` if they do not. Records the address of a client that
/// is denied.
pub(super) fn screen_address(arrival: &Arrival, lists: &AccessLists) -> Option<RefusalCause> {
    let context = &arrival.context;
    let (client, cause) = find_address_objection(
        &context.generation.identifier,
        lists,
        context.peer.connection_peer(),
        &arrival.head.fields,
    )?;
    if cause.is_about_client() {
        let _ = context.client.set(Rc::new(client));
    }
    Some(cause)
}

/// The client of a request, as far as its address says, and why these lists refuse it: it is denied, or its address is
/// unclear. `None` if they do not refuse it.
pub(super) fn find_address_objection(
    identifier: &Identifier,
    lists: &AccessLists,
    connection: ConnectionPeer<'_>,
    fields: &Fields,
) -> Option<(ClientIdentity, RefusalCause)> {
    if !lists.has_networks() {
        return None;
    }
    let client = identifier.identify_by_address(connection, fields);
    let cause = match client.is_ip_disputed {
        true => RefusalCause::Bad(DISPUTED_ADDRESS),
        false => identifier.find_address_denial(lists, &client)?.into(),
    };
    Some((client, cause))
}

/// The denial of a client by the lists of a route for other identities than the address; `None` if they do not deny it.
/// `None` also for a client that the route refuses for its credential, such as with 401: one that does not verify, or that
/// does not prove what `allow` names.
pub(super) fn find_identity_denial(
    route: &Route,
    client: &ClientIdentity,
    identifier: &Identifier,
    stage: IdentificationStage,
) -> Option<Denial> {
    let denial = identifier.find_identity_denial(&route.access, client, stage)?;
    let lacks_proof = denial.unmet_identity().is_some_and(|identity| {
        !client.has(identity) && identifier.settings().needs_proof(identity)
    });
    let has_credential_matter = lacks_proof || must_be_counted(client);
    let is_refused_later =
        has_credential_matter && find_route_objection(route, client, identifier).is_some();
    (!is_refused_later).then_some(denial)
}

/// Why a banned address is refused, or one that is unclear while some ban depends on the address; `None` if the address is
/// not banned. Records the address of a client that is banned.
pub(super) fn screen_banned_address(arrival: &Arrival) -> Option<RefusalCause> {
    let context = &arrival.context;
    let generation = &context.generation;
    if !generation.bans.needs_address() {
        return None;
    }
    let fields = &arrival.head.fields;
    let (version, now) = (generation.bans.version(), context.arrived_at);
    let repeated_fields = arrival.repeated_fields.as_ref();
    let remembered =
        repeated_fields.and_then(|fields| fields.banned_address(generation, version, now));
    let (client, ban) = match remembered {
        Some((client, refusal, valid_until)) if now < valid_until => {
            refusal.ban.count_hit();
            let _ = context.client.set(client);
            return Some(RefusalCause::Banned(refusal));
        }
        Some((client, refusal, _)) => (client, refusal.ban),
        None => {
            let connection = context.peer.connection_peer();
            let client = generation
                .identifier
                .identify_by_address(connection, fields);
            if client.is_ip_disputed {
                return Some(RefusalCause::Bad(DISPUTED_ADDRESS));
            }
            let ban = find_banned_address(arrival, &client)?;
            (Rc::new(client), ban)
        }
    };
    let remaining = ban.until.since(now);
    let refusal = generation.bans.refuse(ban, fields, now);
    if let Some(repeated_fields) = repeated_fields {
        repeated_fields.remember_banned_address(BannedAddress {
            generation: Rc::downgrade(generation),
            version,
            client: client.clone(),
            refusal: refusal.clone(),
            valid_until: now.after(remaining.until_next_second()),
        });
    }
    let _ = context.client.set(client);
    Some(RefusalCause::Banned(refusal))
}

/// The ban of a client's address. An unclear address is in no network.
fn find_banned_address(arrival: &Arrival, client: &ClientIdentity) -> Option<Arc<ActiveBan>> {
    let (bans, now) = (&arrival.context.generation.bans, arrival.context.arrived_at);
    if client.is_ip_unclear {
        return None;
    }
    bans.find_address(client.ip, now)
}

/// The refusal of a client by the lists of its route, or by a ban of another identity than its address. Also that of a
/// client whose identity is unclear while clients are banned by it. `None` also for a client that the route refuses for
/// its credential: see [`find_identity_denial`]. `route_decision` is what the connection remembers of a client who is
/// known by the head alone.
#[inline]
pub(super) fn refuse_client(
    arrival: &Arrival,
    route: &Route,
    client: &ClientIdentity,
    stage: IdentificationStage,
    route_decision: Option<&RouteDecision>,
) -> Option<RefusalCause> {
    let generation = &arrival.context.generation;
    let identifier = &generation.identifier;
    if !route.access.is_empty()
        && let Some(denial) = find_identity_denial(route, client, identifier, stage)
    {
        return Some(denial.into());
    }
    let bans = &generation.bans;
    let banned_identities = bans.identities();
    if banned_identities.is_empty() {
        return None;
    }
    // Otherwise a banned client would send its identity twice.
    if let Some(cause) = find_ambiguity(client, identifier, banned_identities) {
        return Some(cause);
    }
    let (version, now) = (bans.version(), arrival.context.arrived_at);
    let remembered = route_decision.and_then(|decision| decision.client_ban(version, now));
    let ban = remembered.unwrap_or_else(|| {
        let ban = bans.find_client(client, identifier, stage, now);
        if let Some(decision) = route_decision {
            decision.remember_client_ban(version, ban.clone());
        }
        ban
    })?;
    if is_refused_for_credential(route, client, identifier) {
        return None;
    }
    let refusal = bans.refuse(ban, &arrival.head.fields, now);
    Some(RefusalCause::Banned(refusal))
}

/// Whether the client has a credential that does not verify, for which the route refuses it anyway. A ban is not mentioned
/// then, so that guesses of credentials reveal nothing.
pub(super) fn is_refused_for_credential(
    route: &Route,
    client: &ClientIdentity,
    identifier: &Identifier,
) -> bool {
    must_be_counted(client) && find_route_objection(route, client, identifier).is_some()
}

/// Whether limits count a denied request of this client: otherwise it could guess credentials for ever, and tell a right
/// one by another response.
pub(super) fn must_be_counted(client: &ClientIdentity) -> bool {
    client.credential_fault().is_some()
}

/// The denial of the client of a request without a route, by the lists of the gateway file; `None` if they do not deny it.
pub(super) fn find_unrouted_denial(
    ruleset: &Ruleset,
    client: &ClientIdentity,
    identifier: &Identifier,
) -> Option<Denial> {
    let lists = &ruleset.unrouted.access;
    if lists.is_empty() {
        return None;
    }
    identifier
        .find_address_denial(lists, client)
        .or_else(|| identifier.find_identity_denial(lists, client, IdentificationStage::Whole))
}

/// The refusal of a client of a request without a route: by the lists of the gateway file, or because it is banned.
pub(super) fn refuse_unrouted_client(
    arrival: &Arrival,
    client: &ClientIdentity,
) -> Option<RefusalCause> {
    let generation = &arrival.context.generation;
    let (ruleset, identifier) = (&generation.ruleset, &generation.identifier);
    if let Some(denial) = find_unrouted_denial(ruleset, client, identifier) {
        return Some(denial.into());
    }
    let now = arrival.context.arrived_at;
    let stage = IdentificationStage::Whole;
    let find_key = || {
        let bans = &generation.bans;
        bans.find_client(client, identifier, stage, now)
    };
    let ban = find_banned_address(arrival, client).or_else(find_key)?;
    let refusal = generation.bans.refuse(ban, &arrival.head.fields, now);
    Some(RefusalCause::Banned(refusal))
}

/// The refusal of a request whose client is denied or banned.
pub(super) fn deny(cause: RefusalCause, arrival: &Arrival) -> Refusal {
    Refusal::unsent(cause, &arrival.head.fields)
}

impl From<Denial> for RefusalCause {
    fn from(denial: Denial) -> RefusalCause {
        RefusalCause::Denied(Box::new(denial))
    }
}
