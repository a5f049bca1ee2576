//! The admin listener's connections: few, and none of them for long, so that silent ones never take
//! the file descriptors that clients need.
//!
//! Bounds: [`MOST`] connections, [`HEAD`] for each head, [`LIFE`] and [`LAST`] for all of it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tower::Service as _;

/// Connections at once; more wait to be accepted.
const MOST: usize = 64;

/// From the start of a connection, or from the answer before, to the end of a request's head.
const HEAD: Duration = Duration::from_secs(10);

/// After this the request under way is the last one.
const LIFE: Duration = Duration::from_secs(60);

/// For the last request: a body that does not come, an answer that nobody takes.
const LAST: Duration = Duration::from_secs(10);

/// How long nothing is accepted after an accept failed, for instance for want of file descriptors.
const REST: Duration = Duration::from_millis(100);

/// Serves connections, new ones until `stop` is dropped.
///
/// # Errors
///
/// The listener cannot be used at all.
pub async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    mut stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(MOST));
    loop {
        let place = room.clone().acquire_owned().await;
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stop => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    let _place = place;
                    converse(stream, router).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "no connection to the admin listener accepted");
                sleep(REST).await;
            }
        }
    }
    drop(listener);
    // Those that are served end by themselves.
    let _all = room.acquire_many(MOST as u32).await;
    Ok(())
}

async fn converse(stream: TcpStream, router: Router) {
    let service = service_fn(|request: hyper::Request<Incoming>| router.clone().call(request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How a connection ends, the other side knows better.
    if timeout(LIFE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LAST, connection).await;
    }
}
