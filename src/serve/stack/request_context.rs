//! The context of one request: the facts that the layers collect for the access log, the metrics and the samples.
//!
//! The layers fill the context in; `observe` reports it at the end. It also gives every layer the connection, the
//! configuration and the permits of the request. No limit decides by what the layers have filled in.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::{Method, StatusCode};

use super::body::SpareRelay;
use super::peer::Peer;
use super::request_id::RequestId;
use super::request_outcome::RequestOutcome;
use super::traced_request::TracedRequest;
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::identity::ClientIdentity;
use crate::limit::LimitStanding;
use crate::record::insight::LimitDecision;
use crate::route::{Cors, HeaderStyle, RouteTable};
use crate::serve::access::WorkerLog;
use crate::serve::http1::repeat_cache::RepeatedFields;
use crate::serve::worker::generation::Generation;
use crate::serve::worker::listen::RunningListener;
use crate::store::permits::PermitGuard;
use crate::throttle::admission::{Holdings, PassedBytes};

/// The facts about one request so far. The layers share the context, so that it is complete even if the client closes its
/// connection while a layer works.
pub struct RequestContext {
    /// When the request arrived.
    pub arrived_at: Nanos,
    /// The method; `None` if it cannot be read.
    pub method: Option<Method>,
    /// The head, if the access log, an example, a span or the fields of the response may need it. `None` otherwise, and if
    /// it cannot be read.
    pub head: Option<Rc<Head>>,
    /// The path of a request whose head cannot be read, if its first line shows one.
    pub unreadable_path: Option<Box<str>>,
    /// What the connection remembers of earlier requests with the same header fields.
    pub repeated_fields: Option<Rc<RepeatedFields>>,
    /// The client's identities; unset until the request is identified.
    pub client: OnceCell<Rc<ClientIdentity>>,
    /// The index of the route among the ruleset's routes; `None` before routing, and if no route takes the request.
    pub route_index: Cell<Option<usize>>,
    /// The index among the ruleset's rules of the limit that decided, and the standing of the request by that limit. `None`
    /// until limits decide, or if none applies.
    pub deciding_limit: Cell<Option<(usize, LimitStanding)>>,
    /// The deciding limit's finding, if the request is sampled.
    pub sampled_decision: Cell<Option<Box<LimitDecision>>>,
    /// Whether the shared store could not be reached, so that this gateway decided alone.
    pub is_without_store: Cell<bool>,
    /// The name of the server that the request was sent to last; `None` before, where no log needs it, and once it is logged.
    pub server_name: Cell<Option<Arc<str>>>,
    /// Why the request was refused or broke off, as the access log writes it; `None` if it was not, or if a limit refused
    /// it.
    pub reason: Cell<Option<&'static str>>,
    /// See [`RequestContext::status`].
    pub(super) status: Cell<u16>,
    /// See [`RequestContext::is_from_upstream`].
    pub(super) is_from_upstream: Cell<bool>,
    /// See [`RequestContext::outcome`].
    pub(super) outcome: Cell<RequestOutcome>,
    /// See [`RequestContext::sent_bytes`].
    pub(super) sent_bytes: Cell<u64>,
    /// Further facts; `None` where the gateway file needs none of them.
    pub extra: Option<Box<ExtraFacts>>,
    /// The permits and reserved units that the request holds until it ends.
    pub holdings: RefCell<Option<Holdings>>,
    /// Whether the client has left before there was a response, or gets none because it is late.
    pub has_client_left: Cell<bool>,
    /// Memory for the body of a response, which an earlier request of the connection has left; `None` without.
    pub spare_relay: Cell<Option<SpareRelay>>,
    /// The client's end of the connection.
    pub peer: Rc<Peer>,
    /// The configuration that serves the request to its end.
    pub generation: Rc<Generation>,
    pub(super) access_log: Rc<WorkerLog>,
}

/// The facts about a request that only some gateway files need. They are kept apart, because the context of every request is
/// moved.
#[derive(Default)]
pub struct ExtraFacts {
    /// The id that the upstream, the client and the log get; `None` if the gateway file names no field for it.
    pub request_id: Option<RequestId>,
    /// Which pages may read the response, by its route; unset if the upstream decides, or without a route.
    pub cors: OnceCell<Arc<Cors>>,
    /// Bytes of the request's body that have come; `None` where no log needs them.
    pub received_bytes: Option<Rc<Cell<u64>>>,
    /// What becomes the spans of the request; `None` if it is not traced.
    pub traced: Option<Box<TracedRequest>>,
    /// How long the server took until its response began; `None` before.
    pub upstream_duration: Cell<Option<Nanos>>,
    /// See [`replace_by_described_request`](super::http_check::replace_by_described_request); `None` for most requests.
    pub check_options: Option<CheckOptions>,
}

