//! [`Throttle`], the layer; [`Throttled`], its service; and the future of a request. A refused request never reaches the
//! inner service.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::body::ThrottledBody;
use super::decision::ServiceLimits;
use crate::http::head::Fields;
use crate::limit::HeaderStyle;
use crate::store::permits::PermitGuard;
use crate::throttle::RateLimitHeaders;
use crate::throttle::reject;

/// The limits of a service, as a tower layer. Clones share their counts, so one value may be the layer of several routes.
///
/// Admitted requests reach the service, and its response gets the fields `RateLimit` and `RateLimit-Policy`. Refused ones
/// get status 429 with `Retry-After` and a problem document (RFC 9457), or for gRPC the status `RESOURCE_EXHAUSTED`.
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Key, Throttle};
///
/// let throttle = Throttle::builder()
///     .limit("per-ip", Key::Ip, "100/m")?
///     .limit("per-key", Key::header("x-api-key"), "10/s, 1000/h")?
///     .concurrent("parallel", Key::Ip, 10)?
///     .build()?;
/// let app: Router = Router::new().route("/items", get(|| async { "items" })).layer(throttle);
/// # Ok::<(), tollgate::layer::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Throttle {
    limits: Arc<ServiceLimits>,
    /// The peer of the connection, where the caller has named it.
    peer: Option<IpAddr>,
}

impl Throttle {
    pub(super) fn new(limits: ServiceLimits) -> Throttle {
        Throttle {
            limits: Arc::new(limits),
            peer: None,
        }
    }

    /// The same layer for the requests of one connection, with the address of its peer. For servers that make a service
    /// for each connection, such as those of hyper.
    pub fn for_peer(&self, peer: IpAddr) -> Throttle {
        Throttle {
            limits: self.limits.clone(),
            peer: Some(peer),
        }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Throttle");
        let names = self.limits.rules.iter().map(|rule| rule.name.as_str());
        text.field("limits", &names.collect::<Vec<_>>());
        text.field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for Throttle {
    type Service = Throttled<S>;

    fn layer(&self, inner: S) -> Throttled<S> {
        Throttled {
            throttle: self.clone(),
            inner,
        }
    }
}

/// A service behind a [`Throttle`].
#[derive(Clone, Debug)]
pub struct Throttled<S> {
    throttle: Throttle,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Throttled<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data: From<Bytes>>,
{
    type Response = Response<ThrottledBody<R>>;
    type Error = S::Error;
    type Future = ThrottledFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ThrottledFuture<S::Future> {
        let Throttle { limits, peer } = &self.throttle;
        let (head, body) = request.into_parts();
        let (verdict, permits) = limits.decide(&head, *peer);
        let style = HeaderStyle::default();
        if !verdict.is_admitted {
            let is_grpc = reject::is_grpc(&head.headers);
            let refusal = reject::refusal(&verdict, &limits.rules, style, is_grpc);
            return ThrottledFuture::Refused {
                refusal: Some(refusal.into()),
            };
        }
        let mut fields = Fields::default();
        RateLimitHeaders::new(&verdict, &limits.rules, style).write(&mut fields, &limits.rules);
        ThrottledFuture::Admitted {
            future: self.inner.call(Request::from_parts(head, body)),
            admission: Some((fields.into(), permits)),
        }
    }
}

pin_project! {
    /// The future of [`Throttled`].
    #[project = ThrottledFutureProject]
    #[allow(missing_docs)]
    pub enum ThrottledFuture<F> {
        Refused { refusal: Option<Response<Bytes>> },
        Admitted { #[pin] future: F, admission: Option<(HeaderMap, Option<PermitGuard>)> },
    }
}

impl<F, R, E> Future for ThrottledFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ThrottledBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            // A future that is polled after its end stays pending.
            ThrottledFutureProject::Refused { refusal } => match refusal.take() {
                Some(refusal) => Poll::Ready(Ok(refusal.map(ThrottledBody::refusal))),
                None => Poll::Pending,
            },
            ThrottledFutureProject::Admitted { future, admission } => {
                let result = ready!(future.poll(cx));
                let Some((fields, permits)) = admission.take() else {
                    return Poll::Pending;
                };
                let mut response = result?;
                // Fields of the same names are replaced.
                response.headers_mut().extend(fields);
                Poll::Ready(Ok(
                    response.map(|body| ThrottledBody::admitted(body, permits))
                ))
            }
        }
    }
}
