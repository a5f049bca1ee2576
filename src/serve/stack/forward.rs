//! Sends an admitted request to its upstream and the response back, streaming both ways.

use std::future::{Future, Ready, poll_fn, ready};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, StatusCode};
use http_body::Body;
use tower::Service;

use super::announce::{UpstreamClaims, announce};
use super::body::{Relay, RequestBody};
use super::deadline::Deadline;
use super::detached::{self, PendingExchange};
use super::downstream::Downstream;
use super::ending::Ending;
use super::forwarded;
use super::load::{self, Load};
use super::note::RequestNote;
use super::peer::Peer;
use super::pooled::{FuturePool, Pooled};
use super::refusal::{Refusal, RefusalCause};
use super::stages::{Admitted, Arrival, Identified};
use crate::base::telemetry::Metric;
use crate::http::head::{Fields, Head, Response, ResponseHead, hop};
use crate::http::http1::Malformed;
use crate::limit::pressure::Utilisation;
use crate::net::flush::OthersFirst;
use crate::route::Route;
use crate::upstream::{self, Caller, Exchange, ExchangeError, ReceivedHead, UpstreamPool};

/// How long the gateway waits for `100 Continue` of a server before it sends the body anyway.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many times one request is sent again at most.
const MAX_REPEATS: u32 = 2;

const SWITCHED: StatusCode = StatusCode::SWITCHING_PROTOCOLS;

/// The innermost service.
#[derive(Clone)]
pub struct Forward(FuturePool<Admitted, Result<Response<Relay>, Refusal>>);

impl Default for Forward {
    fn default() -> Forward {
        Forward(FuturePool::new(forward))
    }
}

impl Service<Admitted> for Forward {
    type Response = Response<Relay>;
    type Error = Refusal;
    type Future = Pooled<Admitted, Result<Response<Relay>, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, admitted: Admitted) -> Self::Future {
        self.0.run(admitted)
    }
}

/// Limits admit it, and it ends here.
impl Service<Ending> for Forward {
    type Response = Response<Relay>;
    type Error = Refusal;
    type Future = Ready<Result<Response<Relay>, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, ending: Ending) -> Self::Future {
        let fields = &ending.arrival.head.fields;
        ready(Err(Refusal::unsent(ending.why, fields)))
    }
}

// An `async fn` would keep what it takes apart beside the parts.
fn forward(admitted: Admitted) -> impl Future<Output = Result<Response<Relay>, Refusal>> {
    let Admitted {
        identified,
        over,
        slot,
    } = admitted;
    let route = identified.routed.route();
    let (index, upstream) = (identified.routed.matched.index, route.upstream);
    let costs_in_body = route.reads.cost_in_body;
    let note = &identified.routed.arrival.note;
    let placement = |identities| {
        note.generation
            .identifier
            .placement(&identified.who, identities)
    };
    let key = note.generation.pools[upstream].hashes().and_then(placement);
    let head = forwarded_head(&identified, over);
    let Arrival {
        body,
        downstream,
        note,
        ..
    } = identified.routed.arrival;
    async move {
        let (peer, generation) = (&note.peer, &note.generation);
        let pool = &generation.pools[upstream];
        let load = |slot| Load::new(slot, generation.kinds[index], generation.clock.clone());
        let attempt = ForwardAttempt {
            pool,
            key,
            downstream: &downstream,
            note: &note,
            load: slot.map(load),
        };
        match attempt.run(&head, body).await {
            Ok(mut response) => {
                if let Some(metric) = &pool.settings().load_metric {
                    let load = load::take_report(&mut response.head.fields, metric.as_deref());
                    attempt.report_load(load);
                }
                let upgrade = head.upgrade.as_ref();
                if let Some(protocol) = upgrade.filter(|_| response.head.status == SWITCHED) {
                    hop::strip_connection_fields(&mut response.head.fields);
                    response.head.fields.add("connection", b"upgrade");
                    response.head.fields.add("upgrade", protocol);
                }
                if costs_in_body && response.head.fields.contains("accept-ranges") {
                    // Ranges are taken out of its requests.
                    response.head.fields.set("accept-ranges", b"none");
                }
                Ok(response)
            }
            Err(why) => {
                if let RefusalCause::Upstream(error) = &why {
                    peer.count_failure(&pool.settings().name, error);
                    tracing::warn!(upstream = %pool.settings().name, %error, "no answer");
                    if let Some(load) = &attempt.load {
                        load.failed();
                    }
                }
                Err(Refusal::new(why, &head.fields))
            }
        }
    }
}

