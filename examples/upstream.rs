//! A server to put the gateway in front of. It responds to every request with the request's method, path and header
//! fields, as JSON.
//!
//! `cargo run --example upstream -- --port 3000`

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(port) = parse_port(std::env::args().skip(1)) else {
        eprintln!("usage: upstream [--port N]");
        return ExitCode::from(2);
    };
    let failure = match serve(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    eprintln!("upstream: {failure}");
    ExitCode::FAILURE
}

/// The port in the arguments, or 3000 without arguments. None if they are anything else.
fn parse_port(mut arguments: impl Iterator<Item = String>) -> Option<u16> {
    let Some(option) = arguments.next() else {
        return Some(3000);
    };
    let port = arguments
        .next()
        .filter(|_| option == "--port")?
        .parse()
        .ok()?;
    arguments.next().is_none().then_some(port)
}

async fn serve(address: SocketAddr) -> std::io::Result<Infallible> {
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let respond =
                service_fn(|request| async move { Ok::<_, Infallible>(echo_response(&request)) });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), respond);
            if let Err(failure) = connection.await {
                eprintln!("upstream: {failure}");
            }
        });
    }
}

/// The request as JSON. A header field that came more than once is shown with all its values.
fn echo_response(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let headers = request.headers().keys().map(|name| {
        let values = request.headers().get_all(name).iter();
        let values: Vec<_> = values
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
            .collect();
        (name.to_string(), Value::from(values.join(", ")))
    });
    let request = json!({
        "method": request.method().as_str(),
        "path": request.uri().to_string(),
        "headers": headers.collect::<serde_json::Map<_, _>>(),
    });
    let mut response = Response::new(Full::from(format!("{request:#}\n")));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
