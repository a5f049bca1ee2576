//! The throttle layer inside an axum service, without a gateway or files: limits by address and by API
//! key, and one on how many requests of an address are open at once. `cargo run --example axum_service -- --port 3001`

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
use tollgate::limit::{Concurrency, Identity, Limit, LimitName, Rule, RuleLimit, Rules};
use tollgate::store::{Memory, Settings};
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
        // What is below this line is not limited.
        .route_layer(from_fn_with_state(Arc::new(Limits::new()?), throttle))
        .route("/healthz", get(|| async { "ok\n" }));

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, Options::parse().port)).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("try: for i in 1 2 3 4; do curl -i -H 'x-api-key: abc' http://{address}/items; done");
    let service = routes.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}

/// What all requests are decided by.
struct Limits {
    rules: Rules,
    admission: Admission,
    identifier: Identifier,
    clock: Clock,
}

impl Limits {
    fn new() -> Result<Limits, Box<dyn Error>> {
        // The number is the rule's place in the list.
        let rule = |index, name: &str, key, limit: RuleLimit| -> Result<_, Box<dyn Error>> {
            Ok(Arc::new(Rule::new(
                LimitName::new(name)?,
                index,
                &[key],
                limit,
            )))
        };
        let (often, seldom) = (Limit::hard("100/m".parse()?), Limit::hard("3/m".parse()?));
        let per_ip = rule(0, "per-ip", Identity::Ip, often.into())?;
        let per_key = rule(1, "per-key", Identity::Token, seldom.into())?;
        // Open until the last of the response's body is sent or dropped: the layer sees to that.
        let parallel = rule(2, "parallel", Identity::Ip, Concurrency::hard(10).into())?;
        let rules = Rules::from_iter([per_ip, per_key, parallel]);
        let clock = Clock::system();
        let store = Arc::new(Memory::new(Settings { budget: 16 << 20 })?);
        let token = Some(token::TokenSource::Header("x-api-key".parse()?));
        let sources = identity::Settings {
            token,
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

/// The middleware: says who asks, and puts the layer around the rest of the service.
async fn throttle(
    State(limits): State<Arc<Limits>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let wall = || limits.clock.wall();
    let asked = Asked {
        who: limits
            .identifier
            .identify(peer.ip(), &Head::from(&head), wall),
        at: limits.clock.now(),
        request: Request::from_parts(head, body),
        limits,
    };
    let inner = next.map_err(|never: Infallible| match never {});
    match ThrottleLayer.layer(inner).oneshot(asked).await {
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

/// A request with all that the layer wants to know of it.
struct Asked {
    request: Request,
    who: ClientIdentity,
    at: Nanos,
    limits: Arc<Limits>,
}

impl ThrottledRequest for Asked {
    type Admitted = Request;
    type Limits = Arc<Limits>;

    fn admission_request(&self) -> AdmissionRequest<'_> {
        AdmissionRequest {
            rules: &self.limits.rules,
            who: &self.who,
            identifier: &self.limits.identifier,
            now: self.at,
            pressure: None,
            reserved: &[],
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

impl DecisionObserver for Asked {}

/// The answer to a request that a limit refused.
struct Refused(axum::http::Response<Bytes>);

impl From<Denied<'_, Asked>> for Refused {
    fn from(denied: Denied<'_, Asked>) -> Refused {
        let rules = &denied.request.limits.rules;
        let style = denied.request.header_style();
        Refused(reject::refusal(denied.verdict, rules, style, false).into())
    }
}

/// There is no upstream that a request could fail to reach.
impl FailedRequest for Refused {}
