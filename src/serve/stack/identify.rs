//! The layer that identifies the client. It marks a request as unserved only for its credential, an identity, a broken,
//! late or too large body, or an unclear cost. `identified.rs` connects the request to the throttle, which comes next.
//!
//! It reads ahead in a body only where a limit depends on something that the body may hold. The only limits that it
//! consults are those by ip, before a credential is verified.

use std::future::{Ready, ready};
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tower::{Layer, Service};

use super::body::{BodyStart, MAX_READ_AHEAD_BYTES};
use super::body_needs::{
    has_body, needs_credential_in_body, needs_field_search, needs_reserve_in_body,
};
use super::credential_in_body;
use super::identification::{
    identify_client, identify_for_preflight, identify_with_credential, sought_custom,
};
use super::objection::{bound_body_size, find_request_objection};
use super::refusal::{BoxedOutcome, RareOutcome, Refusal, RefusalCause};
use super::request_context::RequestContext;
use super::reserved_units;
use super::screening;
use super::stages::{Arrival, Identified, Routed};
use super::unserved::{CountingLimits, Unserved};
use crate::identity::body::is_stream;
use crate::identity::{
    BufferedBody, ClientIdentity, FieldValue, IdentificationStage, WantedIdentities,
};
use crate::serve::http1::repeat_cache::RouteDecision;

/// The layer that wraps a service in [`Identify`].
#[derive(Clone, Copy, Debug)]
pub struct IdentifyLayer;

impl<S> Layer<S> for IdentifyLayer {
    type Service = Identify<S>;

    fn layer(&self, inner: S) -> Identify<S> {
        Identify { inner }
    }
}

/// The service that identifies the client, and hands the request on as [`Identified`] or [`Unserved`].
#[derive(Clone, Copy, Debug)]
pub struct Identify<S> {
    inner: S,
}

/// The response of a service to an identified request.
type IdentifiedResponse<S> = <S as Service<Identified>>::Response;

impl<S> Service<Routed> for Identify<S>
where
    S: Service<Identified, Error = Refusal>
        + Service<Unserved, Response = IdentifiedResponse<S>, Error = Refusal>
        + Clone
        + 'static,
{
    type Response = IdentifiedResponse<S>;
    type Error = Refusal;
    type Future = Either<<S as Service<Identified>>::Future, RareOutcome<IdentifiedResponse<S>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Service::<Identified>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, mut routed: Routed) -> Self::Future {
        let has_lists = !routed.route().access.is_empty();
        if has_lists && let Some(denial) = find_address_denial(&routed) {
            return Either::Right(Either::Right(deny(denial, &routed.arrival)));
        }
        if routed.is_preflight {
            let client = identify_for_preflight(&routed);
            record_client(&routed.arrival.context, &client);
            let (route, stage) = (routed.route(), IdentificationStage::Head);
            let refusal = screening::refuse_client(&routed.arrival, route, &client, stage, None);
            if let Some(cause) = refusal {
                return Either::Right(Either::Right(deny(cause, &routed.arrival)));
            }
            let unserved = Unserved::preflight(routed, client);
            return Either::Right(Either::Left(self.call(unserved)));
        }
        let Routed {
            arrival,
            matched_route,
            ..
        } = &mut routed;
        let size_objection = bound_body_size(arrival, matched_route);
        let arrival = &routed.arrival;
        let generation = &arrival.context.generation;
        let repeated_fields = arrival.repeated_fields.as_ref();
        let route_index = routed.matched_route.single_route_index();
        let banned_identities = generation.bans.identities();
        let sought_custom = sought_custom(routed.route(), banned_identities);
        let key_version = generation.identifier.runtime_key_version();
        let route_decision = repeated_fields
            .and_then(|fields| fields.route_decision(generation, route_index?, &arrival.head))
            .filter(|decision| {
                decision.sought_custom == sought_custom && decision.key_version == key_version
            });
        let (client, route_decision) = match route_decision {
            Some(route_decision) => (route_decision.client.clone(), Some(route_decision)),
            None => identify_client(&routed, sought_custom),
        };
        let route = routed.route();
        let may_read_ahead = size_objection.is_none() && route.reads.may_need_body();
        let (needs_credential, must_read_ahead) = match may_read_ahead {
            true => {
                let needs_credential = needs_credential_in_body(route, arrival);
                let needs_body = needs_credential
                    || needs_field_search(route, arrival)
                    || needs_reserve_in_body(route, arrival);
                (needs_credential, needs_body)
            }
            false => (false, false),
        };
        if !needs_credential {
            record_client(&arrival.context, &client);
        }
        let stage = match must_read_ahead {
            true => IdentificationStage::Head,
            false => IdentificationStage::Whole,
        };
        let of_head = route_decision.as_deref().filter(|_| !must_read_ahead);
        if (has_lists || !banned_identities.is_empty())
            && let Some(cause) = screening::refuse_client(arrival, route, &client, stage, of_head)
        {
            let _ = arrival.context.client.set(client.clone());
            if cause.is_about_client() && !screening::must_be_counted(&client) {
                return Either::Right(Either::Right(deny(cause, arrival)));
            }
            let unserved = Unserved::routed_to(routed, client, cause);
            return Either::Right(Either::Left(self.call(unserved)));
        }
        let (reserved_units, unclear_cost) = match route.reads.reserve {
            true => {
                let head = &arrival.head;
                match reserved_units::read_reserved_units(&route.rules, head, BodyStart::EMPTY) {
                    Ok(reserved_units) => (reserved_units, None),
                    Err(detail) => (None, Some(detail)),
                }
            }
            false => (None, None),
        };
        let cause = match (size_objection, unclear_cost) {
            _ if must_read_ahead => None,
            (Some(cause), _) => Some(cause),
            (None, Some(detail)) => Some(RefusalCause::Bad(detail)),
            (None, None) => refusal_status(&routed, &client, route_decision.as_deref()),
        };
        let identified = Identified {
            routed,
            client,
            route_decision,
            reserved_units,
        };
        if must_read_ahead {
            return Either::Right(Either::Left(
                self.identify_by_body(identified, unclear_cost),
            ));
        }
        match cause {
            None => Either::Left(self.inner.call(identified)),
            Some(cause) => {
                let unserved = Unserved::routed(identified, cause);
                Either::Right(Either::Left(self.call(unserved)))
            }
        }
    }
}

