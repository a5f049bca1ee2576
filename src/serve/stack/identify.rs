//! Finds the identities of the client. Reads ahead in a body only where it may hold something that a limit counts by.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tower::{Layer, Service};

use super::body::MAX_AHEAD;
use super::ending::Ending;
use super::in_body;
use super::matched::MatchedRoute;
use super::note::RequestNote;
use super::refusal::{BoxedOutcome, Refusal, RefusalCause};
use super::reserve;
use super::stages::{Admitted, Arrival, Identified, Routed};
use super::verdict::record_verdict;
use crate::base::clock::{Clock, Nanos};
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::identity::{ClientIdentity, CredentialCheck, Identifier, Unverified};
use crate::limit::pressure::{Pressure, RequestClass, Shed, UpstreamSlot};
use crate::limit::{Identity, Rules};
use crate::route::{HeaderStyle, Priority, Route};
use crate::serve::http1::repeat::RouteRepeat;
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::{
    Admission, AdmissionRequest, Holdings, PreparedDecision, Verdict,
};
use crate::throttle::{AppliedLimits, DecisionObserver, ThrottledRequest, exceeded_limits};

impl ThrottledRequest for Identified {
    type Admitted = Admitted;
    type Limits = RouteLimits;

    fn admission_request(&self) -> AdmissionRequest<'_> {
        let arrival = &self.routed.arrival;
        AdmissionRequest {
            rules: self.rules(),
            client: &self.who,
            identifier: &arrival.note.generation.identifier,
            now: self.routed.now,
            pressure: self.pressure().map(|pressure| &**pressure),
            reserved: self.reserved.as_deref().unwrap_or_default(),
        }
    }

    fn prepared(&self) -> Option<&PreparedDecision> {
        self.route_repeat
            .as_ref()
            .map(|route_repeat| &route_repeat.prepared)
    }

    fn take_slot(&self) -> Result<Option<UpstreamSlot>, Shed> {
        let Some(pressure) = self.pressure() else {
            return Ok(None);
        };
        let identifier = &self.routed.arrival.note.generation.identifier;
        let class = class(self.routed.route(), &self.who, identifier);
        let cohort = || cohort(&self.who, identifier);
        pressure.admit(class, self.routed.now, cohort).map(Some)
    }

    fn admission(&self) -> &Admission {
        &self.routed.arrival.note.generation.admission
    }

    fn limits(&self) -> RouteLimits {
        RouteLimits {
            generation: self.routed.arrival.note.generation.clone(),
            matched: self.routed.matched.clone(),
        }
    }

    fn header_style(&self) -> HeaderStyle {
        self.routed.route().headers
    }

    fn into_admitted(self, verdict: &Verdict, slot: Option<UpstreamSlot>) -> Admitted {
        let over = exceeded_limits(verdict, self.rules());
        Admitted {
            identified: self,
            over,
            slot,
        }
    }
}

impl DecisionObserver for Identified {
    fn on_verdict(&self, verdict: &Verdict) {
        let note = &self.routed.arrival.note;
        record_verdict(note, verdict, self.rules(), &self.who, self.routed.now);
    }

    fn on_holdings(&self, holdings: Holdings) {
        self.routed.arrival.note.holdings.replace(Some(holdings));
    }

    fn on_shed(&self, shed: &Shed) {
        if let Some(pressure) = self.pressure() {
            pressure.record_shed(shed);
        }
    }
}

/// The limits of a request's route.
pub struct RouteLimits {
    generation: Rc<Generation>,
    matched: MatchedRoute,
}

impl AppliedLimits for RouteLimits {
    fn rules(&self) -> &Rules {
        &self.matched.route(&self.generation.ruleset).rules
    }

    fn clock(&self) -> &Clock {
        &self.generation.clock
    }
}

/// Puts [`Identify`] around a service.
#[derive(Clone, Copy, Debug)]
pub struct IdentifyLayer;

impl<S> Layer<S> for IdentifyLayer {
    type Service = Identify<S>;

    fn layer(&self, inner: S) -> Identify<S> {
        Identify { inner }
    }
}

/// See [`IdentifyLayer`].
#[derive(Clone, Copy, Debug)]
pub struct Identify<S> {
    inner: S,
}

