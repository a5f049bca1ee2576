//! The cache of repeated requests of one HTTP/1.1 connection.
//!
//! Most clients send the same header fields each time. So a connection remembers what its last request meant. If the next
//! request has the same fields, only its first line is parsed. A repeated request always means what it would mean alone.
//!
//! | what is cached | its key | what voids it | test |
//! |---|---|---|---|
//! | the parsed fields ([`RepeatedFields`]), once they have come twice | the bytes below the first line | other bytes, or an idle connection | 1 |
//! | the head ([`RepeatedHead`]) | the bytes of the first line | another first line | 1 |
//! | that its `Host` is canonical | the fields | other fields | 1 |
//! | its route | the head, the generation | another head, a reload | 2, 4 |
//! | the client's identities ([`RouteDecision`]), unless they depend on a body, the query, an unchecked credential or a key with an end | the fields, the route, the generation, and the head if one is a part of the path | another route, a reload, a ban by another custom identity, a change of API keys at run time | 3, 4, 12 |
//! | the keys of its limits and their places in the store ([`PreparedDecision`]) | as the identities | as the identities | 3, 4 |
//! | that its address is banned, with the response ([`BannedAddress`]) | the fields, the generation | any change of bans, the end of the ban, a reload; of the response also another number of seconds to wait | 9, 10 |
//! | the ban of its client ([`RouteDecision`]) | as the identities | any change of bans, the end of the ban | 9, 10 |
//! | a refusal that still stands ([`PreparedDecision`]) | as the identities | a change of a bucket that it read, or the time at which a unit comes back | 5, 6 |
//! | the response to that refusal | as the identities | another verdict, or another number of seconds to wait | 5, 7 |
//! | the head as it is forwarded, without the request's id, unless a limit is exceeded, a proxy names the path or a changed field has the id | as the identities, and the head | another head | 1, 2 |
//! | the text of the log line of a refusal | the head, the identities, outcome, status, bytes, limit, whether the store is away | a difference in one of them | 11 |
//!
//! A worker also caches refusals of all its clients, in [`refusal_cache`](crate::serve::stack::refusal_cache): its key is
//! everything that a response depends on (test 8).
//!
//! Tests: in `tests/attacks/repeats.rs` 1 `a_request_means_what_it_means_alone`, 2 `routes_in_turn`, 3
//! `each_is_counted_as_who_it_is`, 4 `a_reload_forgets`, 5 `a_refusal_is_told_as_if_for_the_first_time`; in
//! `tests/exactness.rs` 6 `a_client_that_is_refused_again_and_again_gets_what_there_is`; in `tests/proxy/refusals.rs` 7
//! `a_refusal_told_again_says_its_length_once`, 8 `refusals_of_many_clients_in_turn`; in
//! `tests/bans/responses.rs` 9 `a_ban_holds_on_busy_connections_at_once`, 10 `a_ban_ends_on_busy_connections`, 11
//! `lines_of_refusals_and_bans_in_turn`; in `tests/api_keys/orders.rs` 12
//! `a_revoked_key_is_refused_on_busy_connections`.
//!
//! Bound for each connection that has an open request, or had one within the last second: four times
//! [`MAX_CACHED_BYTES`]; the first lines of its last forwarded and last refused requests; the fields of one forwarded
//! head; the identities and keys of one client; one refusal with its response.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use http::Version;

use crate::base::clock::Nanos;
use crate::http::head::{Fields, Head, Response};
use crate::http::http1::FramingFields;
use crate::identity::ClientIdentity;
use crate::limit::{IdentitySet, LimitStanding};
use crate::operator::ActiveBan;
use crate::serve::stack::ban_refusal::BanRefusal;
use crate::serve::stack::request_outcome::RequestOutcome;
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::{PreparedDecision, Verdict};

/// Maximum bytes of each cached text: the lines of the fields, the first line, and the log line of a refusal. Longer ones
/// are not cached.
pub const MAX_CACHED_BYTES: usize = 4 * 1024;

