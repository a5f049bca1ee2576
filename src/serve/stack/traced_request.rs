//! A traced request: which requests are traced, and the header fields by which servers continue the trace. `span_facts.rs`
//! makes the spans when the request has ended.
//!
//! Only a trusted proxy decides by its `traceparent` whether a request is traced. For all others the gateway draws, so
//! that no client makes the gateway, the servers or the collector work more. The trace of a client is continued either way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::peer::Peer;
use crate::base::clock::Nanos;
use crate::http::head::{Fields, Head};
use crate::serve::worker::generation::Generation;
use crate::trace::{SampleRate, SpanId, TraceParent, Tracer, random_id};

/// The header field that names the trace and the span that caused a request.
const TRACEPARENT: &str = "traceparent";
/// The header field with what other tracing systems add.
const TRACESTATE: &str = "tracestate";

/// The most bytes of `tracestate` in a span. The field itself is passed on at any length.
const MAX_TRACE_STATE_BYTES: usize = 512;

/// What becomes the spans of a request.
pub struct TracedRequest {
    /// The trace, and the span of the request.
    pub id: TraceParent,
    /// The span that caused the request; `None` if the trace begins here.
    pub(super) parent_id: Option<SpanId>,
    /// The field `tracestate` of a trace that is continued, if it is short.
    pub(super) trace_state: Option<Box<str>>,
    /// The units that the deciding limit has left; `None` before the decision, or if none decides.
    pub remaining: Cell<Option<u64>>,
    /// The exchanges with servers, in order. A request is sent three times at most.
    pub(super) exchanges: RefCell<Vec<TracedExchange>>,
}

/// What becomes the span of an exchange with a server.
pub(super) struct TracedExchange {
    /// The id of the span, which the server gets as its parent.
    pub(super) span_id: SpanId,
    /// When the gateway looked for a connection.
    pub(super) started_at: Nanos,
    /// When the exchange failed, and why. `None` if there is a whole response, which lasts as long as the request.
    pub(super) failure: Option<(Nanos, &'static str)>,
    /// The server; `None` if no connection was found.
    pub(super) server_name: Option<Arc<str>>,
    /// The status of the response; 0 without one.
    pub(super) status: u16,
}

impl TracedRequest {
    /// Decides whether a request is traced. `None` if it is not, or if the system has no random numbers.
    pub(super) fn choose(
        (tracer, rate): (&Tracer, SampleRate),
        fields: &Fields,
        peer: &Peer,
        generation: &Generation,
    ) -> Option<Box<TracedRequest>> {
        let parent = received_parent(fields);
        let is_proxy = || generation.identifier.is_trusted_proxy(peer.remote);
        let is_chosen = match parent {
            Some(parent) if is_proxy() => parent.is_sampled(),
            _ => tracer.draw(rate),
        };
        is_chosen
            .then(|| TracedRequest::begin(parent, fields))
            .flatten()
    }

    #[cold]
    fn begin(parent: Option<TraceParent>, fields: &Fields) -> Option<Box<TracedRequest>> {
        let id = match parent {
            Some(parent) => parent.with_span(random_id()?, true),
            None => TraceParent::new_sampled()?,
        };
        Some(Box::new(TracedRequest {
            id,
            parent_id: parent.map(|parent| parent.span_id),
            trace_state: parent.and_then(|_| short_trace_state(fields)),
            remaining: Cell::new(None),
            exchanges: RefCell::default(),
        }))
    }

    /// Begins an exchange with a server. Returns a copy of the head that makes the exchange the parent of the server's
    /// span; `head` itself if the system has no random numbers.
    pub(super) fn begin_exchange(&self, head: &Rc<Head>, now: Nanos) -> Rc<Head> {
        let Some(span_id) = random_id() else {
            return head.clone();
        };
        self.exchanges.borrow_mut().push(TracedExchange {
            span_id,
            started_at: now,
            failure: None,
            server_name: None,
            status: 0,
        });
        let mut fields = head.fields.clone();
        let value = self.id.with_span(span_id, true).to_string();
        fields.set(TRACEPARENT, value.as_bytes());
        if self.parent_id.is_none() {
            // It belongs to the trace of a field that is not valid.
            fields.remove(TRACESTATE);
        }
        with_fields(head, fields)
    }

    /// Notes the server of the current exchange.
    pub(super) fn note_server(&self, server_name: &Arc<str>) {
        self.update_exchange(|exchange| exchange.server_name = Some(server_name.clone()));
    }

    /// Notes the status of the response of the current exchange.
    pub(super) fn note_status(&self, status: u16) {
        self.update_exchange(|exchange| exchange.status = status);
    }

    /// Notes that the current exchange has failed, and why. The first failure of an exchange stays.
    pub(super) fn note_failure(&self, reason: &'static str, now: Nanos) {
        self.update_exchange(|exchange| {
            exchange.failure.get_or_insert((now, reason));
        });
    }

    fn update_exchange(&self, update: impl FnOnce(&mut TracedExchange)) {
        if let Some(exchange) = self.exchanges.borrow_mut().last_mut() {
            update(exchange);
        }
    }
}

/// The head for the server of a request that is not traced. A client's field that asks servers to record is changed, and
/// one that servers might read in several ways is removed. For most requests it is the same head.
pub(super) fn untraced_head(head: Rc<Head>) -> Rc<Head> {
    if !head.fields.contains(TRACEPARENT) {
        return head;
    }
    let fields = match received_parent(&head.fields) {
        Some(parent) if !parent.is_sampled() => return head,
        // The gateway's decision holds for servers too.
        Some(parent) => {
            // A new flag needs a new id, by the specification.
            let span_id = random_id().unwrap_or(parent.span_id);
            let value = parent.with_span(span_id, false).to_string();
            let mut fields = head.fields.clone();
            fields.set(TRACEPARENT, value.as_bytes());
            fields
        }
        // Servers differ in which of several fields they read.
        None => {
            let mut fields = head.fields.clone();
            fields.remove(TRACEPARENT);
            fields.remove(TRACESTATE);
            fields
        }
    };
    with_fields(&head, fields)
}

/// A copy of a head with other fields. The head itself may serve other requests too.
fn with_fields(head: &Head, fields: Fields) -> Rc<Head> {
    Rc::new(Head {
        fields,
        ..head.without_fields()
    })
}

/// The span that caused a request. `None` without the field, and for several or a malformed one.
fn received_parent(fields: &Fields) -> Option<TraceParent> {
    fields.first(TRACEPARENT)?;
    let mut values = fields.all(TRACEPARENT);
    match (values.next(), values.next()) {
        (Some(value), None) => TraceParent::parse(value),
        _ => None,
    }
}

/// The field `tracestate` as one line, if it is plain text of at most [`MAX_TRACE_STATE_BYTES`].
fn short_trace_state(fields: &Fields) -> Option<Box<str>> {
    let lines: Vec<&[u8]> = fields.all(TRACESTATE).collect();
    let length = lines.iter().map(|line| line.len() + 1).sum::<usize>();
    if lines.is_empty() || length > MAX_TRACE_STATE_BYTES + 1 {
        return None;
    }
    let text = String::from_utf8(lines.join(&b',')).ok()?;
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    is_plain.then(|| text.into())
}
