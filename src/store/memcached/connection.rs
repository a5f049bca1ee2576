//! The task of a [`MemcachedLink`]. The task connects, sends queued batches and reads their replies until the connection
//! ends, then connects again. Batches that were queued for an earlier connection are dropped, never sent over a later one.
//! A connection that is given up is handed to [`retired`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{interval, sleep, timeout};

use super::link::{LinkShared, MemcachedLink, PendingBatch, Replies};
use super::retired;
use super::traffic::{LinkTraffic, deliver_replies};

/// The time limit for connecting and the first reply together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the task looks whether the server replies.
const SILENCE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A connection is given up after more checks in a row than this without a reply, while replies are awaited. So a server
/// may be silent for two to three seconds.
const MAX_SILENT_CHECKS: u32 = 2;
/// The pause after the end of a connection or a first failure to connect. It doubles with each further failure.
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to connect, without jitter.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(5);

impl MemcachedLink {
    /// Starts the link's task on the runtime of the caller. Only the first call has an effect.
    pub(super) fn start(&self) {
        if self.shared.is_started.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(queue) = self.shared.queue_receiver.lock().take() {
            tokio::spawn(run_link(self.shared.clone(), queue));
        }
    }
}

/// Why a connection has ended.
enum LinkEnd {
    /// All handles of the link are dropped.
    Closed,
    /// The connection broke, for this cause.
    Broken(String),
    /// The connection is replaced, for this cause. The server may still execute what was sent.
    GivenUp(String),
}

impl From<io::Error> for LinkEnd {
    fn from(error: io::Error) -> LinkEnd {
        LinkEnd::Broken(error.to_string())
    }
}

/// Connects again and again, until the link is closed.
async fn run_link(shared: Arc<LinkShared>, mut queue: UnboundedReceiver<PendingBatch>) {
    let (mut delay, mut connection_number) = (MIN_RECONNECT_DELAY, 0);
    loop {
        let cause = match timeout(CONNECT_TIMEOUT, connect(&shared.server)).await {
            Ok(Ok(stream)) => {
                connection_number += 1;
                delay = MIN_RECONNECT_DELAY;
                *shared.disconnect_cause.lock() = None;
                shared
                    .connection_number
                    .store(connection_number, Ordering::Release);
                let (give_back_sender, give_backs) = unbounded_channel();
                let mut traffic = LinkTraffic::new(stream, give_backs);
                let ended = serve_connection(
                    &mut traffic,
                    &shared,
                    &mut queue,
                    connection_number,
                    give_back_sender,
                )
                .await;
                shared.connection_number.store(0, Ordering::Release);
                match ended {
                    LinkEnd::Closed => return,
                    LinkEnd::Broken(cause) => cause,
                    LinkEnd::GivenUp(cause) => {
                        retired::retire(traffic, &shared.retired_connections);
                        cause
                    }
                }
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no reply in time".to_owned(),
        };
        let server = &shared.server;
        tracing::debug!(server, cause, "no connection to memcached");
        *shared.disconnect_cause.lock() = Some(cause);
        if !wait_and_drop_batches(with_jitter(delay), &mut queue).await {
            return;
        }
        delay = (delay * 2).min(MAX_RECONNECT_DELAY);
    }
}

/// Waits for `delay`, and drops batches that are queued meanwhile. Returns `false` when the link is closed.
async fn wait_and_drop_batches(
    delay: Duration,
    queue: &mut UnboundedReceiver<PendingBatch>,
) -> bool {
    let mut delay = std::pin::pin!(sleep(delay));
    loop {
        tokio::select! {
            () = &mut delay => return true,
            batch = queue.recv() => if batch.is_none() {
                return false;
            },
        }
    }
}

/// One to one and a half times the delay, at random, so that gateways do not all reconnect at the same moment.
fn with_jitter(delay: Duration) -> Duration {
    let mut random = [0; 4];
    // Without random bytes the delay stays as it is.
    let _ = getrandom::fill(&mut random);
    delay + delay / 2 * (u32::from_le_bytes(random) % 1_000) / 1_000
}

/// Connects, and waits for a first reply: the system accepts connections for a server that hangs.
async fn connect(server: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    // The meta protocol's no-op, which older servers do not know.
    stream.write_all(b"mn\r\n").await?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await?;
    match &reply {
        b"MN\r\n" => Ok(stream),
        _ => Err(io::Error::other(
            "the server does not speak the meta protocol; memcached 1.6 or newer is needed",
        )),
    }
}

/// Sends queued batches and reads replies, until the connection or the link ends.
async fn serve_connection(
    traffic: &mut LinkTraffic,
    shared: &LinkShared,
    queue: &mut UnboundedReceiver<PendingBatch>,
    connection_number: u64,
    give_back_sender: UnboundedSender<PendingBatch>,
) -> LinkEnd {
    let mut checks = interval(SILENCE_CHECK_INTERVAL);
    let mut silent_checks = 0;
    loop {
        let (mut reader, mut writer) = traffic.stream.split();
        let (output, input) = (&mut traffic.output, &mut traffic.input);
        tokio::select! {
            batch = queue.recv() => match batch {
                Some(batch) => enqueue_all(traffic, batch, queue, connection_number),
                None => return LinkEnd::Closed,
            },
            batch = traffic.give_backs.recv() => {
                if let Some(batch) = batch {
                    traffic.enqueue(batch);
                }
            }
            read = reader.read_buf(input) => match read {
                Ok(0) => return LinkEnd::Broken("the server has closed the connection".to_owned()),
                Ok(_) => {
                    silent_checks = 0;
                    let deliver = |batch| send_replies(batch, &give_back_sender);
                    if let Err(cause) = deliver_replies(input, &mut traffic.in_flight, deliver) {
                        return LinkEnd::Broken(cause.to_string());
                    }
                }
                Err(error) => return error.into(),
            },
            written = writer.write_buf(output), if !output.is_empty() => {
                if let Err(error) = written {
                    return error.into();
                }
            }
            _ = checks.tick() => {
                silent_checks = if traffic.in_flight.is_empty() { 0 } else { silent_checks + 1 };
                if silent_checks > MAX_SILENT_CHECKS {
                    return LinkEnd::GivenUp("the server does not reply".to_owned());
                }
            }
            () = shared.reconnect.notified() => return LinkEnd::GivenUp("given up".to_owned()),
        }
    }
}

/// Adds `batch`, and all that are queued behind it, to the output. Batches for an earlier connection are dropped.
fn enqueue_all(
    traffic: &mut LinkTraffic,
    mut batch: PendingBatch,
    queue: &mut UnboundedReceiver<PendingBatch>,
    connection_number: u64,
) {
    loop {
        // Units that were given back before this batch was queued must be free for it.
        while let Ok(give_back) = traffic.give_backs.try_recv() {
            traffic.enqueue(give_back);
        }
        if batch.connection_number == connection_number {
            traffic.enqueue(batch);
        }
        batch = match queue.try_recv() {
            Ok(next) => next,
            Err(_) => return,
        };
    }
}

/// Sends the replies to the call that waits for them, if one does. Without such a call, the units of the batch stay
/// counted.
fn send_replies(mut batch: PendingBatch, give_back_sender: &UnboundedSender<PendingBatch>) {
    let Some(reply_sender) = batch.reply_sender.take() else {
        return;
    };
    let replies = std::mem::take(&mut batch.replies);
    let give_backs = give_back_sender.clone();
    let replies = Replies::new(&batch.commands, replies, give_backs, batch.link.clone());
    // Where the call was abandoned, dropping the replies gives the units back.
    let _ = reply_sender.send(Ok(replies));
}
