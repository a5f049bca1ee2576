//! A request to which the gateway itself responds, such as with 401 or 404. Limits count it before it ends, so that scans
//! for paths and guesses of credentials end in 429. It never reaches an upstream.

use std::rc::Rc;
use std::time::Duration;

use super::matched::MatchedRoute;
use super::refusal::RefusalCause;
use super::stages::{Arrival, Identified};
use super::verdict::record_verdict;
use crate::base::clock::{Clock, Nanos};
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::identity::{ClientIdentity, ConnectionPeer, CredentialCheck, Identifier, Unverified};
use crate::limit::Rules;
use crate::limit::pressure::UpstreamSlot;
use crate::policy::Ruleset;
use crate::route::{HeaderStyle, Route};
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::{Admission, AdmissionRequest, Verdict};
use crate::throttle::{AppliedLimits, DecisionObserver, ThrottledRequest};

/// The limits that count such a request.
#[derive(Clone, Debug)]
pub enum CountingLimits {
    /// Those of requests without a route.
    Unrouted,
    /// Those of its route.
    Routed(MatchedRoute),
    /// Those of its route that count by ip only, because its credential was not checked.
    ByIp(MatchedRoute),
    /// Those of its route but the ones that count by an absent identity: the one at this index of the route's `require`.
    Without(MatchedRoute, usize),
}

impl CountingLimits {
    /// The limits that count a request on this route.
    pub fn of(matched: &MatchedRoute, ruleset: &Ruleset, who: &ClientIdentity) -> CountingLimits {
        let matched = matched.clone();
        if who.unverified == Some(Unverified::Unchecked) {
            return CountingLimits::ByIp(matched);
        }
        let mut required = matched.route(ruleset).require.iter();
        match required.position(|identity| !who.has(*identity)) {
            Some(place) => CountingLimits::Without(matched, place),
            None => CountingLimits::Routed(matched),
        }
    }

    /// The limits.
    pub fn rules<'r>(&'r self, ruleset: &'r Ruleset) -> &'r Rules {
        match self {
            CountingLimits::Unrouted => &ruleset.unrouted.rules,
            CountingLimits::Routed(matched) => &matched.route(ruleset).own.all,
            CountingLimits::ByIp(matched) => &matched.route(ruleset).own.by_ip,
            CountingLimits::Without(matched, place) => &matched.route(ruleset).own.without[*place],
        }
    }

    fn matched(&self) -> Option<&MatchedRoute> {
        match self {
            CountingLimits::Unrouted => None,
            CountingLimits::Routed(matched)
            | CountingLimits::ByIp(matched)
            | CountingLimits::Without(matched, _) => Some(matched),
        }
    }

    /// Its route.
    pub fn route<'r>(&'r self, ruleset: &'r Ruleset) -> Option<&'r Route> {
        self.matched().map(|matched| matched.route(ruleset))
    }

    /// A number for this set of limits that no other set has, nor any route; none for several routes together.
    pub fn number(&self, ruleset: &Ruleset) -> Option<usize> {
        let routes = ruleset.routes.len();
        let Some(matched) = self.matched() else {
            return Some(usize::MAX);
        };
        let set = match self {
            CountingLimits::Unrouted | CountingLimits::Routed(_) => 1,
            CountingLimits::ByIp(_) => 2,
            CountingLimits::Without(_, place) => place + 3,
        };
        Some(routes * set + matched.alone()?)
    }

    /// Which rate-limit headers a refusal carries.
    pub fn header_style(&self, ruleset: &Ruleset) -> HeaderStyle {
        let route = self.route(ruleset);
        route.map_or(ruleset.unrouted.headers, |route| route.headers)
    }
}

/// The identities of a request without a route: its address, and what its credentials prove if a limit counts by that.
/// Otherwise no signature is verified for the sake of a 404.
pub fn unrouted_who<'a>(
    ruleset: &Ruleset,
    identifier: &Identifier,
    connection: ConnectionPeer<'a>,
    head: &Head,
    (now, wall): (Nanos, impl FnOnce() -> Duration),
) -> ClientIdentity {
    // Its limits are asked in any case.
    let check = CredentialCheck {
        now,
        may: &|_| true,
    };
    match ruleset.unrouted.by_credential {
        true => identifier.identify_if(connection, (head, FieldValue::Absent), wall, Some(&check)),
        false => identifier.client(connection, &head.fields),
    }
}

/// See the module.
pub struct Ending {
    /// The request.
    pub arrival: Arrival,
    /// The identities of the client.
    pub who: Rc<ClientIdentity>,
    /// The time for its limits.
    pub now: Nanos,
    /// Which limits count it.
    pub counted: CountingLimits,
    /// Why it ends.
    pub why: RefusalCause,
}

impl Ending {
    /// Ends a request that has no route.
    pub fn unrouted(arrival: Arrival, why: RefusalCause, now: Nanos) -> Ending {
        let note = &arrival.note;
        let generation = &note.generation;
        let who = Rc::new(unrouted_who(
            &generation.ruleset,
            &generation.identifier,
            note.peer.connection(),
            &arrival.head,
            (now, || generation.clock.wall()),
        ));
        let _ = note.who.set(who.clone());
        Ending {
            who,
            now,
            counted: CountingLimits::Unrouted,
            why,
            arrival,
        }
    }

    /// Ends a request that its route does not serve.
    pub fn routed(identified: Identified, why: RefusalCause) -> Ending {
        let Identified { routed, who, .. } = identified;
        let ruleset = &routed.arrival.note.generation.ruleset;
        let counted = CountingLimits::of(&routed.matched, ruleset, &who);
        Ending {
            arrival: routed.arrival,
            who,
            now: routed.now,
            counted,
            why,
        }
    }

    /// The limits that count it.
    pub fn rules(&self) -> &Rules {
        self.counted.rules(&self.generation().ruleset)
    }

    fn generation(&self) -> &Rc<Generation> {
        &self.arrival.note.generation
    }
}

impl ThrottledRequest for Ending {
    type Admitted = Ending;
    type Limits = EndingLimits;

    fn admission_request(&self) -> AdmissionRequest<'_> {
        let generation = self.generation();
        let route = self.counted.route(&generation.ruleset);
        let servers = route.map(|route| generation.pools[route.upstream].servers());
        AdmissionRequest {
            rules: self.rules(),
            client: &self.who,
            identifier: &generation.identifier,
            now: self.now,
            pressure: servers
                .and_then(|servers| servers.pressure())
                .map(|at| &**at),
            reserved: &[],
        }
    }

    fn admission(&self) -> &Admission {
        &self.generation().admission
    }

    fn limits(&self) -> EndingLimits {
        EndingLimits {
            generation: self.generation().clone(),
            counted: self.counted.clone(),
        }
    }

    fn header_style(&self) -> HeaderStyle {
        self.counted.header_style(&self.generation().ruleset)
    }

    fn into_admitted(self, _: &Verdict, _: Option<UpstreamSlot>) -> Ending {
        self
    }
}

impl DecisionObserver for Ending {
    fn on_verdict(&self, verdict: &Verdict) {
        let note = &self.arrival.note;
        record_verdict(note, verdict, self.rules(), &self.who, self.now);
    }
}

/// The limits that count a request which ends at the gateway.
pub struct EndingLimits {
    generation: Rc<Generation>,
    counted: CountingLimits,
}

impl AppliedLimits for EndingLimits {
    fn rules(&self) -> &Rules {
        self.counted.rules(&self.generation.ruleset)
    }

    fn clock(&self) -> &Clock {
        &self.generation.clock
    }
}