/// What the response to a proxy that asks is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// The status of refusals other than 401 and 403, for proxies that understand only these; `None` if each keeps its own.
    pub(super) refused_status: Option<StatusCode>,
    /// Whether the proxy will say how the request ended.
    pub(super) wants_ticket: bool,
}

/// What is known of a request when its context begins: see the fields of [`RequestContext`].
pub(super) struct InitialFacts {
    pub(super) arrived_at: Nanos,
    pub(super) method: Option<Method>,
    pub(super) head: Option<Rc<Head>>,
    pub(super) unreadable_path: Option<Box<str>>,
    pub(super) repeated_fields: Option<Rc<RepeatedFields>>,
    pub(super) extra: Option<Box<ExtraFacts>>,
    pub(super) peer: Rc<Peer>,
    pub(super) generation: Rc<Generation>,
    pub(super) access_log: Rc<WorkerLog>,
}

impl RequestContext {
    /// The context of a new request. `spare_context` is used if nothing else holds it, because to allocate one and to move
    /// it there costs more than all else here.
    #[inline]
    pub(super) fn begin(
        spare_context: Option<Rc<RequestContext>>,
        facts: InitialFacts,
    ) -> Rc<RequestContext> {
        if let Some(mut context) = spare_context
            && let Some(reused) = Rc::get_mut(&mut context)
        {
            reused.restart(facts);
            return context;
        }
        Rc::new(RequestContext::new(facts))
    }

    fn new(facts: InitialFacts) -> RequestContext {
        RequestContext {
            arrived_at: facts.arrived_at,
            method: facts.method,
            head: facts.head,
            unreadable_path: facts.unreadable_path,
            repeated_fields: facts.repeated_fields,
            client: OnceCell::new(),
            route_index: Cell::new(None),
            deciding_limit: Cell::new(None),
            sampled_decision: Cell::new(None),
            is_without_store: Cell::new(false),
            server_name: Cell::new(None),
            reason: Cell::new(None),
            status: Cell::new(0),
            is_from_upstream: Cell::new(false),
            outcome: Cell::new(RequestOutcome::Gone),
            sent_bytes: Cell::new(0),
            extra: facts.extra,
            holdings: RefCell::new(None),
            has_client_left: Cell::new(false),
            spare_relay: Cell::new(None),
            peer: facts.peer,
            generation: facts.generation,
            access_log: facts.access_log,
        }
    }

    /// Makes a context that was [cleared](RequestContext::clear) that of a new request, in its place.
    #[inline]
    fn restart(&mut self, facts: InitialFacts) {
        self.arrived_at = facts.arrived_at;
        self.method = facts.method;
        self.head = facts.head;
        self.unreadable_path = facts.unreadable_path;
        self.repeated_fields = facts.repeated_fields;
        self.extra = facts.extra;
        self.peer = facts.peer;
        self.generation = facts.generation;
        self.access_log = facts.access_log;
    }

    /// Drops all that belongs to one request, so that the context can be used for another one. It keeps the connection and
    /// the configuration, and `spare_relay` for the next response.
    pub(super) fn clear(&mut self, spare: Option<SpareRelay>) {
        // Each field stands here, so that a new one is not forgotten.
        let RequestContext {
            arrived_at: _,
            method,
            head,
            unreadable_path,
            repeated_fields,
            client,
            route_index,
            deciding_limit,
            sampled_decision,
            is_without_store,
            server_name,
            reason,
            status,
            is_from_upstream,
            outcome,
            sent_bytes,
            extra,
            holdings,
            has_client_left,
            spare_relay,
            peer: _,
            generation: _,
            access_log: _,
        } = self;
        *method = None;
        *head = None;
        *unreadable_path = None;
        *repeated_fields = None;
        *client = OnceCell::new();
        route_index.set(None);
        deciding_limit.set(None);
        sampled_decision.set(None);
        is_without_store.set(false);
        *server_name = Cell::new(None);
        reason.set(None);
        status.set(0);
        is_from_upstream.set(false);
        outcome.set(RequestOutcome::Gone);
        sent_bytes.set(0);
        *extra = None;
        *holdings = RefCell::new(None);
        has_client_left.set(false);
        if spare.is_some() {
            *spare_relay = Cell::new(spare);
        }
    }

