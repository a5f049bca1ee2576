//! The throttle layer in a service of plain hyper: limits by address and by API key.
//!
//! `cargo run --example hyper -- --port 3001`

use std::convert::Infallible;
use std::error::Error;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate::{Key, Throttle};
use tower::{Layer, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let throttle = Throttle::builder()
        .limit("per-ip", Key::Ip, "100/m")?
        .limit("per-key", Key::header("x-api-key"), "3/m")?
        .build()?;

    let port = std::env::args().nth(2).unwrap_or("3001".into()).parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        // `Key::Ip` needs the address of the peer.
        let service = throttle.for_peer(peer.ip()).layer(service_fn(items));
        let service = TowerToHyperService::new(service);
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// The service behind the layer.
async fn items(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("three items\n")))
}
