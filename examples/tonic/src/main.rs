//! The throttle layer in a gRPC service of tonic: limits by address and by API key.
//!
//! `cargo run --manifest-path examples/tonic/Cargo.toml -- --port 3001`

mod greeter;

use std::error::Error;
use std::net::Ipv4Addr;

use greeter::Greeter;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate::{Key, Throttle};
use tonic::transport::Server;
use tonic::transport::server::TcpConnectInfo;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let throttle = Throttle::builder()
        .limit("per-ip", Key::Ip, "100/m")?
        .limit("per-key", Key::header("x-api-key"), "3/m")?
        // `Key::Ip` needs the address of the peer.
        .peer_address(|request| {
            let connection = request.extensions.get::<TcpConnectInfo>()?;
            Some(connection.remote_addr()?.ip())
        })
        .build()?;

    let port = std::env::args().nth(2).unwrap_or("3001".into()).parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let server = Server::builder().layer(throttle).add_service(Greeter);
    Ok(server.serve_with_incoming(TcpListenerStream::new(listener)).await?)
}