/// What a service answers to a request that may go on.
type IdentifiedResponse<S> = <S as Service<Identified>>::Response;

impl<S> Service<Routed> for Identify<S>
where
    S: Service<Identified, Error = Refusal>
        + Service<Ending, Response = IdentifiedResponse<S>, Error = Refusal>
        + Clone
        + 'static,
{
    type Response = IdentifiedResponse<S>;
    type Error = Refusal;
    type Future = Either<
        <S as Service<Identified>>::Future,
        Either<BoxedOutcome<IdentifiedResponse<S>>, Pin<Box<<S as Service<Ending>>::Future>>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Service::<Identified>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, routed: Routed) -> Self::Future {
        let arrival = &routed.arrival;
        let generation = &arrival.note.generation;
        let repeated = arrival.repeated.as_ref();
        let alone = routed.matched.alone();
        let route_repeat = repeated.and_then(|repeated| repeated.route_repeat(generation, alone?));
        let (who, route_repeat) = match route_repeat {
            Some(route_repeat) => (route_repeat.client.clone(), Some(route_repeat)),
            None => identify_client(&routed),
        };
        let (rules, reads) = (&routed.route().rules, routed.route().reads);
        let wants_token = wants_token(&routed);
        if !wants_token {
            note(&arrival.note, &who);
        }
        let reads_ahead =
            wants_token || wants_email(&routed) || (reads.reserve_in_body && has_body(arrival));
        let reserved = match reads.reserve {
            true => reserve::reserved(rules, &arrival.head, b"", true),
            false => None,
        };
        let identified = Identified {
            routed,
            who,
            route_repeat,
            reserved,
        };
        if reads_ahead {
            return Either::Right(Either::Left(self.read_ahead(identified)));
        }
        match objects(&identified) {
            None => Either::Left(self.inner.call(identified)),
            Some(why) => {
                let ending = Ending::routed(identified, why);
                Either::Right(Either::Right(self.call(ending)))
            }
        }
    }
}

/// Boxed, because it is rare and would make the future of every request as large.
impl<S: Service<Ending>> Service<Ending> for Identify<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, ending: Ending) -> Self::Future {
        Box::pin(self.inner.call(ending))
    }
}

impl<S> Identify<S>
where
    S: Service<Identified, Error = Refusal>
        + Service<Ending, Response = IdentifiedResponse<S>, Error = Refusal>
        + Clone
        + 'static,
{
    fn read_ahead(&mut self, mut identified: Identified) -> BoxedOutcome<IdentifiedResponse<S>> {
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let unnoted = identified.routed.arrival.note.who.get().is_none();
            let looked = look_ahead(&mut identified).await;
            if unnoted {
                note(&identified.routed.arrival.note, &identified.who);
            }
            let why = looked.err().or_else(|| objects(&identified));
            match why {
                None => inner.call(identified).await,
                Some(why) => inner.call(Ending::routed(identified, why)).await,
            }
        })
    }
}

/// Reads ahead in the body, and finds there what the limits of the route count by.
async fn look_ahead(identified: &mut Identified) -> Result<(), RefusalCause> {
    let Identified {
        routed,
        who,
        reserved,
        ..
    } = identified;
    let (mut wants_token, wants_email) = (wants_token(routed), wants_email(routed));
    let generation = routed.arrival.note.generation.clone();
    let identifier = &generation.identifier;
    let matched = routed.matched.clone();
    let route = matched.route(&generation.ruleset);
    let reserves = route.reads.reserve_in_body && has_body(&routed.arrival);
    let email_in_body = wants_email && has_body(&routed.arrival);
    let Arrival {
        head, body, note, ..
    } = &mut routed.arrival;
    if wants_token {
        wants_token = in_body::may_be_there(identifier, head, body).await?;
        routed.now = generation.clock.now();
    }
    let who = Rc::make_mut(who);
    let hidden = email_in_body && identifier.hides_body(who, head);
    let email_in_body = email_in_body && !hidden;
    if !(email_in_body || reserves || wants_token) {
        if wants_email && !hidden {
            identifier.set_email(who, head, b"", true);
        }
        return Ok(());
    }
    let for_email = identifier.max_body() * usize::from(email_in_body);
    let for_others = MAX_AHEAD * usize::from(reserves || wants_token);
    let peeked = body.peek(for_email.max(for_others)).await?;
    routed.now = generation.clock.now();
    if wants_token {
        let in_body = in_body::find(route, identifier, head, &peeked.ahead, peeked.whole)?;
        if in_body != FieldValue::Absent {
            let unclear_email = who.unclear_email;
            *who = who_asks((note, head), route, routed.now, in_body);
            who.unclear_email = unclear_email;
        }
    }
    if reserves {
        *reserved = reserve::reserved(&route.rules, head, &peeked.ahead, peeked.whole);
    }
    if email_in_body {
        identifier.set_email(who, head, &peeked.ahead, peeked.whole);
    }
    body.put_back(peeked.ahead, peeked.trailers);
    Ok(())
}

