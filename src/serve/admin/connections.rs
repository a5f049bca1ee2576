//! The admin listener's connections: few, and none of them for long, so that silent ones never take
//! the file descriptors that clients need. A new one is never kept waiting by connections without a request: the oldest
//! of the address that has most of them makes room for it.
//!
//! Bounds: [`MOST`] connections, [`HEAD`] for each head, [`LIFE`] and [`LAST`] for all of it.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tower::Service as _;

/// Connections at once; while all of them have a request under way, more wait to be accepted.
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
    // The oldest first.
    let mut open: Vec<Open> = Vec::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                open.retain(|open| !open.task.is_finished());
                if open.len() >= MOST {
                    make_room(&mut open);
                }
                let place = room.clone().acquire_owned().await;
                let router = router.clone();
                let busy = Arc::new(AtomicBool::new(false));
                let asked = busy.clone();
                let task = tokio::spawn(async move {
                    let _place = place;
                    converse(stream, router, &asked).await;
                });
                open.push(Open {
                    network: network(peer.ip()),
                    busy,
                    task: task.abort_handle(),
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

struct Open {
    network: IpAddr,
    /// A request is being answered.
    busy: Arc<AtomicBool>,
    task: AbortHandle,
}

/// An address, or the /64 of one of IPv6, of which one machine has all.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Ends the oldest connection without a request, of the network that has most of them.
fn make_room(open: &mut Vec<Open>) {
    let waiting = |open: &Open| !open.busy.load(Relaxed);
    let of = |network| {
        let all = open.iter().filter(|open| open.network == network);
        all.filter(|open| waiting(open)).count()
    };
    let oldest = open.iter().enumerate().filter(|(_, open)| waiting(open));
    // Of several with the same number the first is wanted.
    let victim = oldest.rev().max_by_key(|(_, open)| of(open.network));
    if let Some((at, _)) = victim {
        open.remove(at).task.abort();
    }
}

async fn converse(stream: TcpStream, router: Router, busy: &AtomicBool) {
    let service = service_fn(|request: hyper::Request<Incoming>| {
        busy.store(true, Relaxed);
        let answer = router.clone().call(request);
        async move {
            let answer = answer.await;
            busy.store(false, Relaxed);
            answer
        }
    });
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
