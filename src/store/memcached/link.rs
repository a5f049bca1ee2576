//! A worker's link to a server: one connection, made anew whenever it breaks. Batches are sent without waiting for the
//! replies before them, which come in the same order.
//!
//! Units counted for an abandoned call are taken back, whether its replies have come or not: dropping [`Replies`] does it.
//! A server that hangs executes the commands in its socket when it continues, so a connection that is given up is read to
//! the end: see [`super::retired`]. Only where a connection breaks before its replies, unused units count until they leave
//! their window.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::wire::{self, Add, CommandBatch, MetaReply};
use crate::store::shared::call::StoreError;

/// Most commands whose replies have not come.
const MOST_COMMANDS: usize = 16_384;

/// See the module.
#[derive(Clone)]
pub(super) struct MemcachedLink {
    pub(super) state: Arc<LinkShared>,
    queue: UnboundedSender<Job>,
}

/// What a link shares with its task.
pub(super) struct LinkShared {
    pub(super) server: String,
    /// Number of the connection; zero while there is none.
    pub(super) epoch: AtomicU64,
    /// Commands whose replies have not come.
    pub(super) waiting: AtomicUsize,
    /// Numbers batches.
    pub(super) number: AtomicU32,
    pub(super) begun: AtomicBool,
    /// Why there is no connection.
    pub(super) cause: Mutex<Option<String>>,
    pub(super) again: Notify,
    /// Connections that were given up and are read to the end.
    pub(super) retired: Arc<AtomicUsize>,
    /// The queue's other end, until the task starts.
    pub(super) jobs: Mutex<Option<UnboundedReceiver<Job>>>,
}

/// A batch on its way.
pub(super) struct Job {
    pub(super) batch: CommandBatch,
    /// The number of its connection; zero where it comes through that connection's own queue.
    pub(super) epoch: u64,
    pub(super) replies: Vec<MetaReply>,
    pub(super) answer: Option<oneshot::Sender<Result<Replies, StoreError>>>,
    pub(super) link: MemcachedLink,
    /// Commands that it counts for in [`LinkShared::waiting`].
    pub(super) waits: usize,
}

impl Job {
    /// Ends the wait for the replies, because the connection is given up.
    pub(super) fn retire(&mut self) {
        self.answer = None;
        let waits = std::mem::take(&mut self.waits);
        self.link.state.waiting.fetch_sub(waits, Ordering::Relaxed);
    }

