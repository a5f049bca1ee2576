//! Serves the connections of the admin listener. They are few and short, so that silent connections never take the file
//! descriptors that clients need.
//!
//! Idle connections never keep a new connection waiting. At the bound the gateway closes the oldest idle connection of
//! the network that has most idle ones. Requests beyond [`MAX_REQUESTS`] get 503 until earlier responses are
//! sent. Probes do not count, because their responses leave at once. So an idle connection always exists, and no probe
//! waits.
//!
//! Every accepted connection gets its response, also if it was accepted just before the end: another process may listen
//! on the same socket, and its operators must not notice which of the two serves them.
//!
//! Bounds: [`MAX_CONNECTIONS`] connections, [`MAX_REQUESTS`] requests on them, [`HEAD_TIMEOUT`] and
//! [`MAX_BUFFER_BYTES`] for each head, and [`CONNECTION_LIFETIME`] plus [`DRAIN_TIMEOUT`] for a connection.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use http_body::{Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tower::Service as _;

use super::problem::problem_response;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 64;

/// Maximum number of requests whose responses are not sent yet. It is below [`MAX_CONNECTIONS`], so that an idle connection
/// always exists.
const MAX_REQUESTS: usize = 56;

/// Paths of probes, whose responses take no time and fit into a socket buffer.
const PROBE_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Longest time from the start of a connection, or from the previous response, to the end of a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of a request's head, and of a body that is read ahead.
const MAX_BUFFER_BYTES: usize = 64 * 1024;

/// Age from which on a connection takes no further request.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);

/// How long connections still take requests after the end was ordered. A client that has just connected sends its request
/// in this time.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// Longest time for the last request after the lifetime: its body may not come, or its client may not read the response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two looks whether the last orders are carried out.
const ORDER_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Pause after a failed accept, for instance when file descriptors have run out.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Serves connections until `stop` is dropped or sends, and the open ones and all orders have ended.
///
/// # Errors
///
/// The listener cannot be registered with the runtime.
pub async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    mut stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let connection_permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let request_permits = Arc::new(Semaphore::new(MAX_REQUESTS));
    // Dropped when the connections are to end.
    let (open_sender, is_open) = watch::channel(());
    // The oldest connection is the first.
    let mut open_connections: Vec<OpenConnection> = Vec::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                open_connections.retain(|connection| !connection.task.is_finished());
                if open_connections.len() >= MAX_CONNECTIONS {
                    close_oldest_idle(&mut open_connections);
                }
                // The closed connection returns its permit a moment later, when its task is dropped.
                let permit = connection_permits.clone().acquire_owned().await;
                let progress = Arc::new(ConnectionProgress::default());
                let local = stream.local_addr();
                let is_local_loopback =
                    local.is_ok_and(|local| local.ip().to_canonical().is_loopback());
                let connection = serve_connection(
                    AdminPeer {
                        address: peer.ip().to_canonical(),
                        is_local_loopback,
                    },
                    ProgressSocket {
                        stream: TokioIo::new(stream),
                        progress: progress.clone(),
                    },
                    router.clone(),
                    request_permits.clone(),
                    is_open.clone(),
                );
                let task = tokio::spawn(async move {
                    let _permit = permit;
                    connection.await;
                });
                open_connections.push(OpenConnection {
                    network: network_of(peer.ip()),
                    progress,
                    task: task.abort_handle(),
                });
            }
            Err(error) => {
                tracing::debug!(%error, "accept on the admin listener failed");
                sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
    drop(listener);
    drop(open_sender);
    // Open connections end by themselves, within their bounds.
    let _all_permits = connection_permits
        .acquire_many(MAX_CONNECTIONS as u32)
        .await;
    // The order of a client that has left goes on, on a task of its own.
    let tasks = Handle::current().metrics();
    while tasks.num_alive_tasks() > 0 {
        sleep(ORDER_POLL_INTERVAL).await;
    }
    Ok(())
}

/// The client of a connection, as an extension of its requests.
#[derive(Clone, Copy)]
pub(super) struct AdminPeer {
    /// The canonical address: an IPv4 address is never written as an IPv6 one.
    pub(super) address: IpAddr,
    /// Whether the connection has arrived at a loopback address of this machine.
    pub(super) is_local_loopback: bool,
}

/// A connection, as the loop that accepts connections sees it.
struct OpenConnection {
    /// The client's network, as [`network_of`] gives it.
    network: IpAddr,
    progress: Arc<ConnectionProgress>,
    /// Aborting the task closes the connection.
    task: AbortHandle,
}