/// The cache of one connection: the lines of its last request below the first line, and the fields that they mean.
#[derive(Default)]
pub struct RepeatCache {
    /// The lines of the last request below its first line, with the empty line at their end.
    field_lines: Vec<u8>,
    /// The fields of `field_lines`; `None` until these lines have come a second time.
    fields: Option<Rc<RepeatedFields>>,
}

/// Header fields that have come more than once, and what the connection remembers of requests with these fields.
pub struct RepeatedFields {
    pub(crate) fields: Fields,
    pub(crate) framing_fields: FramingFields,
    pub(crate) features: RequestedFeatures,
    /// The version of HTTP of the request that the fields were parsed from.
    pub(crate) version: Version,
    /// Whether exactly one of the fields is `Host`, in its canonical form. Set by routing.
    pub(crate) has_canonical_host: Cell<bool>,
    /// The index of the route of the last request; `None` before the first one.
    last_route_index: Cell<Option<usize>>,
    /// The last decision that may hold for the next request.
    route_decision: RefCell<Option<Rc<RouteDecision>>>,
    last_head: RefCell<Option<RepeatedHead>>,
    /// The banned address of the last request.
    banned_address: RefCell<Option<BannedAddress>>,
    /// The log line of the last request that was refused. Set by the access log.
    pub(crate) logged_refusal: RefCell<Option<LoggedRefusal>>,
}

/// The head of the last request with the same fields.
struct RepeatedHead {
    first_line: Bytes,
    head: Rc<Head>,
    /// The index of the head's route, and the generation that has matched it. The `Weak` keeps that generation's memory
    /// allocated, so no other one can have its address.
    route: Option<(Weak<Generation>, usize)>,
}

/// Features of HTTP that a client asks for in its fields.
#[derive(Clone, Debug, Default)]
pub struct RequestedFeatures {
    /// Whether the fields have `Expect: 100-continue`.
    pub(crate) expects_continue: bool,
    /// Whether the fields have `TE: trailers`.
    pub(crate) accepts_trailers: bool,
    /// The protocol of `Upgrade`, if the gateway passes it on.
    pub(crate) upgrade: Option<Bytes>,
    /// Whether the request is a gRPC call, so that a refusal carries a gRPC status.
    pub(crate) is_grpc: bool,
}

/// The identities, keys and results that one route had for the last request with the same fields.
pub struct RouteDecision {
    /// The generation that has decided. The `Weak` keeps its memory allocated, so no other one can have its address.
    generation: Weak<Generation>,
    route_index: usize,
    /// The head that the decision is about, if an identity is a part of the path; `None` if the decision is about all heads
    /// with the same fields.
    only_for_head: Option<Rc<Head>>,
    /// The custom identities that were looked for. A ban by another one voids the decision.
    pub(crate) sought_custom: IdentitySet,
    /// The version of the API keys that operators add at run time.
    pub(crate) key_version: u64,
    pub(crate) client: Rc<ClientIdentity>,
    /// The ban of the client, and the version of the bans in which it was looked for.
    client_ban: RefCell<Option<(u64, Option<Arc<ActiveBan>>)>>,
    /// Whether the route was found to have no objection to the client. That depends on the two of them alone.
    pub(crate) is_client_served: Cell<bool>,
    /// The keys that the route's limits count by.
    pub(crate) prepared_decision: PreparedDecision,
    /// The response to the last verdict, if that was a refusal that may be repeated.
    refusal: RefCell<Option<CachedRefusal>>,
    /// The last head that was forwarded while no limit was exceeded.
    forwarded_head: RefCell<Option<ForwardedHead>>,
}

/// The client of requests with these fields, whose address is banned.
pub(crate) struct BannedAddress {
    /// The generation that found the address. The `Weak` keeps its memory allocated, so no other one can have its address.
    pub(crate) generation: Weak<Generation>,
    /// The version of the bans.
    pub(crate) version: u64,
    pub(crate) client: Rc<ClientIdentity>,
    pub(crate) refusal: BanRefusal,
    /// From when on the response must name another number of seconds to wait.
    pub(crate) valid_until: Nanos,
}

