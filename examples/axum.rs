//! The throttle layer in an axum service: limits by address and by API key, and one on how many requests of an address are
//! open at once.
//!
//! `cargo run --example axum -- --port 3001`

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{Key, Throttle};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let throttle = Throttle::builder()
        .limit("per-ip", Key::Ip, "100/m")?
        .limit("per-key", Key::header("x-api-key"), "3/m")?
        .concurrent("parallel", Key::Ip, 10)?
        .build()?;
    let app = Router::new()
        .route("/items", get(|| async { "three items\n" }))
        // Only the routes above this line are limited.
        .route_layer(throttle)
        .route("/healthz", get(|| async { "ok\n" }));

    let port = std::env::args().nth(2).unwrap_or("3001".into()).parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    println!("try: for i in 1 2 3 4; do curl -i -H 'x-api-key: abc' http://{address}/items; done");
    // `Key::Ip` needs the address of the peer.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}