/// Passes an unserved request on, unless the gateway file denies its client. The future is boxed: it is rare, and would
/// make the future of every request as large.
impl<S> Service<Unserved> for Identify<S>
where
    S: Service<Unserved, Error = Refusal> + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxedOutcome<S::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut unserved: Unserved) -> Self::Future {
        let refusal = match unserved.counting_limits {
            CountingLimits::Unrouted => {
                screening::refuse_unrouted_client(&unserved.arrival, &unserved.client)
            }
            _ => None,
        };
        match refusal {
            Some(cause) if !screening::must_be_counted(&unserved.client) => {
                return Box::pin(deny(cause, &unserved.arrival));
            }
            Some(cause) => unserved.cause = cause,
            None => {}
        }
        Box::pin(self.inner.call(unserved))
    }
}

impl<S> Identify<S>
where
    S: Service<Identified, Error = Refusal>
        + Service<Unserved, Response = IdentifiedResponse<S>, Error = Refusal>
        + Clone
        + 'static,
{
    /// Identifies the client by the body too, and hands the request on. `unclear_cost` says why the cost in the head is
    /// unclear; `None` if it is clear.
    fn identify_by_body(
        &mut self,
        mut identified: Identified,
        unclear_cost: Option<&'static str>,
    ) -> BoxedOutcome<IdentifiedResponse<S>> {
        let inner_clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, inner_clone);
        Box::pin(async move {
            let is_unrecorded = identified.routed.arrival.context.client.get().is_none();
            let search_result = search_body(&mut identified).await;
            if is_unrecorded {
                record_client(&identified.routed.arrival.context, &identified.client);
            }
            let refusal = search_result.is_ok().then(|| {
                let Identified { routed, client, .. } = &identified;
                let stage = IdentificationStage::Whole;
                screening::refuse_client(&routed.arrival, routed.route(), client, stage, None)
            });
            let mut refusal = refusal.flatten();
            if !screening::must_be_counted(&identified.client)
                && let Some(cause) = refusal.take_if(|cause| cause.is_about_client())
            {
                return Err(screening::deny(cause, &identified.routed.arrival));
            }
            let cause = search_result
                .err()
                .or(refusal)
                .or(unclear_cost.map(RefusalCause::Bad))
                .or_else(|| find_request_objection(&identified.routed, &identified.client));
            match cause {
                None => inner.call(identified).await,
                Some(cause) => inner.call(Unserved::routed(identified, cause)).await,
            }
        })
    }
}