/// The response to a refusal that stands.
struct CachedRefusal {
    response: Rc<Response<Bytes>>,
    /// From when on the response must name another number of seconds to wait.
    valid_until: Nanos,
}

/// The text of the log line of a refusal, without its times, and everything that the text depends on. Identities are
/// made anew for each route and generation, so the same `client` in memory means the same route and generation.
pub(crate) struct LoggedRefusal {
    pub(crate) head: Rc<Head>,
    pub(crate) client: Rc<ClientIdentity>,
    pub(crate) facts: LoggedFacts,
    pub(crate) text: Box<[u8]>,
}

/// The facts of a refused request that its log line depends on, beside head and client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoggedFacts {
    pub(crate) outcome: RequestOutcome,
    pub(crate) status: u16,
    /// Bytes of the response's body that were sent.
    pub(crate) sent_bytes: u64,
    /// The index of the limit that decided, and its standing.
    pub(crate) deciding_limit: Option<(usize, LimitStanding)>,
    /// Whether the shared store was away, so that the gateway decided alone.
    pub(crate) is_without_store: bool,
}

/// A head as it was received, and as it is forwarded where no limit is exceeded.
struct ForwardedHead {
    received: Rc<Head>,
    forwarded: Rc<Head>,
}

impl RepeatCache {
    /// The remembered fields, after the offset in `input` at which their lines begin: the end of the first line. `None`
    /// if nothing is remembered, if other lines stand there, or if the first line does not end in CRLF.
    pub(crate) fn find_fields(&self, input: &[u8]) -> Option<(usize, &Rc<RepeatedFields>)> {
        let fields = self.fields.as_ref()?;
        let fields_start = memchr::memchr(b'\n', input)? + 1;
        let is_repeated = input[fields_start..].starts_with(&self.field_lines);
        let is_crlf = input[..fields_start].ends_with(b"\r\n");
        (is_repeated && is_crlf).then_some((fields_start, fields))
    }

    /// Starts to load the counts of the limits into the processor's cache, in case the next request is the same.
    pub(crate) fn prefetch(&self) {
        let Some(fields) = &self.fields else { return };
        if let Some(decision) = &*fields.route_decision.borrow() {
            decision.prepared_decision.prefetch();
        }
    }

    /// The length of the remembered lines, in bytes.
    pub(crate) fn field_lines_len(&self) -> usize {
        self.field_lines.len()
    }

    /// Remembers the lines below the first line, unless they are longer than [`MAX_CACHED_BYTES`]; true if they were
    /// remembered already.
    pub(crate) fn remember_lines(&mut self, field_lines: &[u8]) -> bool {
        if self.field_lines == field_lines {
            return true;
        }
        self.fields = None;
        self.field_lines.clear();
        if field_lines.len() <= MAX_CACHED_BYTES {
            self.field_lines.extend_from_slice(field_lines);
        }
        false
    }

    /// Remembers the fields that were parsed from the remembered lines.
    pub(crate) fn remember_fields(
        &mut self,
        fields: &Fields,
        framing_fields: FramingFields,
        features: &RequestedFeatures,
        version: Version,
    ) {
        self.fields = Some(Rc::new(RepeatedFields {
            fields: fields.to_shared(),
            framing_fields,
            features: features.clone(),
            version,
            has_canonical_host: Cell::new(false),
            last_route_index: Cell::new(None),
            route_decision: RefCell::default(),
            last_head: RefCell::default(),
            banned_address: RefCell::default(),
            logged_refusal: RefCell::default(),
        }));
    }
}

impl RepeatedFields {
    /// The last head, if it begins with this line, which includes its line end.
    pub(crate) fn head(&self, first_line: &[u8]) -> Option<Rc<Head>> {
        let last_head = self.last_head.borrow();
        let repeated_head = last_head
            .as_ref()
            .filter(|last_head| last_head.first_line == first_line);
        repeated_head.map(|repeated_head| repeated_head.head.clone())
    }

