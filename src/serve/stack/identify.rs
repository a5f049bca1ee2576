//! The layer that identifies the client of a request. It reads ahead in a body only where a limit counts by something
//! that the body may hold. Limits decide elsewhere; here a request ends only if its credential or a required identity
//! is missing or bad.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tower::{Layer, Service};

use super::body::MAX_READ_AHEAD;
use super::context::RequestContext;
use super::credential_in_body;
use super::refusal::{BoxedOutcome, Refusal, RefusalCause};
use super::reserve;
use super::stages::{Arrival, Identified, Routed};
use super::unserved::Unserved;
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::identity::{ClientIdentity, CredentialCheck, Identifier, Unverified};
use crate::limit::Identity;
use crate::limit::pressure::Pressure;
use crate::route::Route;
use crate::serve::http1::repeat::RouteRepeat;
use crate::throttle::admission::{Admission, AdmissionRequest};

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
    type Future = Either<
        <S as Service<Identified>>::Future,
        Either<BoxedOutcome<IdentifiedResponse<S>>, Pin<Box<<S as Service<Unserved>>::Future>>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Service::<Identified>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, routed: Routed) -> Self::Future {
        let arrival = &routed.arrival;
        let generation = &arrival.context.generation;
        let repeated = arrival.repeated.as_ref();
        let route = routed.matched.single_index();
        let route_repeat = repeated.and_then(|repeated| repeated.route_repeat(generation, route?));
        let (client, route_repeat) = match route_repeat {
            Some(route_repeat) => (route_repeat.client.clone(), Some(route_repeat)),
            None => identify_client(&routed),
        };
        let (rules, reads) = (&routed.route().rules, routed.route().reads);
        let needs_token = needs_token_in_body(&routed);
        if !needs_token {
            record_client(&arrival.context, &client);
        }
        let reads_ahead = needs_token
            || needs_email_search(&routed)
            || (reads.reserve_in_body && has_body(arrival));
        let reserved = match reads.reserve {
            true => reserve::read_reserved(rules, &arrival.head, b"", true),
            false => None,
        };
        let identified = Identified {
            routed,
            client,
            route_repeat,
            reserved,
        };
        if reads_ahead {
            return Either::Right(Either::Left(self.read_ahead(identified)));
        }
        match request_objection(&identified) {
            None => Either::Left(self.inner.call(identified)),
            Some(cause) => {
                let unserved = Unserved::routed(identified, cause);
                Either::Right(Either::Right(self.call(unserved)))
            }
        }
    }
}

/// Passes an unserved request on. Its future is boxed, because it is rare and would make that of every request as
/// large.
impl<S: Service<Unserved>> Service<Unserved> for Identify<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, unserved: Unserved) -> Self::Future {
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
    /// Identifies the client by the body too, and hands the request on.
    fn read_ahead(&mut self, mut identified: Identified) -> BoxedOutcome<IdentifiedResponse<S>> {
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let is_unrecorded = identified.routed.arrival.context.client.get().is_none();
            let searched = search_body(&mut identified).await;
            if is_unrecorded {
                record_client(&identified.routed.arrival.context, &identified.client);
            }
            let cause = searched.err().or_else(|| request_objection(&identified));
            match cause {
                None => inner.call(identified).await,
                Some(cause) => inner.call(Unserved::routed(identified, cause)).await,
            }
        })
    }
}

