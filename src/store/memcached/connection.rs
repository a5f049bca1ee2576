//! The task that connects a [`MemcachedLink`], and sends and reads until the connection ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{interval, sleep, timeout};

use super::link::{Job, LinkShared, MemcachedLink, Replies};
use super::retired;
use super::traffic::{LinkTraffic, answer};

/// How long connecting may take; a server that is silent for as long is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause before the next attempt to connect: at first, and at most. It doubles after each failure.
const PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
impl MemcachedLink {
    /// Begins to connect, on the runtime of the caller, if it has not begun.
    pub(super) fn begin(&self) {
        if self.state.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(jobs) = self.state.jobs.lock().take() {
            tokio::spawn(run(self.state.clone(), jobs));
        }
    }
}

/// Why a connection has ended.
enum LinkEnd {
    /// The link is gone.
    Closed,
    /// The connection broke.
    Broken(String),
    /// The server may still execute what was sent.
    GivenUp(String),
}

impl From<io::Error> for LinkEnd {
    fn from(error: io::Error) -> LinkEnd {
        LinkEnd::Broken(error.to_string())
    }
}

async fn run(state: Arc<LinkShared>, mut jobs: UnboundedReceiver<Job>) {
    let (mut pause, mut epoch) = (PAUSE[0], 0);
    loop {
        let cause = match timeout(PATIENCE, greet(&state.server)).await {
            Ok(Ok(stream)) => {
                epoch += 1;
                pause = PAUSE[0];
                *state.cause.lock() = None;
                state.epoch.store(epoch, Ordering::Release);
                let (back, backs) = unbounded_channel();
                let mut traffic = LinkTraffic::new(stream, backs);
                let ended = serve(&mut traffic, &state, &mut jobs, (epoch, back)).await;
                state.epoch.store(0, Ordering::Release);
                match ended {
                    LinkEnd::Closed => return,
                    LinkEnd::Broken(cause) => cause,
                    LinkEnd::GivenUp(cause) => {
                        retired::settle(traffic, &state.retired);
                        cause
                    }
                }
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no reply in time".to_owned(),
        };
        tracing::debug!(server = state.server, cause, "no connection to memcached");
        *state.cause.lock() = Some(cause);
        if !rest(jittered(pause), &mut jobs).await {
            return;
        }
        pause = (pause * 2).min(PAUSE[1]);
    }
}

/// Pauses, and drops jobs that come meanwhile. Returns `false` when the link is gone.
async fn rest(pause: Duration, jobs: &mut UnboundedReceiver<Job>) -> bool {
    let mut pause = std::pin::pin!(sleep(pause));
    loop {
        tokio::select! {
            () = &mut pause => return true,
            job = jobs.recv() => if job.is_none() {
                return false;
            },
        }
    }
}

/// One to one and a half times the pause, at random, so that gateways do not all reconnect at the same moment.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 4];
    // Without random bytes the pause is as it is.
    let _ = getrandom::fill(&mut random);
    pause + pause / 2 * (u32::from_le_bytes(random) % 1_000) / 1_000
}

/// Connects, and waits for a first reply: the system accepts connections for a server that hangs.
async fn greet(server: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    stream.write_all(b"mn\r\n").await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    match &answer {
        b"MN\r\n" => Ok(stream),
        _ => Err(io::Error::other(
            "the server does not speak the meta protocol; memcached 1.6 or newer is needed",
        )),
    }
}

/// Sends and reads until something ends it.
async fn serve(
    traffic: &mut LinkTraffic,
    state: &LinkShared,
    jobs: &mut UnboundedReceiver<Job>,
    (epoch, back): (u64, UnboundedSender<Job>),
) -> LinkEnd {
    let mut ticks = interval(PATIENCE / 2);
    let mut silent = 0;
    loop {
        let (mut reader, mut writer) = traffic.stream.split();
        let (output, input) = (&mut traffic.output, &mut traffic.input);
        tokio::select! {
            job = jobs.recv() => {
                let Some(mut job) = job else { return LinkEnd::Closed };
                loop {
                    // Units that were taken back before this job must be free for it.
                    while let Ok(back) = traffic.backs.try_recv() {
                        traffic.queue(back);
                    }
                    if job.epoch == epoch {
                        traffic.queue(job);
                    }
                    job = match jobs.try_recv() {
                        Ok(next) => next,
                        Err(_) => break,
                    };
                }
            }
            job = traffic.backs.recv() => {
                if let Some(job) = job {
                    traffic.queue(job);
                }
            }
            read = reader.read_buf(input) => match read {
                Ok(0) => return LinkEnd::Broken("the server has closed the connection".to_owned()),
                Ok(_) => {
                    silent = 0;
                    if let Err(cause) = answer(input, &mut traffic.flight, |job| finish(job, &back)) {
                        return LinkEnd::Broken(cause);
                    }
                }
                Err(error) => return error.into(),
            },
            written = writer.write_buf(output), if !output.is_empty() => {
                if let Err(error) = written {
                    return error.into();
                }
            }
            _ = ticks.tick() => {
                silent = if traffic.flight.is_empty() { 0 } else { silent + 1 };
                if silent > 2 {
                    return LinkEnd::GivenUp("the server does not reply".to_owned());
                }
            }
            () = state.again.notified() => return LinkEnd::GivenUp("given up".to_owned()),
        }
    }
}

fn finish(mut job: Job, back: &UnboundedSender<Job>) {
    let Some(answer) = job.answer.take() else {
        return;
    };
    let replies = std::mem::take(&mut job.replies);
    let replies = Replies::new(&job.batch, replies, back.clone(), job.link.clone());
    // Where the call was abandoned, dropping the replies takes back the units.
    let _ = answer.send(Ok(replies));
}
