//! The forwarding of one request: over one connection to its upstream, or over several in turn.
//!
//! It ends with the head of the response, whose body then streams by itself, or with the cause why there is no response.
//! `forward.rs` calls it with the head that the server gets. No request is admitted or refused by a limit here.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Sleep;

use super::body::{self, CloseInsertion, RelaySettings, RelayedBody, RequestBody, SharedClose};
use super::detached::{self, PendingExchange};
use super::downstream::Downstream;
use super::mapped_fields;
use super::message_gate::{MessageGate, MessageLimits};
use super::refusal::{RefusalCause, upstream_reason};
use super::request_context::RequestContext;
use super::request_deadline::RequestDeadline;
use super::traced_request::untraced_head;
use super::upstream_load::{self, LoadMeasurement};
use crate::base::clock::Nanos;
use crate::base::telemetry::Metric;
use crate::http::head::{Head, Response, ResponseHead, hop_by_hop};
use crate::http::http1::Malformed;
use crate::net::flush_queue::YieldToOthers;
use crate::upstream::{
    self, CheckedOutConnection, ClientContext, Exchange, ExchangeError, ReceivedHead, UpstreamPool,
};

/// How long the gateway waits for a server's `100 Continue` before it sends the body anyway. Some servers never send it,
/// so RFC 9110 section 10.1.1 wants the wait to end.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of times that one request is sent again. The retry budget of the upstream may allow fewer.
const MAX_RETRIES: u32 = 2;

/// The status of a response after which the connection speaks another protocol.
const SWITCHING_PROTOCOLS: StatusCode = StatusCode::SWITCHING_PROTOCOLS;

/// The timer after which the request's body is sent without `100 Continue` from the server.
type ContinueTimer = Option<Pin<Box<Sleep>>>;

/// The head of the final response, or why the exchange failed; `None` if the gateway has given up waiting.
type AwaitedHead = Option<Result<ResponseHead, ExchangeError<body::Error>>>;

/// One request on its way to the servers of its upstream.
pub(super) struct Forwarding<'a> {
    pub(super) pool: &'a Rc<UpstreamPool>,
    /// The hash that chooses the server; `None` if the upstream does not balance by a hash.
    pub(super) balance_key: Option<u64>,
    pub(super) downstream: &'a Downstream,
    pub(super) context: &'a RequestContext,
    /// Measures the request; `None` if the pressure on the upstream is not measured.
    pub(super) load_measurement: Option<LoadMeasurement>,
    /// The limits on the messages of the WebSocket that the request may open; `None` if no limit counts them.
    pub(super) message_limits: Cell<Option<Box<MessageLimits>>>,
}

