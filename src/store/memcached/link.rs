//! One connection of a worker to a server, made anew whenever it breaks. Batches are sent one after another
//! without waiting for replies, which come in the same order.
//!
//! What was counted for a call that nobody waits for any more is taken back, whether its replies are still
//! on the way or have come: [`Replies`] does it when they are dropped. A server that hangs executes what lies in
//! its socket when it goes on: a connection that is given up is read to the end, see [`super::retired`]. Only where
//! a connection breaks before the replies have come, units stay counted that nobody uses, until they leave their
//! window.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{interval, sleep, timeout};

use super::replies::{Replies, counted};
use super::retired;
use super::wire::{self, Batch, Reply};
use crate::store::shared::call::Failure;

/// How long connecting may take; a server that is silent for as long is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts to connect; doubled after each that fails, up to the second.
const PAUSE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// Most commands whose replies have not come.
const MOST_COMMANDS: usize = 16_384;

/// See the module.
#[derive(Clone)]
pub(super) struct Link {
    state: Arc<State>,
    queue: UnboundedSender<Job>,
}

struct State {
    server: String,
    /// Number of the connection; zero while there is none.
    epoch: AtomicU64,
    /// Commands whose replies have not come.
    waiting: AtomicUsize,
    /// Numbers batches.
    number: AtomicU32,
    begun: AtomicBool,
    /// Why there is no connection.
    cause: Mutex<Option<String>>,
    again: Notify,
    /// Connections that are given up and read to the end.
    retired: Arc<AtomicUsize>,
    /// Until the task begins.
    jobs: Mutex<Option<UnboundedReceiver<Job>>>,
}

/// A batch on its way.
pub(super) struct Job {
    pub(super) batch: Batch,
    /// The connection that it is for; zero where it comes over that one's own queue.
    epoch: u64,
    pub(super) replies: Vec<Reply>,
    answer: Option<oneshot::Sender<Result<Replies, Failure>>>,
    link: Link,
    /// Commands that it counts for in [`State::waiting`].
    waits: usize,
}

impl Job {
    /// Its connection is given up, and whoever waits for the replies learns it.
    pub(super) fn retire(&mut self) {
        self.answer = None;
        let waits = std::mem::take(&mut self.waits);
        self.link.state.waiting.fetch_sub(waits, Ordering::Relaxed);
    }

    /// What takes back all that it counted, if it counted something.
    pub(super) fn taken_back(&self) -> Option<Job> {
        let mut batch = self.link.batch();
        for add in counted(&self.batch, &self.replies) {
            batch.give(&add.key, add.units);
        }
        (batch.count > 0).then(|| Job {
            batch,
            epoch: self.epoch,
            replies: Vec::new(),
            answer: None,
            link: self.link.clone(),
            waits: 0,
        })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.retire();
    }
}

/// Replies that are awaited.
pub(super) struct Pending(oneshot::Receiver<Result<Replies, Failure>>);

impl Pending {
    pub(super) async fn replies(self) -> Result<Replies, Failure> {
        self.0.await.unwrap_or(Err(Failure::Away))
    }
}

impl Link {
    pub(super) fn new(server: &str) -> Link {
        let (queue, jobs) = unbounded_channel();
        let state = State {
            server: server.to_owned(),
            epoch: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            number: AtomicU32::new(0),
            begun: AtomicBool::new(false),
            cause: Mutex::new(None),
            again: Notify::new(),
            retired: Arc::default(),
            jobs: Mutex::new(Some(jobs)),
        };
        Link {
            state: Arc::new(state),
            queue,
        }
    }

    /// Begins to connect, on the runtime of the caller, if it has not begun.
    pub(super) fn begin(&self) {
        if self.state.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(jobs) = self.state.jobs.lock().take() {
            tokio::spawn(run(self.state.clone(), jobs));
        }
    }

    /// Gives up the connection for a new one.
    pub(super) fn again(&self) {
        if self.connected() {
            self.state.again.notify_one();
        }
    }