/// Reads ahead in the body, and searches it for what the limits of the route count by: a credential, an email address,
/// and the units to reserve.
///
/// # Errors
///
/// The body broke off, or it may hold a credential and cannot be searched.
async fn search_body(identified: &mut Identified) -> Result<(), RefusalCause> {
    let Identified {
        routed,
        client,
        reserved,
        ..
    } = identified;
    let (mut needs_token, needs_email) = (needs_token_in_body(routed), needs_email_search(routed));
    let generation = routed.arrival.context.generation.clone();
    let identifier = &generation.identifier;
    let matched = routed.matched.clone();
    let route = matched.route(&generation.ruleset);
    let reserves = route.reads.reserve_in_body && has_body(&routed.arrival);
    let email_in_body = needs_email && has_body(&routed.arrival);
    let Arrival {
        head,
        body,
        context,
        ..
    } = &mut routed.arrival;
    if needs_token {
        needs_token = credential_in_body::may_be_present(identifier, head, body).await?;
        routed.now = generation.clock.now();
    }
    let client = Rc::make_mut(client);
    let is_hidden = email_in_body && identifier.mark_hidden_email(client, head);
    let email_in_body = email_in_body && !is_hidden;
    if !(email_in_body || reserves || needs_token) {
        if needs_email && !is_hidden {
            identifier.set_email(client, head, b"", true);
        }
        return Ok(());
    }
    let max_for_email = identifier.max_body() * usize::from(email_in_body);
    let max_for_others = MAX_READ_AHEAD * usize::from(reserves || needs_token);
    let peeked = body.peek(max_for_email.max(max_for_others)).await?;
    routed.now = generation.clock.now();
    if needs_token {
        let in_body = credential_in_body::find_credential(
            route,
            identifier,
            head,
            &peeked.bytes,
            peeked.is_whole,
        )?;
        if in_body != FieldValue::Absent {
            let unclear_email = client.unclear_email;
            *client = identify_with_body(context, head, route, routed.now, in_body);
            client.unclear_email = unclear_email;
        }
    }
    if reserves {
        *reserved = reserve::read_reserved(&route.rules, head, &peeked.bytes, peeked.is_whole);
    }
    if email_in_body {
        identifier.set_email(client, head, &peeked.bytes, peeked.is_whole);
    }
    body.put_back(peeked.bytes, peeked.trailers);
    Ok(())
}

/// Whether a limit counts by a credential of the query, which may stand in the body instead.
fn needs_token_in_body(routed: &Routed) -> bool {
    let Arrival { head, body, .. } = &routed.arrival;
    !body.is_empty() && credential_in_body::is_searched(routed.route(), head)
}

/// Keeps the client's identities in the context, and counts a credential that does not verify.
fn record_client(context: &RequestContext, client: &Rc<ClientIdentity>) {
    if let Some(reason) = client.credential_fault() {
        context.generation.unverified.count(reason);
    }
    let _ = context.client.set(client.clone());
}

/// Whether a limit counts by an email address that may stand in the body, the query or a cookie.
#[inline]
fn needs_email_search(routed: &Routed) -> bool {
    routed.route().reads.email && {
        let arrival = &routed.arrival;
        let head = &arrival.head;
        head.uri.query().is_some() || has_body(arrival) || head.fields.contains("cookie")
    }
}

/// Whether the request has a body to search. A request for a tunnel has none: the tunnel's bytes come after the
/// response, and an HTTP/1.1 request with a body never opens a tunnel.
fn has_body(Arrival { head, body, .. }: &Arrival) -> bool {
    !body.is_empty() && head.upgrade.is_none()
}

/// Identifies the client by the head alone. If its identities depend on the header fields only, the connection
/// remembers them for the next request with the same fields.
fn identify_client(routed: &Routed) -> (Rc<ClientIdentity>, Option<Rc<RouteRepeat>>) {
    let (arrival, route) = (&routed.arrival, routed.route());
    let generation = &arrival.context.generation;
    let identifier = &generation.identifier;
    let client = identify_with_body(
        &arrival.context,
        &arrival.head,
        route,
        routed.now,
        FieldValue::Absent,
    );
    let client = Rc::new(client);
    // A credential that was not checked now may be checked with the next request.
    let is_checked = client.unverified != Some(Unverified::Unchecked);
    let is_repeatable =
        is_checked && identifier.needs_only_fields() && !route.needs(Identity::Email);
    let repeated = arrival.repeated.as_ref().filter(|_| is_repeatable);
    let repeated = repeated.zip(routed.matched.single_index());
    let repeated = repeated.filter(|(repeated, index)| repeated.repeats_route(*index));
    let route_repeat = repeated.map(|(repeated, index)| {
        let prepared = generation.admission.prepare(&AdmissionRequest {
            rules: &route.rules,
            client: &client,
            identifier,
            now: routed.now,
            pressure: None,
            reserved_units: &[],
        });
        let client = client.clone();
        repeated.remember_route_repeat(RouteRepeat::new(generation, index, client, prepared))
    });
    (client, route_repeat)
}