/// The head that the upstream gets.
fn forwarded_head(identified: &Identified, over: Option<Box<str>>) -> Rc<Head> {
    let Identified {
        routed,
        who,
        route_repeat,
        ..
    } = identified;
    let Arrival {
        head: received,
        body,
        downstream,
        note,
        ..
    } = &routed.arrival;
    let repeat = route_repeat.as_ref().filter(|_| over.is_none());
    if let Some(head) = repeat.and_then(|repeat| repeat.forwarded_head(received)) {
        return head;
    }
    let (peer, generation) = (&note.peer, &note.generation);
    let route = routed.route();
    let plans = &generation.ruleset.identity.plan.plans;
    let claims = UpstreamClaims {
        user: who.user.as_deref(),
        plan: who.plan.map(|plan| &*plans[plan].name),
        over,
    };
    let mut fields = received.fields.clone();
    // Fields that the client lists in Connection go before the gateway adds its own, so that a client cannot list those.
    hop::strip_connection_fields(&mut fields);
    let names_target = generation.identifier.strip(peer.remote, &mut fields);
    let passing = names_target && forwarded::retain_agreeing(&mut fields, routed);
    claims.write(&mut fields);
    announce(&mut fields, peer, downstream.via(received.version));
    if !fields.contains("host") {
        let host = generation.pools[route.upstream].host();
        fields.add("host", host.as_bytes());
    }
    adapt(&mut fields, route, body);
    if repeat.is_some() {
        fields = fields.to_shared();
    }
    let mut line = received.without_fields();
    if line.method == Method::HEAD && route.reads.cost_in_body {
        // The client gets the head of the same response, and what it costs is known.
        line.method = Method::GET;
    }
    let head = Rc::new(Head { fields, ..line });
    if let Some(repeat) = repeat.filter(|_| !passing) {
        repeat.remember_forwarded_head(received.clone(), head.clone());
    }
    head
}

/// Changes fields that would be wrong or in the way at the upstream.
fn adapt(fields: &mut Fields, route: &Route, body: &RequestBody) {
    if route.reads.cost_in_body || route.reads.cost_by_length {
        // Decompression costs time, and a response that is compressed on the fly has no length in its head.
        fields.set("accept-encoding", b"identity");
    }
    if route.reads.cost_in_body {
        // A part of a body may lack the cost.
        fields.remove("range");
        // Apache reads it where there is no Range.
        fields.remove("request-range");
    }
    if body.size_hint().exact().is_none() {
        // It is sent in chunks, even if an HTTP/2 client gave a length before its trailers.
        fields.remove("content-length");
    }
}

/// Checks that a server has switched to the protocol that was asked for, or clearly says that it has not. An HTTP/2 client
/// takes any success for a switch (RFC 8441 section 5).
fn check_upgrade(
    exchange: &Exchange<RequestBody>,
    asked: &Head,
    head: &ResponseHead,
    downstream: &Downstream,
) -> Result<(), RefusalCause> {
    let asked = asked.upgrade.as_deref();
    if asked.is_none() && head.status != SWITCHED {
        return Ok(());
    }
    let said = head.fields.first("upgrade").unwrap_or_default();
    let same = asked.is_some_and(|asked| asked.eq_ignore_ascii_case(said));
    let unclear =
        asked.is_some() && matches!(downstream, Downstream::Http2(_)) && head.status.is_success();
    let wrong = match head.status {
        SWITCHED if same => return Ok(()),
        SWITCHED => "it changes to a protocol that was not asked for",
        _ if unclear => "it does not change to the protocol that was asked for",
        _ => return Ok(()),
    };
    Err(RefusalCause::Upstream(upstream::Error::Exchange {
        server: exchange.server().to_string(),
        cause: Malformed(wrong).into(),
    }))
}

