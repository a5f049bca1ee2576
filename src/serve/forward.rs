//! Sends an admitted request to its upstream and the answer back, streaming both ways.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use http::header::{Entry, HOST, HeaderName, VIA};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
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
use crate::upstream::{self, Connection, Pool};

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
    head.uri = origin_form(head.uri);
    head.version = Version::HTTP_11;

    let request = Request::from_parts(head, body);
    let exchange = Exchange {
        pool,
        peer: &peer,
        note: &note,
    };
    match exchange.run(request).await {
        Ok((response, connection)) => {
            let (mut parts, incoming) = response.into_parts();
            hop::strip(&mut parts.headers);
            parts.version = Version::HTTP_11;
            let relay = Relay::new(incoming, connection, peer.coarse());
            Ok(Response::from_parts(parts, relay))
        }
        Err(why) => {
            if let Why::Upstream(error) = &why {
                peer.count_failure(&pool.settings().name, error);
                tracing::warn!(upstream = %pool.settings().name, %error, "no answer");
            }
            Err(Refusal::without_body(why, grpc))
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

/// The target as an origin server reads it: what the client wrote, without scheme and host.
fn origin_form(uri: Uri) -> Uri {
    if uri.authority().is_none() {
        return uri;
    }
    let path = uri.path_and_query().cloned();
    Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
}

struct Exchange<'a> {
    pool: &'a std::rc::Rc<Pool<RequestBody>>,
    peer: &'a Peer,
    note: &'a Note,
}

type Answered = (Response<Incoming>, Connection<RequestBody>);

impl Exchange<'_> {
    /// Sends the request once. Sends it again over a new connection only if it certainly did not
    /// reach the server, or if it may be repeated and the connection was one that the server may
    /// have closed in the meantime.
    async fn run(&self, request: Request<RequestBody>) -> Result<Answered, Why> {
        let connection = self.pool.checkout(false).await.map_err(Why::Upstream)?;
        let spare = (connection.reused && repeatable(&request)).then(|| copy(&request));
        let reused = connection.reused;
        match self.send(connection, request).await {
            Ok(answered) => Ok(answered),
            Err((why, unsent)) => {
                let again = match why {
                    Why::Upstream(upstream::Error::Exchange { .. }) if reused => unsent.or(spare),
                    _ => None,
                };
                let Some(request) = again else {
                    return Err(why);
                };
                let connection = self.pool.checkout(true).await.map_err(Why::Upstream)?;
                self.send(connection, request).await.map_err(|(why, _)| why)
            }
        }
    }

    async fn send(
        &self,
        mut connection: Connection<RequestBody>,
        mut request: Request<RequestBody>,
    ) -> Result<Answered, (Why, Option<Request<RequestBody>>)> {
        if self.note.wants_server() {
            self.note
                .server
                .replace(Some(connection.server().to_owned()));
        }
        if !request.headers().contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(connection.server())
        {
            request.headers_mut().insert(HOST, host);
        }
        let guard = &self.peer.guard;
        let after = self.pool.settings().first_byte;
        let result = {
            let mut sending = pin!(connection.send(request));
            poll_fn(|cx| {
                if let Poll::Ready(result) = sending.as_mut().poll(cx) {
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
            .await
        };
        let slow_body = guard.phase_expired(Phase::Body);
        guard.busy();
        let server = || connection.server().to_owned();
        match result {
            Some(Ok(response)) => Ok((response, connection)),
            Some(Err(_)) | None if slow_body => Err((Why::SlowBody, None)),
            Some(Err((cause, unsent))) => {
                let why = Why::from_exchange(server(), cause);
                Err((why, unsent))
            }
            None => {
                let error = upstream::Error::FirstByteTimeout {
                    server: server(),
                    after,
                };
                Err((Why::Upstream(error), None))
            }
        }
    }
}

/// Requests without a body and without an effect.
fn repeatable(request: &Request<RequestBody>) -> bool {
    let safe = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    safe && request.body().is_empty()
}

fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(request.body().empty_copy());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

impl Peer {
    fn count_failure(&self, upstream: &str, error: &upstream::Error) {
        let reason = super::answer::upstream_reason(error);
        self.failures(Metric::UpstreamErrors, upstream, reason)
            .increment(1);
    }
}
