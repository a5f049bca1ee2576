//! A service with one method, which tonic's code generator would make of a `.proto` file.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic_prost::ProstCodec;

/// The request and the response: a name, and a greeting.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Text {
    /// The text itself.
    #[prost(string, tag = "1")]
    pub text: String,
}

/// Greets whoever calls.
#[derive(Clone)]
pub struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "example.Greeter";
}

impl UnaryService<Text> for Greeter {
    type Response = Text;
    type Future = Ready<Result<tonic::Response<Text>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Text>) -> Self::Future {
        let text = format!("hello, {}", request.into_inner().text);
        ready(Ok(tonic::Response::new(Text { text })))
    }
}

impl Service<http::Request<Body>> for Greeter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut calls = Grpc::new(ProstCodec::default());
        Box::pin(async move { Ok(calls.unary(Greeter, request).await) })
    }
}