struct ForwardAttempt<'a> {
    pool: &'a Rc<UpstreamPool>,
    /// The hash that chooses the server, if the upstream balances by one.
    key: Option<u64>,
    downstream: &'a Downstream,
    note: &'a RequestNote,
    load: Option<Load>,
}

impl ForwardAttempt<'_> {
    /// Records how busy the upstream says it is.
    fn report_load(&self, load: Option<Utilisation>) {
        if let Some((own, load)) = self.load.as_ref().zip(load) {
            own.report(load);
        }
    }

    /// Sends the request, and sends it again over another connection in two cases only. Either no server has looked
    /// at it, surely or by the server's word. Or it may be repeated, and the server may have closed the reused
    /// connection meanwhile.
    async fn run(&self, asked: &Head, body: RequestBody) -> Result<Response<Relay>, RefusalCause> {
        if !body.is_empty() {
            OthersFirst::default().await;
        }
        let mut deadline = Deadline::new(self.pool.settings().total);
        let connection = {
            let checkout = pin!(self.pool.checkout(self.caller()));
            deadline.before(checkout).await
        };
        let connection = connection.unwrap_or_else(|| Err(self.overdue()));
        let mut exchange = Exchange::new(connection.map_err(RefusalCause::Upstream)?, asked, body);
        let began = self.note.generation.clock.now();
        let mut repeats = 0;
        loop {
            match self.response_head(&mut exchange, &mut deadline).await {
                Ok(head) => {
                    let now = self.note.generation.clock.now();
                    if let Some(load) = &self.load {
                        load.response_began(head.status, now);
                    }
                    let counters = self.note.generation.route_counters(self.note.route.get());
                    counters.upstream_duration.observe(now.since(began));
                    let mut silence = self.pool.settings().first_byte;
                    // From now on the client is late only if the server is silent too.
                    self.downstream.guard().response_began();
                    if let Err(why) = check_upgrade(&exchange, asked, &head, self.downstream) {
                        let body = exchange.into_body(self.note.peer.coarse_now());
                        self.keep_permits_out(PendingExchange::Body(body));
                        return Err(why);
                    }
                    let tunnel = head.status == SWITCHED;
                    if tunnel {
                        silence = self.note.generation.ruleset.timeouts.tunnel;
                        deadline = Deadline::new(None);
                        self.downstream.open_tunnel();
                        exchange.tunnel(RequestBody::new(self.downstream, &self.note.generation));
                    }
                    let body = exchange.into_body(self.note.peer.coarse_now());
                    let guard = self.downstream.guard().clone();
                    let reports = self.pool.settings().load_metric.is_some();
                    let body = Relay::new(body, guard, silence, deadline, reports, tunnel);
                    return Ok(Response { head, body });
                }
                Err(why @ RefusalCause::Upstream(upstream::Error::Exchange { .. }))
                    if repeats < MAX_REPEATS && exchange.may_repeat() && self.pool.may_retry() =>
                {
                    repeats += 1;
                    if let Some(load) = &self.load {
                        load.sent_again();
                    }
                    let connection = {
                        // Boxed, for it is rare.
                        let mut checkout = Box::pin(self.pool.checkout_fresh(self.caller()));
                        deadline.before(checkout.as_mut()).await
                    };
                    match connection.unwrap_or_else(|| Err(self.overdue())) {
                        Ok(connection) => exchange.repeat(asked, connection),
                        // The first server may have seen the request.
                        Err(_) if exchange.has_begun() => return Err(why),
                        Err(error) => return Err(RefusalCause::Upstream(error)),
                    }
                }
                Err(why) => {
                    let ended = matches!(
                        why,
                        RefusalCause::Upstream(upstream::Error::Exchange { .. })
                    );
                    if exchange.has_begun() && !ended {
                        self.keep_permits_out(PendingExchange::Head(exchange));
                    }
                    return Err(why);
                }
            }
        }
    }

    /// Keeps the permits out: the server may work on, and they count its work.
    #[cold]
    fn keep_permits_out(&self, rest: PendingExchange) {
        if let Some(permits) = self.note.permits() {
            detached::go_on(rest, Some(permits), &self.note.peer.worker.detached);
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            key: self.key,
            ends: self.note.peer.ends,
        }
    }

    fn overdue(&self) -> upstream::Error {
        let settings = self.pool.settings();
        upstream::Error::TotalTimeout {
            upstream: settings.name.clone(),
            after: settings.total.unwrap_or_default(),
        }
    }

    async fn response_head(
        &self,
        exchange: &mut Exchange<RequestBody>,
        deadline: &mut Deadline,
    ) -> Result<ResponseHead, RefusalCause> {
        if self.note.wants_server() {
            self.note.server.replace(Some(exchange.server().clone()));
        }
        let guard = self.downstream.guard();
        let after = self.pool.settings().first_byte;
        let mut patience = self.downstream.expects_continue().then(|| {
            exchange.ask_first();
            // In time before it would be late itself.
            Box::pin(tokio::time::sleep(PATIENCE.min(after / 2)))
        });
        let result = poll_fn(|cx| {
            loop {
                match exchange.poll_head(cx) {
                    Poll::Ready(Ok(ReceivedHead::Interim(mut head))) => {
                        if self.pool.settings().load_metric.is_some() {
                            load::take_report(&mut head.fields, None);
                        }
                        self.downstream.send_interim(&head);
                        continue;
                    }
                    Poll::Ready(Ok(ReceivedHead::Final(head))) => {
                        return Poll::Ready(Some(Ok(head)));
                    }
                    Poll::Ready(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                    Poll::Pending => {}
                }
                if let Some(load) = &self.load {
                    load.note_waiting(!exchange.is_sent());
                }
                if self.note.client_left.get() && !self.note.settles() {
                    exchange.hang_up(cx);
                }
                // A client that takes nothing shows with the response.
                let _ = self.downstream.poll_flush(cx);
                if patience
                    .as_mut()
                    .is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready())
                {
                    patience = None;
                    exchange.go_on();
                    continue;
                }
                if deadline.has_passed(cx) {
                    return Poll::Ready(None);
                }
                let progress = exchange.has_sent();
                if !progress && guard.is_server_late() {
                    return Poll::Ready(None);
                }
                guard.await_server(after, progress);
                return Poll::Pending;
            }
        })
        .await;
        let (slow_body, late) = (guard.is_body_late(), guard.is_server_late());
        if result.is_none() && !slow_body && (late || exchange.is_sent()) {
            exchange.late();
        }
        guard.server_responded();
        let server = || exchange.server().to_string();
        Err(match result {
            Some(Ok(head)) => return Ok(head),
            Some(Err(_)) | None if slow_body => RefusalCause::SlowBody,
            Some(Err(ExchangeError::Request(error))) => error.into(),
            Some(Err(ExchangeError::Server(cause))) => {
                RefusalCause::Upstream(upstream::Error::Exchange {
                    server: server(),
                    cause,
                })
            }
            None if late => RefusalCause::Upstream(upstream::Error::FirstByteTimeout {
                server: server(),
                after,
            }),
            None => RefusalCause::Upstream(self.overdue()),
        })
    }
}

impl Peer {
    fn count_failure(&self, upstream: &str, error: &upstream::Error) {
        let reason = super::refusal::upstream_reason(error);
        self.failures(Metric::UpstreamErrors, upstream, reason)
            .increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<F>(_: fn(Admitted) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_future_is_small_for_empty_boxes_are_kept() {
        assert!(size(forward) <= 800, "{}", size(forward));
    }
}