impl Forwarding<'_> {
    /// Sends the request. After a failure it is sent again over another connection, in two cases only:
    ///
    /// - The server says that it has not processed the request, and none of the body was read.
    /// - A reused connection was lost before any of the response came, and the request is safe to repeat or not begun.
    ///
    /// # Errors
    ///
    /// The client's body is late or broken, the upstream has no connection or sends no valid head of a response in time.
    /// Or it is wrong or unclear to which protocol the server has changed: see [`check_upgrade`].
    pub(super) async fn run(
        &self,
        request: &Rc<Head>,
        body: RequestBody,
    ) -> Result<Response<RelayedBody>, RefusalCause> {
        // A request with a body takes longer, so the worker's other connections have their turn first.
        if !body.is_empty() {
            YieldToOthers::default().await;
        }
        let mut deadline = RequestDeadline::after(self.pool.settings().total_timeout);
        let connection = {
            let checkout = pin!(self.pool.checkout(self.client_context()));
            deadline.run_within(checkout).await
        };
        let connection = connection.unwrap_or_else(|| Err(self.total_timeout_error()));
        let connection = connection.map_err(RefusalCause::Upstream)?;
        let mut exchange = Exchange::new(connection, request, body);
        let sent_at = self.context.generation.clock.now();
        let mut retry_count = 0;
        loop {
            match self.await_head(&mut exchange, &mut deadline).await {
                Ok(head) => {
                    self.record_response(&head, sent_at);
                    return self.relay(exchange, request, head, deadline);
                }
                Err(cause @ RefusalCause::Upstream(upstream::Error::Exchange { .. }))
                    if retry_count < MAX_RETRIES
                        && exchange.is_retryable()
                        && self.pool.take_retry() =>
                {
                    retry_count += 1;
                    if let RefusalCause::Upstream(error) = &cause {
                        self.note_failure(error);
                    }
                    // This future is boxed, because it is rare and would make every request's future as large.
                    match Box::pin(self.checkout_again(&mut deadline)).await {
                        Ok(connection) => {
                            let retried = continue_trace(self.context, request.clone());
                            exchange.retry_over(&retried, connection);
                        }
                        // The first server may have received the request.
                        Err(_) if exchange.has_begun() => return Err(cause),
                        Err(error) => return Err(RefusalCause::Upstream(error)),
                    }
                }
                Err(cause) => {
                    self.abandon(exchange, &cause);
                    return Err(cause);
                }
            }
        }
    }

    /// Another connection, for a request that is sent again. An error if the pool has none in time.
    async fn checkout_again(
        &self,
        deadline: &mut RequestDeadline,
    ) -> Result<CheckedOutConnection, upstream::Error> {
        if let Some(measurement) = &self.load_measurement {
            measurement.restart();
        }
        let checkout = pin!(self.pool.checkout_for_retry(self.client_context()));
        let connection = deadline.run_within(checkout).await;
        connection.unwrap_or_else(|| Err(self.total_timeout_error()))
    }

    /// Records how long the server took until its response began.
    fn record_response(&self, head: &ResponseHead, sent_at: Nanos) {
        let generation = &self.context.generation;
        let now = generation.clock.now();
        if let Some(measurement) = &self.load_measurement {
            measurement.record_response(head.status, now);
        }
        let counters = generation.route_counters(self.context.route_index.get());
        counters.upstream_duration.observe(now.since(sent_at));
        if let Some(extra) = &self.context.extra {
            extra.upstream_duration.set(Some(now.since(sent_at)));
            if let Some(traced) = &extra.traced {
                traced.note_status(head.status.as_u16());
            }
        }
    }

    /// Streams the body of a response whose head has come, or the tunnel that it opens.
    ///
    /// # Errors
    ///
    /// The server has not switched to the protocol that the client asks for: see [`check_upgrade`].
    fn relay(
        &self,
        mut exchange: Exchange<RequestBody>,
        request: &Head,
        head: ResponseHead,
        mut deadline: RequestDeadline,
    ) -> Result<Response<RelayedBody>, RefusalCause> {
        let context = self.context;
        let pool_settings = self.pool.settings();
        let now = context.peer.coarse_now();
        // From now on the client is late only if the server is silent too.
        self.downstream.deadlines().report_response_begun();
        if let Err(cause) = check_upgrade(&exchange, request, &head, self.downstream) {
            self.hold_permits(PendingExchange::Body(exchange.into_body(now)));
            return Err(cause);
        }
        // A silence within the response may last as long as the wait for its head.
        let mut idle_timeout = pool_settings.first_byte_timeout;
        let is_tunnel = head.status == SWITCHING_PROTOCOLS;
        let mut close_insertion = None;
        if is_tunnel {
            idle_timeout = context.generation.ruleset.timeouts.tunnel;
            // The total timeout ends with the switch: a tunnel may stay open for any time.
            deadline = RequestDeadline::after(None);
            self.downstream.open_tunnel();
            let mut tunnel_body = RequestBody::new(
                self.downstream,
                &context.generation,
                context.received_bytes(),
            );
            if let Some(passed_bytes) = context.passed_bytes() {
                tunnel_body.count_bytes(passed_bytes);
            }
            if let Some(limits) = self.message_limits.take() {
                let shared_close = SharedClose::default();
                let gate = MessageGate::new(limits, shared_close.clone());
                tunnel_body.pass_through(Box::new(gate));
                close_insertion = Some(CloseInsertion::new(shared_close));
            }
            exchange.begin_tunnel(tunnel_body);
        }
        let deadlines = self.downstream.deadlines().clone();
        let relay_settings = RelaySettings {
            idle_timeout,
            deadline,
            strips_load_reports: pool_settings.load_metric.is_some(),
            is_tunnel,
        };
        let mut body = RelayedBody::new(
            context.spare_relay.take(),
            exchange.into_body(now),
            deadlines,
            relay_settings,
        );
        if let Some(insertion) = close_insertion {
            body = body.with_close_insertion(insertion);
        }
        Ok(Response { head, body })
    }

    /// Gives an exchange up. If the server may still work on the request, the request's permits are held until the
    /// exchange ends.
    fn abandon(&self, exchange: Exchange<RequestBody>, cause: &RefusalCause) {
        let has_ended = matches!(
            cause,
            RefusalCause::Upstream(upstream::Error::Exchange { .. })
        );
        if exchange.has_begun() && !has_ended {
            self.hold_permits(PendingExchange::Head(exchange));
        }
    }

    /// Holds the request's permits until the server has ended the exchange, because permits count its work.
    #[cold]
    fn hold_permits(&self, exchange: PendingExchange) {
        if let Some(permits) = self.context.permits() {
            let detached_requests = &self.context.peer.worker.detached_requests;
            detached::spawn_drain(exchange, Some(permits), detached_requests);
        }
    }

    /// What the choice of a server and the PROXY header of its connection depend on.
    fn client_context(&self) -> ClientContext {
        ClientContext {
            balance_key: self.balance_key,
            addresses: self.context.peer.addresses,
        }
    }

    /// The error for a request whose total timeout has passed.
    fn total_timeout_error(&self) -> upstream::Error {
        let settings = self.pool.settings();
        upstream::Error::TotalTimeout {
            upstream: settings.name.clone(),
            after: settings.total_timeout.unwrap_or_default(),
        }
    }

    /// Sends the request and waits for the head of its final response. For the errors see [`Forwarding::head_or_cause`].
    async fn await_head(
        &self,
        exchange: &mut Exchange<RequestBody>,
        deadline: &mut RequestDeadline,
    ) -> Result<ResponseHead, RefusalCause> {
        if self.context.needs_server() {
            let server_name = exchange.server_name().clone();
            self.context.server_name.set(Some(server_name));
        }
        if let Some(traced) = self.context.traced_request() {
            traced.note_server(exchange.server_name());
        }
        let mut continue_timer = self.hold_body(exchange);
        let head = poll_fn(|cx| self.poll_head(exchange, deadline, &mut continue_timer, cx));
        let awaited_head = head.await;
        self.head_or_cause(exchange, awaited_head)
    }

    /// Holds the body back if the client waits for `100 Continue`; `None` if it does not. The timer ends before the server
    /// would be late.
    fn hold_body(&self, exchange: &mut Exchange<RequestBody>) -> ContinueTimer {
        let first_byte_timeout = self.pool.settings().first_byte_timeout;
        self.downstream.awaits_continue().then(|| {
            exchange.hold_body();
            let timeout = CONTINUE_TIMEOUT.min(first_byte_timeout / 2);
            Box::pin(tokio::time::sleep(timeout))
        })
    }

    /// Polls for the head of the final response, and passes interim responses on. Ready with `None` when the gateway gives
    /// up, because the deadline has passed or the server is late.
    fn poll_head(
        &self,
        exchange: &mut Exchange<RequestBody>,
        deadline: &mut RequestDeadline,
        continue_timer: &mut ContinueTimer,
        cx: &mut Context<'_>,
    ) -> Poll<AwaitedHead> {
        loop {
            match exchange.poll_head(cx) {
                Poll::Ready(Ok(ReceivedHead::Interim(mut head))) => {
                    if self.pool.settings().load_metric.is_some() {
                        upstream_load::take_report(&mut head.fields, None);
                    }
                    self.downstream.send_interim(&head);
                    continue;
                }
                Poll::Ready(Ok(ReceivedHead::Final(head))) => return Poll::Ready(Some(Ok(head))),
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => {}
            }
            if let Some(measurement) = &self.load_measurement {
                measurement.record_waiting(exchange.is_sent());
            }
            // No limit waits for the response, and no client.
            if self.context.has_client_left.get() && !self.context.needs_settlement() {
                exchange.cancel(cx);
            }
            // An error of the client's connection shows again when the response is sent.
            let _ = self.downstream.poll_flush(cx);
            if let Some(timer) = continue_timer
                && timer.as_mut().poll(cx).is_ready()
            {
                *continue_timer = None;
                exchange.send_body();
                continue;
            }
            if deadline.has_passed(cx) {
                return Poll::Ready(None);
            }
            let deadlines = self.downstream.deadlines();
            let has_progress = exchange.take_progress();
            if !has_progress && deadlines.is_server_late() {
                return Poll::Ready(None);
            }
            deadlines.await_server(self.pool.settings().first_byte_timeout, has_progress);
            return Poll::Pending;
        }
    }

    /// The head, or why there is no head: the client's body is late or broken, the exchange has failed, or the server or
    /// the whole request is late.
    fn head_or_cause(
        &self,
        exchange: &mut Exchange<RequestBody>,
        awaited_head: AwaitedHead,
    ) -> Result<ResponseHead, RefusalCause> {
        let deadlines = self.downstream.deadlines();
        let is_body_late = deadlines.is_body_late();
        let is_server_late = deadlines.is_server_late();
        // When the total timeout passes, the server is at fault only if it has the whole request.
        if awaited_head.is_none() && !is_body_late && (is_server_late || exchange.is_sent()) {
            exchange.record_timeout();
        }
        deadlines.report_server_responded();
        let server_name = || exchange.server_name().to_string();
        Err(match awaited_head {
            Some(Ok(head)) => return Ok(head),
            Some(Err(_)) | None if is_body_late => RefusalCause::SlowBody,
            Some(Err(ExchangeError::Request(error))) => error.into(),
            Some(Err(ExchangeError::Server(cause))) => {
                RefusalCause::Upstream(upstream::Error::Exchange {
                    server: server_name(),
                    cause,
                })
            }
            None if is_server_late => RefusalCause::Upstream(upstream::Error::FirstByteTimeout {
                server: server_name(),
                after: self.pool.settings().first_byte_timeout,
            }),
            None => RefusalCause::Upstream(self.total_timeout_error()),
        })
    }

    /// Takes the upstream's load report out of a response and records it, and changes fields that would be wrong for the
    /// client. Also maps the response back if the policy says so.
    pub(super) fn adapt_response(
        &self,
        response: &mut ResponseHead,
        request: &Head,
        is_cost_in_body: bool,
    ) {
        if let Some(metric) = &self.pool.settings().load_metric {
            let report = upstream_load::take_report(&mut response.fields, metric.as_deref());
            if let Some((measurement, report)) = self.load_measurement.as_ref().zip(report) {
                measurement.record_report(report);
            }
        }
        let routes = &self.context.generation.ruleset.routes;
        let route = self.context.route_index.get().map(|index| &routes[index]);
        if let Some(mapping) = route.and_then(|route| route.back_mapping.as_ref()) {
            mapped_fields::map_response(&mut response.fields, mapping, request);
        }
        let upgrade = request.upgrade.as_ref();
        if let Some(protocol) = upgrade.filter(|_| response.status == SWITCHING_PROTOCOLS) {
            hop_by_hop::strip_connection_fields(&mut response.fields);
            response.fields.add("connection", b"upgrade");
            response.fields.add("upgrade", protocol);
        }
        if is_cost_in_body && response.fields.contains("accept-ranges") {
            // The gateway removes ranges from requests whose cost stands in the body.
            response.fields.set("accept-ranges", b"none");
        }
    }

    /// Notes for the trace that the current exchange has failed.
    fn note_failure(&self, error: &upstream::Error) {
        if let Some(traced) = self.context.traced_request() {
            traced.note_failure(upstream_reason(error), self.context.generation.clock.now());
        }
    }

    /// Counts and logs that the upstream sent no valid response. Other causes are not the upstream's failure.
    pub(super) fn record_failure(&self, cause: &RefusalCause) {
        let RefusalCause::Upstream(error) = cause else {
            return;
        };
        self.note_failure(error);
        let upstream_name = &self.pool.settings().name;
        let reason = upstream_reason(error);
        let peer = &self.context.peer;
        let counter = peer.failure_counter(Metric::UpstreamErrors, upstream_name, reason);
        counter.increment(1);
        tracing::warn!(upstream = %upstream_name, %error, "no answer");
        if let Some(measurement) = &self.load_measurement {
            measurement.record_failure();
        }
    }
}