/// Identifies the client by the head and by `in_body`, the credential in the body. A credential is verified only if
/// [`may_check`] allows it.
fn identify_with_body(
    context: &RequestContext,
    head: &Head,
    route: &Route,
    now: Nanos,
    in_body: FieldValue<'_>,
) -> ClientIdentity {
    let generation = &context.generation;
    let identifier = &generation.identifier;
    let wall = || generation.clock.wall();
    let may = |client: &ClientIdentity| {
        let pressure = generation.pools[route.upstream_index].servers().pressure();
        let pressure = pressure.map(|pressure| &**pressure);
        may_check(
            &generation.admission,
            route,
            client,
            identifier,
            pressure,
            now,
        )
    };
    let check = CredentialCheck {
        now,
        may_check: &may,
    };
    let connection = context.peer.connection();
    identifier.identify_with_check(connection, (head, in_body), wall, Some(&check))
}

/// Why the route does not serve requests of this client, whatever its limits decide; none if it serves them.
pub fn find_objection(
    route: &Route,
    client: &ClientIdentity,
    identifier: &Identifier,
) -> Option<RefusalCause> {
    if (client.unverified.is_some() || client.ambiguous_token)
        && let Some(cause) = credential_objection(route, client, identifier)
    {
        return Some(cause);
    }
    if let Some(detail) = client
        .unclear_email
        .filter(|_| route.needs(Identity::Email))
    {
        return Some(RefusalCause::Bad(detail));
    }
    let mut required = route.require.iter();
    let absent = required.find(|identity| !client.has(**identity))?;
    Some(RefusalCause::Unidentified(*absent))
}

/// Whether a credential of this client may be verified. It may not if a limit refuses the address anyway: verifying a
/// signature costs a hundred times as much as a refusal, and guesses of keys beyond the limit must reveal nothing.
pub fn may_check(
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

/// Why a credential that does not verify ends the request. Counting it as absent is not enough: an upstream that reads
/// it in another way, or whose clock is behind, would serve a request that no limit has counted.
fn credential_objection(
    route: &Route,
    client: &ClientIdentity,
    identifier: &Identifier,
) -> Option<RefusalCause> {
    if client.ambiguous_token && route.needs(Identity::Token) {
        return Some(RefusalCause::Bad(AMBIGUOUS_CREDENTIAL));
    }
    let unverified = client.unverified?;
    let by_credential = [Identity::User, Identity::Token, Identity::Plan];
    let is_proven = |by: &Identity| identifier.settings().needs_proof(*by);
    let mut proven = by_credential.into_iter().filter(is_proven);
    let decides = || proven.clone().any(|by| route.depends_on(by));
    match unverified {
        Unverified::Ambiguous if decides() => {
            return Some(RefusalCause::Bad(AMBIGUOUS_CREDENTIAL));
        }
        Unverified::Unchecked => return decides().then_some(RefusalCause::Unchecked),
        _ => {}
    }
    if unverified == Unverified::Field && route.needs(Identity::User) {
        return Some(RefusalCause::Bad(INVALID_USER_FIELD));
    }
    if client.user.is_some() {
        return None;
    }
    // A plan with a default matters too: a token that gateway and upstream read differently would count for two plans.
    let matters = |by| {
        let is_required = route.require.contains(&by);
        is_required || (identifier.is_refused(unverified) && route.needs(by))
    };
    proven
        .any(matters)
        .then_some(RefusalCause::Unverified(unverified))
}

/// Why a request with an ambiguous credential is refused.
const AMBIGUOUS_CREDENTIAL: &str =
    "the credential can be read in more than one way: send it once, alone, in its plain form";

/// Why a request of a trusted proxy with an invalid user field is refused.
const INVALID_USER_FIELD: &str = "the user field of the trusted proxy is not one name of 1 to 256 bytes in UTF-8 without control characters and blanks at its ends";

/// Why the route of this request does not serve its client; none if it does.
fn request_objection(identified: &Identified) -> Option<RefusalCause> {
    let identifier = &identified.routed.arrival.context.generation.identifier;
    find_objection(identified.routed.route(), &identified.client, identifier)
}
