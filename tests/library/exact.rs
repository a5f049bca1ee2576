//! Exactly as many requests are admitted as the limit says, from 64 clients at once and over several threads of a server.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate::{Key, Throttle};
use tower::{Layer, ServiceExt, service_fn};

use super::common::Client;

const CLIENTS: usize = 64;
const REQUESTS: usize = 50;
const QUOTA: usize = 1_000;
/// Threads of a server, each with a listener of its own.
const THREADS: usize = 4;

fn throttle() -> Throttle {
    let builder = Throttle::builder()
        .limit("per-ip", Key::Ip, "1000/h")
        .unwrap();
    let builder = builder.limit("all", Key::Everyone, "1000000/h").unwrap();
    builder.build().unwrap()
}

/// Runs `serve` on each thread, and returns the addresses of their listeners.
fn start<F: Future>(serve: impl Fn(TcpListener) -> F + Clone + Send + 'static) -> Vec<SocketAddr> {
    let start_thread = |_| {
        let (serve, (send, address)) = (serve.clone(), channel());
        thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().unwrap().block_on(async move {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                send.send(listener.local_addr().unwrap()).unwrap();
                serve(listener).await;
            });
        });
        address.recv().unwrap()
    };
    (0..THREADS).map(start_thread).collect()
}

/// Runs `client` on as many threads as there are clients, all at once, and adds up what they return.
fn sum(client: impl Fn(usize) -> usize + Sync) -> usize {
    let barrier = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        let run = |number| {
            let (client, barrier) = (&client, &barrier);
            scope.spawn(move || {
                barrier.wait();
                client(number)
            })
        };
        let threads: Vec<_> = (0..CLIENTS).map(run).collect();
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.sum()
    })
}

/// The number of admitted requests. All others must be refusals.
fn admitted(addresses: &[SocketAddr]) -> usize {
    sum(|number| {
        let mut client = Client::connect(addresses[number % addresses.len()]);
        let statuses = (0..REQUESTS).map(|_| client.get("/items").status());
        statuses
            .filter(|status| match status {
                200 => true,
                429 => false,
                other => panic!("{other}"),
            })
            .count()
    })
}

#[test]
fn axum() {
    let app = Router::new().route("/items", get(|| async { "items" }));
    let app = app.layer(throttle());
    let addresses = start(move |listener| {
        let service = app.clone();
        let service = service.into_make_service_with_connect_info::<SocketAddr>();
        async move { axum::serve(listener, service).await }
    });
    assert_eq!(admitted(&addresses), QUOTA);
}

async fn items<B>(_: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("items")))
}

#[test]
fn hyper() {
    let throttle = throttle();
    let addresses = start(move |listener| {
        let throttle = throttle.clone();
        async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let service = throttle.for_peer(peer.ip()).layer(service_fn(items));
                let service = TowerToHyperService::new(service);
                let connection = http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        }
    });
    assert_eq!(admitted(&addresses), QUOTA);
}

/// Without sockets, so that nothing but the layer's own locks orders the threads.
#[test]
fn threads() {
    let throttle = throttle();
    let admitted_count = sum(|_| {
        let service = throttle.for_peer(Ipv4Addr::LOCALHOST.into());
        let service = service.layer(service_fn(items));
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.build().unwrap();
        let send = |_: &usize| {
            let response = runtime.block_on(service.clone().oneshot(Request::new(())));
            response.unwrap().status() == 200
        };
        (0..20 * REQUESTS).filter(send).count()
    });
    assert_eq!(admitted_count, QUOTA);
}