    /// The job that takes back all units that this one counted, if there are any.
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
pub(super) struct PendingReplies(oneshot::Receiver<Result<Replies, StoreError>>);

impl PendingReplies {
    pub(super) async fn replies(self) -> Result<Replies, StoreError> {
        self.0.await.unwrap_or(Err(StoreError::NotConnected))
    }
}

impl MemcachedLink {
    pub(super) fn new(server: &str) -> MemcachedLink {
        let (queue, jobs) = unbounded_channel();
        let state = LinkShared {
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
        MemcachedLink {
            state: Arc::new(state),
            queue,
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
    pub(super) fn batch(&self) -> CommandBatch {
        CommandBatch::new(self.state.number.fetch_add(1, Ordering::Relaxed))
    }

    /// Why there is no connection, as text for logs.
    pub(super) fn cause(&self) -> Option<String> {
        let cause = self.state.cause.lock();
        let cause = cause.as_deref()?;
        Some(format!("not connected to {}: {cause}", self.state.server))
    }

    /// Sends a batch.
    pub(super) fn ask(&self, batch: CommandBatch) -> Result<PendingReplies, StoreError> {
        let epoch = self.state.epoch.load(Ordering::Acquire);
        let waiting = self.state.waiting.load(Ordering::Relaxed);
        if epoch == 0 {
            return Err(StoreError::NotConnected);
        }
        if waiting + batch.count > MOST_COMMANDS {
            return Err(StoreError::Other(Cow::Borrowed(
                "too many commands wait for replies",
            )));
        }
        let (answer, pending) = oneshot::channel();
        self.send(batch, epoch, Some(answer));
        Ok(PendingReplies(pending))
    }

    /// Sends a batch whose replies are not needed.
    pub(super) fn tell(&self, batch: CommandBatch) {
        let epoch = self.state.epoch.load(Ordering::Acquire);
        if epoch != 0 && batch.count > 0 {
            self.send(batch, epoch, None);
        }
    }

    fn send(
        &self,
        batch: CommandBatch,
        epoch: u64,
        answer: Option<oneshot::Sender<Result<Replies, StoreError>>>,
    ) {
        // Where the task has ended, the job is dropped, which ends the wait for its replies.
        let _ = self.queue.send(self.job(batch, epoch, answer));
    }

    /// A job that takes units back needs no bound: it follows replies, and their commands are bounded.
    pub(super) fn job(
        &self,
        batch: CommandBatch,
        epoch: u64,
        answer: Option<oneshot::Sender<Result<Replies, StoreError>>>,
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

/// The replies to a batch. Dropping them takes back the units that were counted and not [kept](Replies::keep).
pub(super) struct Replies {
    replies: Vec<MetaReply>,
    /// Units that were counted and are not kept.
    adds: Vec<Add>,
    /// The queue of the connection that counted them, also where that is given up meanwhile.
    backs: UnboundedSender<Job>,
    link: MemcachedLink,
}

impl Replies {
    /// The replies to `batch`, whose takings go back over `backs`.
    pub(super) fn new(
        batch: &CommandBatch,
        replies: Vec<MetaReply>,
        backs: UnboundedSender<Job>,
        link: MemcachedLink,
    ) -> Replies {
        Replies {
            adds: counted(batch, &replies).cloned().collect(),
            replies,
            backs,
            link,
        }
    }

    /// The reply to one command.
    pub(super) fn get(&self, place: usize) -> Option<&MetaReply> {
        self.replies.get(place)
    }

    /// The count in the reply to one command, zero where the item is missing.
    pub(super) fn count(&self, place: usize) -> Result<u64, StoreError> {
        match self.get(place) {
            Some(MetaReply::Value { bytes, .. }) => wire::count(bytes).ok_or(StoreError::Other(
                Cow::Borrowed("a bucket does not hold a number"),
            )),
            Some(MetaReply::Missing) => Ok(0),
            other => Err(unexpected(other)),
        }
    }

    /// Keeps `units` of those that the command at `place` counted.
    pub(super) fn keep(&mut self, place: usize, units: u32) {
        for add in self.adds.iter_mut().filter(|add| add.place == place) {
            add.units = add.units.saturating_sub(units);
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let mut batch = self.link.batch();
        for add in self.adds.iter().filter(|add| add.units > 0) {
            batch.give(&add.key, add.units);
        }
        if batch.count > 0 {
            // Where the connection has broken, the units count until they leave their window.
            let _ = self.backs.send(self.link.job(batch, 0, None));
        }
    }
}

/// A reply that does not belong to its command.
pub(super) fn unexpected(reply: Option<&MetaReply>) -> StoreError {
    StoreError::Other(match reply {
        Some(MetaReply::Refused(text)) => Cow::Owned(text.clone()),
        _ => Cow::Borrowed("a reply is of the wrong kind"),
    })
}

/// The increments that the server did, except in a batch whose report was stored.
pub(super) fn counted<'a>(
    batch: &'a CommandBatch,
    replies: &'a [MetaReply],
) -> impl Iterator<Item = &'a Add> {
    let noted = batch.noted.and_then(|place| replies.get(place)) == Some(&MetaReply::Done);
    let value =
        move |add: &&Add| !noted && matches!(replies.get(add.place), Some(MetaReply::Value { .. }));
    batch.adds.iter().filter(value)
}