/// The head that the server gets: with the trace that it continues. Without traces it is the same head.
#[inline]
pub(super) fn continue_trace(context: &RequestContext, head: Rc<Head>) -> Rc<Head> {
    let generation = &context.generation;
    match context.traced_request() {
        Some(traced) => traced.begin_exchange(&head, generation.clock.now()),
        // A process that began without traces has no tracer, whatever a reload says.
        None if generation.ruleset.trace_sample.is_some()
            && context.peer.worker.tracer.is_some() =>
        {
            untraced_head(head)
        }
        None => head,
    }
}

/// Checks that a server has switched to the protocol that the request asks for, or that the client will see that it has
/// not. An HTTP/2 client takes any success for a switch (RFC 8441 section 5).
///
/// # Errors
///
/// The server has switched to another protocol, or an HTTP/2 client would wrongly believe that it has switched.
fn check_upgrade(
    exchange: &Exchange<RequestBody>,
    request: &Head,
    response: &ResponseHead,
    downstream: &Downstream,
) -> Result<(), RefusalCause> {
    let requested_protocol = request.upgrade.as_deref();
    if requested_protocol.is_none() && response.status != SWITCHING_PROTOCOLS {
        return Ok(());
    }
    let chosen_protocol = response.fields.first("upgrade").unwrap_or_default();
    let is_requested =
        requested_protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(chosen_protocol));
    let is_unclear = requested_protocol.is_some()
        && matches!(downstream, Downstream::Http2(_))
        && response.status.is_success();
    let fault = match response.status {
        SWITCHING_PROTOCOLS if is_requested => return Ok(()),
        SWITCHING_PROTOCOLS => "it changes to a protocol that was not asked for",
        _ if is_unclear => "it does not change to the protocol that was asked for",
        _ => return Ok(()),
    };
    Err(RefusalCause::Upstream(upstream::Error::Exchange {
        server: exchange.server_name().to_string(),
        cause: Malformed(fault).into(),
    }))
}