/// Whether a limit counts by a credential of the query that may stand in the body.
fn wants_token(routed: &Routed) -> bool {
    let Arrival { head, body, .. } = &routed.arrival;
    !body.is_empty() && in_body::is_wanted(routed.route(), head)
}

/// Counts a credential that does not verify, and notes the identities.
fn note(note: &RequestNote, who: &Rc<ClientIdentity>) {
    if let Some(reason) = who.credential_fault() {
        note.generation.unverified.count(reason);
    }
    let _ = note.who.set(who.clone());
}

/// Whether a limit counts by an address that may stand in the body, the query or a cookie.
#[inline]
fn wants_email(routed: &Routed) -> bool {
    routed.route().reads.email && {
        let arrival = &routed.arrival;
        let head = &arrival.head;
        head.uri.query().is_some() || has_body(arrival) || head.fields.contains("cookie")
    }
}

/// Whether there is a body to search. What a tunnel carries is none, and comes after the response. An HTTP/1.1 request with
/// a body never opens a tunnel.
fn has_body(Arrival { head, body, .. }: &Arrival) -> bool {
    !body.is_empty() && head.upgrade.is_none()
}

/// The identities of the client, and what the connection remembers of them if they depend on the header fields only.
fn identify_client(routed: &Routed) -> (Rc<ClientIdentity>, Option<Rc<RouteRepeat>>) {
    let (arrival, route) = (&routed.arrival, routed.route());
    let generation = &arrival.note.generation;
    let identifier = &generation.identifier;
    let who = who_asks(
        (&arrival.note, &arrival.head),
        route,
        routed.now,
        FieldValue::Absent,
    );
    let who = Rc::new(who);
    // A credential that was not checked now may be checked the next time.
    let checked = who.unverified != Some(Unverified::Unchecked);
    let lasts = checked && identifier.looks_at_fields_only() && !route.needs(Identity::Email);
    let repeated = arrival.repeated.as_ref().filter(|_| lasts);
    let repeated = repeated.zip(routed.matched.alone());
    let repeated = repeated.filter(|(repeated, index)| repeated.repeats_route(*index));
    let route_repeat = repeated.map(|(repeated, index)| {
        let prepared = generation.admission.prepare(&AdmissionRequest {
            rules: &route.rules,
            client: &who,
            identifier,
            now: routed.now,
            pressure: None,
            reserved: &[],
        });
        let who = who.clone();
        repeated.remember_route_repeat(RouteRepeat::new(generation, index, who, prepared))
    });
    (who, route_repeat)
}

/// The identities of the client. `in_body` is the credential in the body.
fn who_asks(
    (note, head): (&RequestNote, &Head),
    route: &Route,
    now: Nanos,
    in_body: FieldValue<'_>,
) -> ClientIdentity {
    let generation = &note.generation;
    let identifier = &generation.identifier;
    let wall = || generation.clock.wall();
    let may = |who: &ClientIdentity| {
        let pressure = generation.pools[route.upstream].servers().pressure();
        let pressure = pressure.map(|pressure| &**pressure);
        may_check(
            &generation.admission,
            route,
            (who, identifier),
            pressure,
            now,
        )
    };
    let check = CredentialCheck { now, may: &may };
    let connection = note.peer.connection();
    identifier.identify_if(connection, (head, in_body), wall, Some(&check))
}