/// Why the route does not serve the client: see [`find_request_objection`]. That there is no reason is remembered in
/// `route_decision`.
#[inline]
fn refusal_status(
    routed: &Routed,
    client: &ClientIdentity,
    route_decision: Option<&RouteDecision>,
) -> Option<RefusalCause> {
    if route_decision.is_some_and(|decision| decision.is_client_served.get()) {
        return None;
    }
    let objection = find_request_objection(routed, client);
    if let Some(decision) = route_decision.filter(|_| objection.is_none()) {
        decision.is_client_served.set(true);
    }
    objection
}

/// The denial of a request by the lists of its route for its client's address. An unclear address is refused later, like
/// another ambiguous identity.
fn find_address_denial(routed: &Routed) -> Option<RefusalCause> {
    screening::screen_address(&routed.arrival, &routed.route().access)
        .filter(RefusalCause::is_about_client)
}

/// The outcome of a request whose client is denied or banned.
fn deny<T>(cause: RefusalCause, arrival: &Arrival) -> Ready<Result<T, Refusal>> {
    ready(Err(screening::deny(cause, arrival)))
}

/// Reads ahead in the body, and searches it for what the limits of the route depend on: a credential, identities in its
/// fields, and the units to take at admission.
///
/// # Errors
///
/// The body broke off or is late, it may hold a credential and cannot be searched, or its cost is unclear.
async fn search_body(identified: &mut Identified) -> Result<(), RefusalCause> {
    let Identified {
        routed,
        client,
        reserved_units,
        ..
    } = identified;
    let generation = routed.arrival.context.generation.clone();
    let identifier = &generation.identifier;
    let matched_route = routed.matched_route.clone();
    let route = matched_route.route(&generation.ruleset);
    let mut needs_credential = needs_credential_in_body(route, &routed.arrival);
    let needs_fields = needs_field_search(route, &routed.arrival);
    let needs_reserve = needs_reserve_in_body(route, &routed.arrival);
    let may_search_body = needs_fields && has_body(&routed.arrival);
    let searched_identities = WantedIdentities::new(route.reads.email, route.reads.custom);
    let Arrival {
        head,
        body,
        context,
        ..
    } = &mut routed.arrival;
    if needs_credential {
        needs_credential =
            credential_in_body::read_ahead_for_credential(identifier, head, body).await?;
        routed.now = generation.clock.now();
    }
    let client = Rc::make_mut(client);
    let needs_email_in_body = may_search_body
        && route.reads.email
        && !identifier.mark_email_if_unsearchable(client, head);
    let needs_parameter_in_body = may_search_body
        && route.reads.parameter
        && (route.reads.body_field || !is_stream(&head.fields));
    let needs_fields_in_body = needs_email_in_body || needs_parameter_in_body;
    if !(needs_fields_in_body || needs_reserve || needs_credential) {
        if needs_fields {
            let no_body = BufferedBody::whole(b"");
            identifier.set_identities_in_fields(client, head, searched_identities, no_body);
        }
        return Ok(());
    }
    let field_bytes = identifier.max_buffered_bytes(needs_email_in_body, needs_parameter_in_body);
    let other_bytes = MAX_READ_AHEAD_BYTES * usize::from(needs_reserve || needs_credential);
    let read_ahead = body.peek(field_bytes.max(other_bytes)).await?;
    routed.now = generation.clock.now();
    let body_start = BodyStart::new(&read_ahead.bytes, read_ahead.is_whole);
    if needs_credential {
        let credential = credential_in_body::find_credential(route, identifier, head, body_start)?;
        if credential != FieldValue::Absent {
            let unclear_email_reason = client.unclear_email_reason;
            let found = (
                credential,
                sought_custom(route, generation.bans.identities()),
            );
            *client = identify_with_credential(context, head, route, routed.now, found);
            client.unclear_email_reason = unclear_email_reason;
        }
    }
    if needs_fields {
        let searched_body = match needs_fields_in_body {
            true => BufferedBody::new(&read_ahead.bytes, read_ahead.is_whole),
            false => BufferedBody::whole(b""),
        };
        identifier.set_identities_in_fields(client, head, searched_identities, searched_body);
    }
    // The refusal of an unclear cost counts by the identities of the body too.
    if needs_reserve {
        *reserved_units = reserved_units::read_reserved_units(&route.rules, head, body_start)
            .map_err(RefusalCause::Bad)?;
    }
    body.put_back(read_ahead.bytes, read_ahead.trailers);
    Ok(())
}

/// Keeps the client's identities in the request's context, and counts a credential that does not verify.
fn record_client(context: &RequestContext, client: &Rc<ClientIdentity>) {
    if let Some(reason) = client.credential_fault() {
        context.generation.unverified_counters.count(reason);
    }
    let _ = context.client.set(client.clone());
}