    pub(super) fn connected(&self) -> bool {
        self.state.epoch.load(Ordering::Acquire) != 0
    }

    /// An empty batch.
    pub(super) fn batch(&self) -> Batch {
        Batch::new(self.state.number.fetch_add(1, Ordering::Relaxed))
    }

    /// Why nothing can be asked, for people to read.
    pub(super) fn cause(&self) -> Option<String> {
        let cause = self.state.cause.lock();
        let cause = cause.as_deref()?;
        Some(format!("not connected to {}: {cause}", self.state.server))
    }

    /// Sends a batch.
    pub(super) fn ask(&self, batch: Batch) -> Result<Pending, Failure> {
        let epoch = self.state.epoch.load(Ordering::Acquire);
        let waiting = self.state.waiting.load(Ordering::Relaxed);
        if epoch == 0 {
            return Err(Failure::Away);
        }
        if waiting + batch.count > MOST_COMMANDS {
            return Err(Failure::Said(Cow::Borrowed(
                "too many commands wait for replies",
            )));
        }
        let (answer, pending) = oneshot::channel();
        self.send(batch, epoch, Some(answer));
        Ok(Pending(pending))
    }

    /// Sends a batch whose replies nobody needs.
    pub(super) fn tell(&self, batch: Batch) {
        let epoch = self.state.epoch.load(Ordering::Acquire);
        if epoch != 0 && batch.count > 0 {
            self.send(batch, epoch, None);
        }
    }

    fn send(
        &self,
        batch: Batch,
        epoch: u64,
        answer: Option<oneshot::Sender<Result<Replies, Failure>>>,
    ) {
        // Where the task has ended, the job is dropped, and whoever waits learns it.
        let _ = self.queue.send(self.job(batch, epoch, answer));
    }

    /// What takes back has no bound of its own: it comes after replies, and what they answer has one.
    pub(super) fn job(
        &self,
        batch: Batch,
        epoch: u64,
        answer: Option<oneshot::Sender<Result<Replies, Failure>>>,
    ) -> Job {
        self.state.waiting.fetch_add(batch.count, Ordering::Relaxed);
        Job {
            waits: batch.count,
            batch,
            epoch,
            replies: Vec::new(),
            answer,
            link: self.clone(),
        }
    }
}

/// Why a connection has ended.
enum Ended {
    /// Nobody needs it any more.
    Closed,
    /// It broke.
    Broken(String),
    /// The server may still execute what was sent.
    GivenUp(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Broken(error.to_string())
    }
}