/// An IPv4 address, or the /64 of an IPv6 address, because one machine usually has a whole /64.
pub(super) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Closes the oldest idle connection of the network with most idle connections, if any is idle. `open_connections` has
/// the oldest first.
fn close_oldest_idle(open_connections: &mut Vec<OpenConnection>) {
    let is_idle = |connection: &OpenConnection| connection.progress.stage.load(Relaxed) == IDLE;
    let idle_count = |network| {
        let connections = open_connections.iter();
        let network_connections = connections.filter(|connection| connection.network == network);
        network_connections
            .filter(|connection| is_idle(connection))
            .count()
    };
    let connections = open_connections.iter().enumerate();
    let idle_connections = connections.filter(|(_, connection)| is_idle(connection));
    // `max_by_key` keeps the last of equals, so the order is reversed to get the oldest.
    let oldest_idle = idle_connections
        .rev()
        .max_by_key(|(_, connection)| idle_count(connection.network));
    if let Some((index, _)) = oldest_idle {
        open_connections.remove(index).task.abort();
    }
}

/// The progress of the request that a connection serves.
#[derive(Default)]
struct ConnectionProgress {
    /// [`IDLE`], [`RESPONDING`] or [`SENDING`]. Only the connection's task writes the stage. No other data depends on
    /// it, so relaxed order is enough for the loop that reads it.
    stage: AtomicU8,
    /// The permit of the request, held until the response is sent or the connection ends.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

/// The stage of a connection without a request, or with the request of a probe only.
const IDLE: u8 = 0;
/// The stage of a connection whose response is not complete.
const RESPONDING: u8 = 1;
/// The stage of a connection whose response is complete and not sent.
const SENDING: u8 = 2;

/// Serves one connection within its bounds, and ends it soon after the sender of `is_open` is dropped. Each request but
/// those of probes needs one of `request_permits`.
async fn serve_connection(
    peer: AdminPeer,
    socket: ProgressSocket,
    router: Router,
    request_permits: Arc<Semaphore>,
    mut is_open: watch::Receiver<()>,
) {
    let progress = socket.progress.clone();
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let permit = match PROBE_PATHS.contains(&request.uri().path()) {
            true => Ok(None),
            false => request_permits.clone().try_acquire_owned().map(Some),
        };
        // `None` for a probe, and an error where there is no permit.
        let in_progress = permit.map(|permit| {
            permit.map(|permit| {
                *progress.permit.lock() = Some(permit);
                progress.stage.store(RESPONDING, Relaxed);
                ResponseInProgress(progress.clone())
            })
        });
        let mut router = router.clone();
        async move {
            let Ok(in_progress) = in_progress else {
                let detail = "the admin listener has too many open requests; try again later";
                return Ok(problem_response(StatusCode::SERVICE_UNAVAILABLE, detail));
            };
            let response: Response = router.call(request).await?;
            Ok::<_, std::convert::Infallible>(response.map(|body| {
                Body::new(AdminResponseBody {
                    body,
                    _in_progress: in_progress,
                })
            }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_BUFFER_BYTES)
        .serve_connection(socket, service);
    let mut connection = pin!(connection);
    // Errors are ignored: they are about the client's end of the connection, or about what it sent.
    let stop = async {
        // Nothing is ever sent, so this ends when the sender is dropped.
        let _ = is_open.changed().await;
        sleep(STOP_GRACE).await;
    };
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(CONNECTION_LIFETIME) => {}
        () = stop => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(DRAIN_TIMEOUT, connection).await;
}

/// Marks the response as complete when it is dropped.
struct ResponseInProgress(Arc<ConnectionProgress>);

impl Drop for ResponseInProgress {
    fn drop(&mut self) {
        self.0.stage.store(SENDING, Relaxed);
    }
}

/// A response body that drops its [`ResponseInProgress`] at its end.
struct AdminResponseBody {
    body: Body,
    _in_progress: Option<ResponseInProgress>,
}

impl http_body::Body for AdminResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket that notices when a response is sent: hyper flushes the socket once it has written all bytes of the
/// response.
struct ProgressSocket {
    stream: TokioIo<TcpStream>,
    progress: Arc<ConnectionProgress>,
}

impl Drop for ProgressSocket {
    fn drop(&mut self) {
        *self.progress.permit.lock() = None;
    }
}

impl Read for ProgressSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for ProgressSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stage = &self.progress.stage;
        let was_sending = stage.compare_exchange(SENDING, IDLE, Relaxed, Relaxed);
        if was_sending.is_ok() {
            *self.progress.permit.lock() = None;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }
}
