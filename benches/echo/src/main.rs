//! The least that answers Envoy's rate limit service with tonic: it reads each request and says OK. benches/decisions.sh
//! compares its CPU time with that of the gateway.
//!
//!   tollgate-echo ADDRESS

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(int32, tag = "1")]
    overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    statuses: Vec<Status>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
}

#[derive(Clone)]
struct Echo;

impl UnaryService<Request> for Echo {
    type Response = Response;
    type Future = Ready<Result<tonic::Response<Response>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Request>) -> Self::Future {
        let descriptors = request.into_inner().descriptors;
        ready(Ok(tonic::Response::new(Response {
            overall_code: 1,
            statuses: vec![Status { code: 1 }; descriptors.len()],
        })))
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Response, Request>::default());
            Ok(grpc.unary(Echo, request).await)
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("which address?")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        tonic::transport::Server::builder()
            .tcp_nodelay(true)
            .add_service(Echo)
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await?;
        Ok(())
    })
}
