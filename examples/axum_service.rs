//! The throttle layer inside an axum service, without a gateway or files. It has limits by address and by API key, and
//! one on how many requests of an address are open at once.
//!
//! `cargo run --example axum_service -- --port 3001`

use std::convert::Infallible;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use clap::Parser;
use tokio::net::TcpListener;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::http::head::Head;
use tollgate::identity::{self, ClientIdentity, Identifier, Keyer, token};
use tollgate::limit::pressure::UpstreamSlot;
use tollgate::limit::{Concurrency, Identity, LimitName, RateLimit, Rule, RuleLimit, Rules};
use tollgate::store::{MemoryStore, Settings};
use tollgate::throttle::admission::{Admission, AdmissionRequest, Verdict};
use tollgate::throttle::{
    AppliedLimits, DecisionObserver, Denied, FailedRequest, ThrottleLayer, ThrottledRequest, reject,
};
use tower::{Layer, ServiceExt};

#[derive(Parser)]
struct Options {
    /// Where to listen; 0 takes any free port.
    #[arg(long, default_value_t = 3001)]
    port: u16,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let routes = Router::new()
        .route("/items", get(|| async { "three items\n" }))
        // Only the routes above this line are limited.
        .route_layer(from_fn_with_state(Arc::new(Limits::new()?), throttle))
        .route("/healthz", get(|| async { "ok\n" }));

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, Options::parse().port)).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("try: for i in 1 2 3 4; do curl -i -H 'x-api-key: abc' http://{address}/items; done");
    let service = routes.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}

/// The rules, and all that is needed to decide by them. All requests share it.
struct Limits {
    rules: Rules,
    admission: Admission,
    identifier: Identifier,
    clock: Clock,
}

impl Limits {
    fn new() -> Result<Limits, Box<dyn Error>> {
        // `index` is the rule's index in the list below.
        let rule = |index, name: &str, key, limit: RuleLimit| -> Result<_, Box<dyn Error>> {
            Ok(Arc::new(Rule::new(
                LimitName::new(name)?,
                index,
                &[key],
                limit,
            )))
        };
        let (frequent, rare) = (
            RateLimit::hard("100/m".parse()?),
            RateLimit::hard("3/m".parse()?),
        );
        let per_ip = rule(0, "per-ip", Identity::Ip, frequent.into())?;
        let per_key = rule(1, "per-key", Identity::Token, rare.into())?;
        // A request counts as open until the last of its response's body is sent or dropped: the layer sees to that.
        let parallel = rule(2, "parallel", Identity::Ip, Concurrency::hard(10).into())?;
        let rules = Rules::from_iter([per_ip, per_key, parallel]);
        let clock = Clock::system();
        let store = Arc::new(MemoryStore::new(Settings {
            budget_bytes: 16 << 20,
        })?);
        let token_sources = vec![token::TokenSource::Header("x-api-key".parse()?)];
        let sources = identity::Settings {
            token_sources,
            ..identity::Settings::default()
        };
        Ok(Limits {
            admission: Admission::new(&rules, store, clock.clone())?,
            identifier: Identifier::new(sources, Keyer::random()),
            rules,
            clock,
        })
    }
}

/// The middleware: identifies the client, and puts the layer around the rest of the service.
async fn throttle(
    State(limits): State<Arc<Limits>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let wall = || limits.clock.wall();
    let identified = IdentifiedRequest {
        client: limits
            .identifier
            .identify(peer.ip(), &Head::from(&head), wall),
        arrived_at: limits.clock.now(),
        request: Request::from_parts(head, body),
        limits,
    };
    let inner = next.map_err(|never: Infallible| match never {});
    match ThrottleLayer.layer(inner).oneshot(identified).await {
        Ok(response) => response.map(Body::new),
        Err(Refused(response)) => response.map(Body::from),
    }
}

impl AppliedLimits for Limits {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// A request with what the layer needs to know of it.
struct IdentifiedRequest {
    request: Request,
    client: ClientIdentity,
    arrived_at: Nanos,
    limits: Arc<Limits>,
}

impl ThrottledRequest for IdentifiedRequest {
    type Admitted = Request;
    type Limits = Arc<Limits>;

    fn admission_request(&self) -> AdmissionRequest<'_> {
        AdmissionRequest {
            rules: &self.limits.rules,
            client: &self.client,
            identifier: &self.limits.identifier,
            now: self.arrived_at,
            pressure: None,
            reserved_units: &[],
        }
    }

    fn admission(&self) -> &Admission {
        &self.limits.admission
    }

    fn limits(&self) -> Arc<Limits> {
        self.limits.clone()
    }

    fn into_admitted(self, _: &Verdict, _: Option<UpstreamSlot>) -> Request {
        self.request
    }
}

impl DecisionObserver for IdentifiedRequest {}

/// The response to a request that a limit refused.
struct Refused(axum::http::Response<Bytes>);

impl From<Denied<'_, IdentifiedRequest>> for Refused {
    fn from(denied: Denied<'_, IdentifiedRequest>) -> Refused {
        let rules = &denied.request.limits.rules;
        let style = denied.request.header_style();
        Refused(reject::refusal(denied.verdict, rules, style, false).into())
    }
}

// The defaults fit: there is no upstream that a request could fail to reach.
impl FailedRequest for Refused {}