    /// The client's address; behind trusted proxies the address that they report.
    pub fn ip(&self) -> IpAddr {
        self.client.get().map_or(self.peer.ip, |client| client.ip)
    }

    /// The text of the client's address, if that is the connection's own address; `None` otherwise.
    pub fn connection_address(&self) -> Option<&str> {
        (self.ip() == self.peer.ip).then_some(&*self.peer.ip_text)
    }

    /// The settings of the listener that the client connected to; `None` if it has none any more.
    #[inline]
    pub fn listener(&self) -> Option<&RunningListener> {
        self.generation.listeners.get(self.peer.listener_index)
    }

    /// The routes of the listener that the client connected to.
    #[inline]
    pub fn table(&self) -> &RouteTable {
        let ruleset = &self.generation.ruleset;
        if ruleset.listener_tables.is_empty() {
            return &ruleset.default_table;
        }
        ruleset.table_at(self.listener().and_then(|listener| listener.table_index))
    }

    /// The id of the request; `None` if requests have none.
    pub fn request_id(&self) -> Option<&RequestId> {
        self.extra.as_ref()?.request_id.as_ref()
    }

    /// What becomes the spans of the request; `None` if it is not traced.
    #[inline]
    pub fn traced_request(&self) -> Option<&TracedRequest> {
        self.extra.as_ref()?.traced.as_deref()
    }

    /// Counts the bytes of the request's body that have come; `None` where no log needs them.
    pub fn received_bytes(&self) -> Option<&Rc<Cell<u64>>> {
        self.extra.as_ref()?.received_bytes.as_ref()
    }

    /// Which pages may read the response; `None` if the upstream decides.
    pub fn cors(&self) -> Option<&Cors> {
        let unrouted = &self.generation.ruleset.unrouted;
        let cors = match self.route_index.get() {
            Some(_) => self.extra.as_ref()?.cors.get(),
            None => unrouted.cors.as_ref(),
        };
        cors.map(|cors| &**cors)
    }

    /// The rate-limit header fields that the response gets.
    pub fn header_style(&self) -> HeaderStyle {
        let ruleset = &self.generation.ruleset;
        let route = self.route_index.get().map(|index| &ruleset.routes[index]);
        route.map_or(ruleset.unrouted.header_style, |route| route.headers)
    }

    /// The verified user; `None` if there is none.
    pub fn user(&self) -> Option<&str> {
        self.client.get()?.user.as_deref()
    }

    /// The status of the response; 0 before there is one, and for ever if the client leaves before.
    pub fn status(&self) -> u16 {
        self.status.get()
    }

    /// Whether the response came from the upstream, whole or not.
    pub fn is_from_upstream(&self) -> bool {
        self.is_from_upstream.get()
    }

    /// How the request ended; [`RequestOutcome::Gone`] while it is under way.
    pub fn outcome(&self) -> RequestOutcome {
        self.outcome.get()
    }

    /// Whether a limit waits for the status or the cost of the response, to charge it.
    pub fn needs_settlement(&self) -> bool {
        let holdings = self.holdings.borrow();
        holdings
            .as_ref()
            .is_some_and(|holdings| holdings.settles_reservations)
    }

    /// The permits that the request holds; `None` if no limit on open requests counts it, or the gateway itself responds.
    pub fn permits(&self) -> Option<Arc<PermitGuard>> {
        let holdings = self.holdings.borrow();
        holdings.as_ref()?.permits.clone()
    }

    /// Whether the request must end, because the lease of its permits was not renewed.
    pub fn has_lost_permits(&self) -> bool {
        let permits = self.permits();
        permits.is_some_and(|permits| permits.is_revoked())
    }

    /// The sums of the bytes of both bodies that have passed; `None` if no limit counts them.
    pub fn passed_bytes(&self) -> Option<Arc<PassedBytes>> {
        let holdings = self.holdings.borrow();
        holdings.as_ref()?.bytes.clone()
    }

    /// Whether the access log may need the name of the request's server.
    pub fn needs_server(&self) -> bool {
        self.access_log.may_log()
    }

    /// Bytes of the response's body that were handed to the client's connection.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum bytes of the context of one request, which is built on the stack and then moved. Larger values take the
    /// system twice as long to copy.
    const MAX_CONTEXT_BYTES: usize = 240;

    #[test]
    fn the_context_is_small() {
        let bytes = size_of::<RequestContext>();
        assert!(bytes <= MAX_CONTEXT_BYTES, "{bytes}");
    }
}
