//! A service that counts by an identity of its own: the tenant, named by the first segment of the path. It uses
//! admission directly, without the tower layer.
//!
//! `cargo run --example custom_identity -- --port 3002`

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use clap::Parser;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tollgate::base::clock::Clock;
use tollgate::identity::key::Domain;
use tollgate::identity::{self, ClientIdentity, Identifier, Keyer};
use tollgate::limit::{Identity, LimitName, RateLimit, Rule, Rules};
use tollgate::route::{HeaderStyle, normalise};
use tollgate::store::{MemoryStore, Settings};
use tollgate::throttle::admission::{Admission, AdmissionOutcome, AdmissionRequest};
use tollgate::throttle::{RateLimitHeaders, Settle, reject};

#[derive(Parser)]
struct Options {
    /// Where to listen; 0 takes any free port.
    #[arg(long, default_value_t = 3002)]
    port: u16,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tenants = Arc::new(Tenants::new()?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, Options::parse().port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        let tenants = tenants.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = tenants.respond(peer.ip(), &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let stream = TokioIo::new(stream);
            if let Err(failure) = http1::Builder::new()
                .serve_connection(stream, service)
                .await
            {
                eprintln!("custom_identity: {failure}");
            }
        });
    }
}

/// One rule, three requests a minute for each tenant, and all that is needed to decide by it.
struct Tenants {
    rules: Rules,
    admission: Admission,
    identifier: Identifier,
    keyer: Keyer,
    clock: Clock,
}

impl Tenants {
    fn new() -> Result<Tenants, Box<dyn Error>> {
        // Limits count by what `ClientIdentity` holds. Its token may be the fingerprint of anything. Here it is that of
        // the tenant, so a limit by token counts by tenant.
        let limit = RateLimit::hard("3/m".parse()?);
        let rules = Rules::from_iter([Arc::new(Rule::new(
            LimitName::new("per-tenant")?,
            0,
            &[Identity::Token],
            limit,
        ))]);
        let clock = Clock::system();
        let store = Arc::new(MemoryStore::new(Settings {
            budget_bytes: 16 << 20,
        })?);
        let keyer = Keyer::random();
        Ok(Tenants {
            admission: Admission::new(&rules, store, clock.clone())?,
            identifier: Identifier::new(identity::Settings::default(), keyer.clone()),
            rules,
            keyer,
            clock,
        })
    }

    fn respond(&self, peer: IpAddr, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        // The path is normalised, so that no other spelling of a tenant has a counter of its own. Paths without a safe
        // reading, and the root, belong to the tenant without a name.
        let path = normalise(request.uri().path()).unwrap_or_default();
        let tenant = path.split('/').nth(1).unwrap_or_default();

        // The store only ever sees a keyed hash of the name, never the name.
        let mut client = ClientIdentity::new(peer);
        client.token = Some(self.keyer.fingerprint(Domain::Token, tenant.as_bytes()));

        let admission_request = AdmissionRequest {
            rules: &self.rules,
            client: &client,
            identifier: &self.identifier,
            now: self.clock.now(),
            pressure: None,
            reserved_units: &[],
        };
        let mut outcome = AdmissionOutcome::default();
        let pending = self
            .admission
            .decide(&admission_request, None, &mut outcome);
        debug_assert!(pending.is_none(), "no store is shared with other gateways");
        let AdmissionOutcome { verdict, ticket } = outcome;
        // The ticket is empty: only limits that count responses leave something to settle.
        drop(ticket);
        if !verdict.is_admitted {
            let response = reject::refusal(&verdict, &self.rules, HeaderStyle::Ietf, false);
            return response.map(Full::new).into();
        }
        let mut response = Response::new(Full::from(format!("tenant `{tenant}`\n")));
        response.set_rate_limit_headers(
            &RateLimitHeaders::new(&verdict, &self.rules, HeaderStyle::Ietf),
            &self.rules,
        );
        response
    }
}