    /// Remembers a head and the line that it begins with.
    pub(crate) fn remember_head(&self, first_line: Bytes, head: Rc<Head>) {
        *self.last_head.borrow_mut() = Some(RepeatedHead {
            first_line,
            head,
            route: None,
        });
    }

    /// The index of the route that `generation` has matched with this head; `None` if `head` is not the last head, or
    /// if this generation has not matched it.
    pub(crate) fn route_index(
        &self,
        head: &Rc<Head>,
        generation: &Rc<Generation>,
    ) -> Option<usize> {
        let last_head = self.last_head.borrow();
        let repeated_head = last_head
            .as_ref()
            .filter(|last_head| Rc::ptr_eq(&last_head.head, head));
        let (matched_by, route_index) = repeated_head?.route.as_ref()?;
        std::ptr::eq(matched_by.as_ptr(), Rc::as_ptr(generation)).then_some(*route_index)
    }

    /// Remembers the route of `head`, if that is the last head.
    pub(crate) fn remember_route(
        &self,
        head: &Rc<Head>,
        generation: &Rc<Generation>,
        route_index: usize,
    ) {
        let mut last_head = self.last_head.borrow_mut();
        if let Some(repeated_head) = last_head
            .as_mut()
            .filter(|last_head| Rc::ptr_eq(&last_head.head, head))
        {
            repeated_head.route = Some((Rc::downgrade(generation), route_index));
        }
    }

    /// The client of requests with these fields, its last refusal, and until when that is the same. `None` if `generation`
    /// did not find a ban that holds at `now` among the bans of this version.
    pub(crate) fn banned_address(
        &self,
        generation: &Rc<Generation>,
        version: u64,
        now: Nanos,
    ) -> Option<(Rc<ClientIdentity>, BanRefusal, Nanos)> {
        let banned_address = self.banned_address.borrow();
        let banned = banned_address.as_ref().filter(|banned| {
            banned.version == version
                && now < banned.refusal.ban.until
                && std::ptr::eq(banned.generation.as_ptr(), Rc::as_ptr(generation))
        })?;
        Some((
            banned.client.clone(),
            banned.refusal.clone(),
            banned.valid_until,
        ))
    }

    /// Remembers the banned address of requests with these fields.
    pub(crate) fn remember_banned_address(&self, banned_address: BannedAddress) {
        *self.banned_address.borrow_mut() = Some(banned_address);
    }

    /// What this route of `generation` has decided about the last request with these fields, if that holds for `head`.
    pub(crate) fn route_decision(
        &self,
        generation: &Rc<Generation>,
        route_index: usize,
        head: &Rc<Head>,
    ) -> Option<Rc<RouteDecision>> {
        let last_decision = self.route_decision.borrow();
        let is_about_request = |decision: &&Rc<RouteDecision>| {
            let only_for_head = decision.only_for_head.as_ref();
            decision.route_index == route_index
                && only_for_head.is_none_or(|only_for_head| Rc::ptr_eq(only_for_head, head))
                && std::ptr::eq(decision.generation.as_ptr(), Rc::as_ptr(generation))
        };
        last_decision.as_ref().filter(is_about_request).cloned()
    }

    /// Remembers the route of a request; true if the last request took this route too. Only then is the route's decision
    /// remembered, because to remember it costs more than a single repeat saves.
    pub(crate) fn replace_last_route(&self, route_index: usize) -> bool {
        self.last_route_index.replace(Some(route_index)) == Some(route_index)
    }

    /// Remembers what a route has decided about a request with these fields.
    pub(crate) fn remember_route_decision(&self, decision: RouteDecision) -> Rc<RouteDecision> {
        let decision = Rc::new(decision);
        *self.route_decision.borrow_mut() = Some(decision.clone());
        decision
    }
}