async fn run(state: Arc<State>, mut jobs: UnboundedReceiver<Job>) {
    let (mut pause, mut epoch) = (PAUSE[0], 0);
    loop {
        let cause = match timeout(PATIENCE, greet(&state.server)).await {
            Ok(Ok(stream)) => {
                epoch += 1;
                pause = PAUSE[0];
                *state.cause.lock() = None;
                state.epoch.store(epoch, Ordering::Release);
                let (back, backs) = unbounded_channel();
                let mut traffic = Traffic::new(stream, backs);
                let ended = serve(&mut traffic, &state, &mut jobs, (epoch, back)).await;
                state.epoch.store(0, Ordering::Release);
                match ended {
                    Ended::Closed => return,
                    Ended::Broken(cause) => cause,
                    Ended::GivenUp(cause) => {
                        retired::settle(traffic, &state.retired);
                        cause
                    }
                }
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        tracing::debug!(server = state.server, cause, "no connection to memcached");
        *state.cause.lock() = Some(cause);
        if !rest(jittered(pause), &mut jobs).await {
            return;
        }
        pause = (pause * 2).min(PAUSE[1]);
    }
}

/// Waits, and answers whoever asks meanwhile; whether anybody still can.
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

/// From all of it to one and a half: gateways that lost a server together do not come back together.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 4];
    // Without random bytes they do come back together.
    let _ = getrandom::fill(&mut random);
    pause + pause / 2 * (u32::from_le_bytes(random) % 1_000) / 1_000
}

/// Connects, and waits until the server answers: the system may connect for one that stands still.
async fn greet(server: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    stream.write_all(b"mn\r\n").await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    match &answer {
        b"MN\r\n" => Ok(stream),
        _ => Err(io::Error::other(
            "it does not speak the meta protocol (memcached 1.6)",
        )),
    }
}

/// A connection, and what is on its way over it.
pub(super) struct Traffic {
    pub(super) stream: TcpStream,
    pub(super) output: BytesMut,
    pub(super) input: BytesMut,
    /// Batches whose replies have not all come, oldest first.
    pub(super) flight: VecDeque<Job>,
    /// What takes back, of whoever has replies of this connection.
    pub(super) backs: UnboundedReceiver<Job>,
}

impl Traffic {
    fn new(stream: TcpStream, backs: UnboundedReceiver<Job>) -> Traffic {
        Traffic {
            stream,
            backs,
            output: BytesMut::new(),
            input: BytesMut::with_capacity(4_096),
            flight: VecDeque::new(),
        }
    }

    pub(super) fn queue(&mut self, job: Job) {
        self.output.extend_from_slice(&job.batch.text);
        self.flight.push_back(job);
    }
}

/// Sends and reads until something ends it.
async fn serve(
    traffic: &mut Traffic,
    state: &State,
    jobs: &mut UnboundedReceiver<Job>,
    (epoch, back): (u64, UnboundedSender<Job>),
) -> Ended {
    let mut ticks = interval(PATIENCE / 2);
    let mut silent = 0;
    loop {
        let (mut reader, mut writer) = traffic.stream.split();
        let (output, input) = (&mut traffic.output, &mut traffic.input);
        tokio::select! {
            job = jobs.recv() => {
                let Some(mut job) = job else { return Ended::Closed };
                loop {
                    // Who took back before asking again is to find room.
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
                Ok(0) => return Ended::Broken("it has closed".to_owned()),
                Ok(_) => {
                    silent = 0;
                    if let Err(cause) = answer(input, &mut traffic.flight, |job| finish(job, &back)) {
                        return Ended::Broken(cause);
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
                    return Ended::GivenUp("it stands still".to_owned());
                }
            }
            () = state.again.notified() => return Ended::GivenUp("given up".to_owned()),
        }
    }
}

/// Hands on the replies that are whole.
pub(super) fn answer(
    input: &mut BytesMut,
    flight: &mut VecDeque<Job>,
    mut finish: impl FnMut(Job),
) -> Result<(), String> {
    while let Some(job) = flight.front_mut() {
        let parsed = match wire::next(input) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Ok(()),
            Err(cause) => return Err(failed(flight, cause)),
        };
        let first = job.replies.is_empty();
        let known = matches!(parsed.reply, Reply::Refused(_)) && parsed.opaque.is_none();
        if first && !known && parsed.opaque != Some(job.batch.opaque) {
            return Err(failed(flight, "a reply to another command".to_owned()));
        }
        job.replies.push(parsed.reply);
        if job.replies.len() == job.batch.count
            && let Some(job) = flight.pop_front()
        {
            finish(job);
        }
    }
    match input.has_remaining() {
        true => Err("a reply that nobody asked for".to_owned()),
        false => Ok(()),
    }
}

/// Tells whoever waits for the next reply what is wrong.
fn failed(flight: &mut VecDeque<Job>, cause: String) -> String {
    let waits = flight.front_mut().and_then(|job| job.answer.take());
    if let Some(answer) = waits {
        // Nobody may wait any more.
        let _ = answer.send(Err(Failure::Said(Cow::Owned(cause.clone()))));
    }
    cause
}

fn finish(mut job: Job, back: &UnboundedSender<Job>) {
    let Some(answer) = job.answer.take() else {
        return;
    };
    let replies = std::mem::take(&mut job.replies);
    let replies = Replies::new(&job.batch, replies, back.clone(), job.link.clone());
    // Where nobody waits, they are dropped, and that takes back what was counted.
    let _ = answer.send(Ok(replies));
}