/// Why the route does not serve a request of this client, whatever its limits say.
pub fn objection(
    route: &Route,
    who: &ClientIdentity,
    identifier: &Identifier,
) -> Option<RefusalCause> {
    if (who.unverified.is_some() || who.ambiguous_token)
        && let Some(why) = unproven(route, who, identifier)
    {
        return Some(why);
    }
    if let Some(why) = who.unclear_email.filter(|_| route.needs(Identity::Email)) {
        return Some(RefusalCause::Bad(why));
    }
    let mut required = route.require.iter();
    let absent = required.find(|identity| !who.has(**identity))?;
    Some(RefusalCause::Unidentified(*absent))
}

/// Whether a credential of this client is verified: not if a limit refuses its address anyway. A signature costs a hundred
/// times as much as a refusal, and guesses of keys beyond the limit must teach nothing.
pub fn may_check(
    admission: &Admission,
    route: &Route,
    (who, identifier): (&ClientIdentity, &Identifier),
    pressure: Option<&Pressure>,
    now: Nanos,
) -> bool {
    let ask = AdmissionRequest {
        rules: &route.own.by_ip,
        client: who,
        identifier,
        now,
        pressure,
        reserved: &[],
    };
    ask.rules.is_empty() || admission.peek(&ask).admitted
}

/// Why a credential that does not verify ends the request. Counting it as absent is not enough: an upstream that reads it in
/// another way, or whose clock is behind, would serve a request that no limit has counted.
fn unproven(route: &Route, who: &ClientIdentity, identifier: &Identifier) -> Option<RefusalCause> {
    if who.ambiguous_token && route.needs(Identity::Token) {
        return Some(RefusalCause::Bad(UNCLEAR));
    }
    let unverified = who.unverified?;
    let by_credential = [Identity::User, Identity::Token, Identity::Plan];
    let proves = |by: &Identity| identifier.settings().proves(*by);
    let mut proven = by_credential.into_iter().filter(proves);
    let decides = || proven.clone().any(|by| route.depends_on(by));
    match unverified {
        Unverified::Ambiguous if decides() => return Some(RefusalCause::Bad(UNCLEAR)),
        Unverified::Unchecked => return decides().then_some(RefusalCause::Unchecked),
        _ => {}
    }
    if unverified == Unverified::Field && route.needs(Identity::User) {
        return Some(RefusalCause::Bad(BAD_FIELD));
    }
    if who.user.is_some() {
        return None;
    }
    // Also for a plan that has a default: a token that the gateway and the upstream read in two ways would use two counters.
    let matters = |by| {
        let required = route.require.contains(&by);
        required || (identifier.refuses(unverified) && route.needs(by))
    };
    proven
        .any(matters)
        .then_some(RefusalCause::Unverified(unverified))
}

/// Why a request with an ambiguous credential is refused.
const UNCLEAR: &str =
    "the credential can be read in more than one way: send it once, alone, in its plain form";

/// Why a request of a trusted proxy with an ambiguous user field is refused.
const BAD_FIELD: &str = "the user field of the trusted proxy is not one name of 1 to 256 bytes in UTF-8 without control characters and blanks at its ends";

fn objects(identified: &Identified) -> Option<RefusalCause> {
    let identifier = &identified.routed.arrival.note.generation.identifier;
    objection(identified.routed.route(), &identified.who, identifier)
}

/// The priority of a request: that of the route, else that of the client's plan.
pub fn class(route: &Route, who: &ClientIdentity, identifier: &Identifier) -> RequestClass {
    let of_plan = || identifier.settings().plan.priority(who.plan);
    match route.priority.or_else(of_plan).unwrap_or_default() {
        Priority::Critical => RequestClass::Critical,
        Priority::Normal => RequestClass::Normal,
        Priority::Low => RequestClass::Low,
    }
}

/// The number that decides who gives way first within a class: a hash of the user, else of the address.
pub fn cohort(who: &ClientIdentity, identifier: &Identifier) -> u64 {
    let whose = |by| identifier.key(who, &[by]).map(|key| key.0 as u64);
    whose(Identity::User)
        .or_else(|| whose(Identity::Ip))
        .unwrap_or_default()
}
