//! Sends an admitted request to its upstream and the answer back, streaming both ways.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{Entry, HOST, HeaderName, VIA};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, Version, response};
use tower::Service;

use super::answer::{Refusal, Why};
use super::body::{Relay, RequestBody};
use super::connection::Peer;
use super::guard::Phase;
use super::hop;
use super::identify::Identified;
use super::record::{Arrival, Note};
use crate::telemetry::Metric;
use crate::throttle::reject::is_grpc;
use crate::upstream::{self, Exchange, Failure, Pool};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
const TOLLGATE_OVER: HeaderName = HeaderName::from_static("tollgate-over");
const TOLLGATE_USER: HeaderName = HeaderName::from_static("tollgate-user");
const TOLLGATE_PLAN: HeaderName = HeaderName::from_static("tollgate-plan");

/// A request that all its limits admit.
pub struct Admitted {
    /// The request, its route and who asks.
    pub identified: Identified,
    /// The soft limits it exceeds.
    pub over: Option<HeaderValue>,
}

/// The innermost service.
#[derive(Clone, Copy, Debug)]
pub struct Forward;

impl Service<Admitted> for Forward {
    type Response = Response<Relay>;
    type Error = Refusal;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Relay>, Refusal>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, admitted: Admitted) -> Self::Future {
        Box::pin(forward(admitted))
    }
}

async fn forward(admitted: Admitted) -> Result<Response<Relay>, Refusal> {
    let route = admitted.identified.routed.route();
    let upstream = route.upstream;
    let Admitted { identified, over } = admitted;
    let Identified { routed, who } = identified;
    let Arrival {
        mut head,
        body,
        peer,
        generation,
        note,
    } = *routed.arrival;
    let pool = &generation.pools[upstream];
    let grpc = is_grpc(&head.headers);

    let claims = Claims {
        user: who.user.as_deref(),
        plan: who
            .plan
            .map(|plan| &*generation.ruleset.identity.plan.plans[plan].name),
        over,
    };
    // What the client lists in Connection goes before the gateway adds fields of its own, so that
    // it cannot list those.
    hop::strip(&mut head.headers);
    generation.identifier.strip(peer.ip, &mut head.headers);
    claims.write(&mut head.headers);
    announce(&mut head.headers, &peer);
    let attempt = Attempt {
        pool,
        peer: &peer,
        note: &note,
    };
    match attempt.run(&head, body).await {
        Ok(mut response) => {
            hop::strip(response.headers_mut());
            *response.version_mut() = Version::HTTP_11;
            Ok(response)
        }
        Err(why) => {
            if let Why::Upstream(error) = &why {
                peer.count_failure(&pool.settings().name, error);
                tracing::warn!(upstream = %pool.settings().name, %error, "no answer");
            }
            Err(Refusal::told(why, grpc))
        }
    }
}

/// What the gateway tells the upstream of a request.
struct Claims<'a> {
    user: Option<&'a str>,
    plan: Option<&'a str>,
    over: Option<HeaderValue>,
}

impl Claims<'_> {
    fn write(self, headers: &mut HeaderMap) {
        let texts = [(TOLLGATE_USER, self.user), (TOLLGATE_PLAN, self.plan)];
        for (name, text) in texts {
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
                headers.insert(name, value);
            }
        }
        if let Some(over) = self.over {
            headers.insert(TOLLGATE_OVER, over);
        }
    }
}

/// Adds what a proxy must say of the client's connection.
fn announce(headers: &mut HeaderMap, peer: &Peer) {
    append(headers, X_FORWARDED_FOR, &peer.address);
    headers.append(VIA, HeaderValue::from_static("1.1 tollgate"));
    let proto = HeaderValue::from_static("http");
    headers.entry(X_FORWARDED_PROTO).or_insert(proto);
    let Some(host) = headers.get(HOST).cloned() else {
        return;
    };
    let forwarded = peer.forwarded(&host);
    append(headers, FORWARDED, &forwarded);
    headers.entry(X_FORWARDED_HOST).or_insert(host);
}

/// Adds an element to a list that a trusted proxy may have begun.
fn append(headers: &mut HeaderMap, name: HeaderName, element: &HeaderValue) {
    let mut before = match headers.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(element.clone());
            return;
        }
        Entry::Occupied(entry) => entry,
    };
    if before.iter().nth(1).is_some() {
        before.append(element.clone());
        return;
    }
    let list = [before.get().as_bytes(), b", ", element.as_bytes()].concat();
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        before.insert(list);
    }
}

struct Attempt<'a> {
    pool: &'a std::rc::Rc<Pool>,
    peer: &'a Peer,
    note: &'a Note,
}

impl Attempt<'_> {
    /// Sends the request once. Sends it again over a new connection only if it certainly did not
    /// reach the server, or if it may be repeated and the connection was one that the server may
    /// have closed in the meantime.
    async fn run(&self, head: &Parts, body: RequestBody) -> Result<Response<Relay>, Why> {
        let connection = self.pool.checkout(false).await.map_err(Why::Upstream)?;
        let mut exchange = Exchange::new(connection, head, body);
        loop {
            match self.head(&mut exchange).await {
                Ok(parts) => {
                    let body = exchange.into_body(self.peer.coarse());
                    let body = Relay(Box::new(body));
                    return Ok(Response::from_parts(parts, body));
                }
                Err(Why::Upstream(upstream::Error::Exchange { .. })) if exchange.may_repeat() => {
                    let connection = self.pool.checkout(true).await.map_err(Why::Upstream)?;
                    exchange.repeat(connection);
                }
                Err(why) => return Err(why),
            }
        }
    }

    async fn head(&self, exchange: &mut Exchange<RequestBody>) -> Result<response::Parts, Why> {
        if self.note.wants_server() {
            self.note.server.replace(Some(exchange.server().to_owned()));
        }
        let guard = &self.peer.guard;
        let after = self.pool.settings().first_byte;
        let result = poll_fn(|cx| {
            if let Poll::Ready(result) = exchange.poll_head(cx) {
                return Poll::Ready(Some(result));
            }
            // While the client sends its body, its own deadline runs.
            match guard.phase() {
                Phase::Busy => guard.enter(Phase::FirstByte, after),
                phase if guard.phase_expired(phase) => return Poll::Ready(None),
                _ => {}
            }
            Poll::Pending
        })
        .await;
        let slow_body = guard.phase_expired(Phase::Body);
        guard.busy();
        let server = || exchange.server().to_owned();
        Err(match result {
            Some(Ok(parts)) => return Ok(parts),
            Some(Err(_)) | None if slow_body => Why::SlowBody,
            Some(Err(Failure::Request(error))) => error.into(),
            Some(Err(Failure::Server(cause))) => Why::Upstream(upstream::Error::Exchange {
                server: server(),
                cause,
            }),
            None => Why::Upstream(upstream::Error::FirstByteTimeout {
                server: server(),
                after,
            }),
        })
    }
}

impl Peer {
    fn count_failure(&self, upstream: &str, error: &upstream::Error) {
        let reason = super::answer::upstream_reason(error);
        self.failures(Metric::UpstreamErrors, upstream, reason)
            .increment(1);
    }
}