impl RouteDecision {
    /// The decision about a request that has been identified, and that was not forwarded or refused yet. It holds for all
    /// heads with the same fields, or for `only_for_head`.
    pub(crate) fn new(
        generation: &Rc<Generation>,
        route_index: usize,
        only_for_head: Option<Rc<Head>>,
        client: Rc<ClientIdentity>,
        prepared_decision: PreparedDecision,
    ) -> RouteDecision {
        RouteDecision {
            generation: Rc::downgrade(generation),
            route_index,
            only_for_head,
            sought_custom: IdentitySet::default(),
            key_version: 0,
            client,
            client_ban: RefCell::default(),
            is_client_served: Cell::new(false),
            prepared_decision,
            refusal: RefCell::default(),
            forwarded_head: RefCell::default(),
        }
    }

    /// The decision about a client for which these custom identities were looked for, among API keys of this version.
    pub(crate) fn with_basis(self, sought_custom: IdentitySet, key_version: u64) -> RouteDecision {
        RouteDecision {
            sought_custom,
            key_version,
            ..self
        }
    }

    /// The ban of the client, or that there is none. The outer `None` means that it must be looked for: it was not in this
    /// version of the bans, or it has ended by `now`, so that another one may hold.
    pub(crate) fn client_ban(&self, version: u64, now: Nanos) -> Option<Option<Arc<ActiveBan>>> {
        let client_ban = self.client_ban.borrow();
        let (found_in, ban) = client_ban.as_ref()?;
        let is_current = *found_in == version && ban.as_ref().is_none_or(|ban| now < ban.until);
        is_current.then(|| ban.clone())
    }

    /// Remembers the ban of the client, or that there is none in this version of the bans.
    pub(crate) fn remember_client_ban(&self, version: u64, ban: Option<Arc<ActiveBan>>) {
        *self.client_ban.borrow_mut() = Some((version, ban));
    }

    /// The head that is forwarded for the head `received`: the last one, or its fields with the method and the target that
    /// `forwarded_line` returns. `None` if no head has been forwarded yet.
    pub(crate) fn forwarded_head(
        &self,
        received: &Rc<Head>,
        forwarded_line: impl FnOnce() -> Head,
    ) -> Option<Rc<Head>> {
        let mut forwarded_head = self.forwarded_head.borrow_mut();
        let last_head = forwarded_head.as_mut()?;
        if !Rc::ptr_eq(&last_head.received, received) {
            let forwarded = Rc::new(Head {
                fields: last_head.forwarded.fields.clone(),
                ..forwarded_line()
            });
            *last_head = ForwardedHead {
                received: received.clone(),
                forwarded,
            };
        }
        Some(last_head.forwarded.clone())
    }

    /// Remembers the head that is forwarded for the head `received`.
    pub(crate) fn remember_forwarded_head(&self, received: Rc<Head>, forwarded: Rc<Head>) {
        *self.forwarded_head.borrow_mut() = Some(ForwardedHead {
            received,
            forwarded,
        });
    }

    /// The remembered response to a refusal, if `verdict` repeats the verdict that the response was made for. Any other
    /// verdict voids the response.
    pub(crate) fn refusal_response(
        &self,
        verdict: &Verdict,
        now: Nanos,
    ) -> Option<Rc<Response<Bytes>>> {
        let mut cached_refusal = self.refusal.borrow_mut();
        if !verdict.is_repeated {
            *cached_refusal = None;
        }
        let valid_refusal = cached_refusal
            .as_ref()
            .filter(|refusal| now < refusal.valid_until);
        valid_refusal.map(|refusal| refusal.response.clone())
    }

    /// Remembers the response to a refusal, which stays the same until `valid_until`.
    pub(crate) fn remember_refusal(&self, response: Rc<Response<Bytes>>, valid_until: Nanos) {
        *self.refusal.borrow_mut() = Some(CachedRefusal {
            response,
            valid_until,
        });
    }
}
