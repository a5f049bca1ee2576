//! [`MemcachedLink`]: a worker's link to one memcached server, with one connection that is replaced whenever it breaks.
//! Batches are pipelined: each is sent without waiting for earlier replies, which come in the order of the batches.
//!
//! Units that an abandoned call has counted are given back, whether its replies have come or not: dropping [`Replies`]
//! gives them back. A server that hung executes the commands in its socket once it continues. So a connection that is
//! given up is still read, within the bounds of [`super::retired`].
//!
//! Where a connection ends before the give-back is executed, unused units count until they leave their window.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::wire::{self, CommandBatch, Increment, MetaReply};
use crate::store::shared::call::StoreError;

/// The most commands of a link whose replies have not come. [`MemcachedLink::send_batch`] refuses more, so that a server
/// that hangs does not fill the memory.
const MAX_AWAITED_COMMANDS: usize = 16_384;

/// A handle to the link. Clones share the connection, which a task of its own serves.
#[derive(Clone)]
pub(super) struct MemcachedLink {
    pub(super) shared: Arc<LinkShared>,
    queue: UnboundedSender<PendingBatch>,
}

/// What the handles of a link share with its task.
pub(super) struct LinkShared {
    /// The server as `host:port`.
    pub(super) server: String,
    /// The number of the current connection, from 1; 0 while there is none. It is stored with a release once the connection
    /// is up, and loaded with an acquire.
    pub(super) connection_number: AtomicU64,
    /// The number of commands whose replies have not come, without those of connections that were given up. It serves
    /// the bound [`MAX_AWAITED_COMMANDS`] alone, so relaxed ordering suffices.
    pub(super) awaited_commands: AtomicUsize,
    /// The [`CommandBatch::opaque`] of the next batch.
    pub(super) next_opaque: AtomicU32,
    /// Whether the task was started.
    pub(super) is_started: AtomicBool,
    /// Why there is no connection, as text for logs; `None` while there is one, and before the first attempt has ended.
    pub(super) disconnect_cause: Mutex<Option<String>>,
    /// Orders the task to give up its connection for a new one.
    pub(super) reconnect: Notify,
    /// The number of connections that were given up and are still read: see [`super::retired`].
    pub(super) retired_connections: Arc<AtomicUsize>,
    /// The receiving end of the queue, until the task starts and takes it.
    pub(super) queue_receiver: Mutex<Option<UnboundedReceiver<PendingBatch>>>,
}

/// Receives the replies to one batch.
type ReplySender = oneshot::Sender<Result<Replies, StoreError>>;

/// A batch that is queued or sent, and whose replies have not all come.
pub(super) struct PendingBatch {
    pub(super) commands: CommandBatch,
    /// The [`LinkShared::connection_number`] when the batch was queued: no other connection may send it. Means nothing
    /// for a batch that gives units back, because that one reaches its connection without the link's queue.
    pub(super) connection_number: u64,
    /// The replies that have come, in the order of the commands.
    pub(super) replies: Vec<MetaReply>,
    /// Sends the replies to the call that waits for them; `None` where no call waits.
    pub(super) reply_sender: Option<ReplySender>,
    /// The link of the batch, for batches that give its units back.
    pub(super) link: MemcachedLink,
    /// The batch's part of [`LinkShared::awaited_commands`].
    pub(super) awaited_commands: usize,
}

impl PendingBatch {
    /// Ends the call's wait for the replies, if there is one, with [`StoreError::NotConnected`]. The commands no longer
    /// count in [`LinkShared::awaited_commands`].
    pub(super) fn stop_waiting(&mut self) {
        self.reply_sender = None;
        let command_count = std::mem::take(&mut self.awaited_commands);
        let awaited_commands = &self.link.shared.awaited_commands;
        awaited_commands.fetch_sub(command_count, Ordering::Relaxed);
    }

    /// The batch that gives back all units that this one has counted by its replies; `None` if it has counted none, or if
    /// its increments are final.
    pub(super) fn give_back_batch(&self) -> Option<PendingBatch> {
        let mut batch = self.link.new_batch();
        for increment in executed_increments(&self.commands, &self.replies) {
            batch.decrement(&increment.key, increment.units);
        }
        (batch.command_count > 0).then(|| PendingBatch {
            commands: batch,
            connection_number: self.connection_number,
            replies: Vec::new(),
            reply_sender: None,
            link: self.link.clone(),
            awaited_commands: 0,
        })
    }
}

impl Drop for PendingBatch {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}

/// The replies to a batch that was sent.
pub(super) struct PendingReplies(oneshot::Receiver<Result<Replies, StoreError>>);

impl PendingReplies {
    /// Waits for all replies of the batch.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotConnected`] if the connection ends or is given up first. [`StoreError::Other`] if the next reply
    /// on the connection is malformed or belongs to another batch.
    pub(super) async fn wait(self) -> Result<Replies, StoreError> {
        self.0.await.unwrap_or(Err(StoreError::NotConnected))
    }
}

impl MemcachedLink {
    pub(super) fn new(server: &str) -> MemcachedLink {
        let (queue, queue_receiver) = unbounded_channel();
        let shared = LinkShared {
            server: server.to_owned(),
            connection_number: AtomicU64::new(0),
            awaited_commands: AtomicUsize::new(0),
            next_opaque: AtomicU32::new(0),
            is_started: AtomicBool::new(false),
            disconnect_cause: Mutex::new(None),
            reconnect: Notify::new(),
            retired_connections: Arc::default(),
            queue_receiver: Mutex::new(Some(queue_receiver)),
        };
        MemcachedLink {
            shared: Arc::new(shared),
            queue,
        }
    }

    /// Gives up the connection, if there is one, for a new one.
    pub(super) fn reconnect(&self) {
        if self.is_connected() {
            self.shared.reconnect.notify_one();
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.shared.connection_number.load(Ordering::Acquire) != 0
    }

    /// An empty batch with the next number.
    pub(super) fn new_batch(&self) -> CommandBatch {
        CommandBatch::new(self.shared.next_opaque.fetch_add(1, Ordering::Relaxed))
    }

    /// [`LinkShared::disconnect_cause`] with the name of the server.
    pub(super) fn disconnect_cause(&self) -> Option<String> {
        let cause = self.shared.disconnect_cause.lock();
        let cause = cause.as_deref()?;
        Some(format!("not connected to {}: {cause}", self.shared.server))
    }

    /// Queues a batch whose replies the caller waits for.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotConnected`] without a connection; [`StoreError::Other`] where [`MAX_AWAITED_COMMANDS`] would be
    /// exceeded.
    pub(super) fn send_batch(&self, batch: CommandBatch) -> Result<PendingReplies, StoreError> {
        let connection_number = self.shared.connection_number.load(Ordering::Acquire);
        let awaited_commands = self.shared.awaited_commands.load(Ordering::Relaxed);
        if connection_number == 0 {
            return Err(StoreError::NotConnected);
        }
        if awaited_commands + batch.command_count > MAX_AWAITED_COMMANDS {
            return Err(StoreError::Other(Cow::Borrowed(
                "too many commands wait for replies",
            )));
        }
        let (reply_sender, pending) = oneshot::channel();
        self.enqueue(batch, connection_number, Some(reply_sender));
        Ok(PendingReplies(pending))
    }

    /// Queues a batch whose replies are ignored. An empty batch is dropped, and so is any batch without a connection.
    pub(super) fn send_and_forget(&self, batch: CommandBatch) {
        let connection_number = self.shared.connection_number.load(Ordering::Acquire);
        if connection_number != 0 && batch.command_count > 0 {
            self.enqueue(batch, connection_number, None);
        }
    }

    fn enqueue(
        &self,
        batch: CommandBatch,
        connection_number: u64,
        reply_sender: Option<ReplySender>,
    ) {
        // If the task has ended, the batch is dropped at once, which ends the wait for its replies.
        let _ = self
            .queue
            .send(self.pending_batch(batch, connection_number, reply_sender));
    }

    /// Wraps a batch, and adds its commands to [`LinkShared::awaited_commands`] without a check. Batches that give units
    /// back need no bound of their own: each has at most one command for each increment that was bounded.
    fn pending_batch(
        &self,
        batch: CommandBatch,
        connection_number: u64,
        reply_sender: Option<ReplySender>,
    ) -> PendingBatch {
        let awaited_commands = &self.shared.awaited_commands;
        awaited_commands.fetch_add(batch.command_count, Ordering::Relaxed);
        PendingBatch {
            awaited_commands: batch.command_count,
            commands: batch,
            connection_number,
            replies: Vec::new(),
            reply_sender,
            link: self.clone(),
        }
    }
}

/// The replies to a batch. Dropping them gives back the units that were counted and not [kept](Replies::keep_units).
pub(super) struct Replies {
    replies: Vec<MetaReply>,
    /// The executed increments, with the units that are not kept. Empty if the batch's report was stored: see
    /// [`CommandBatch::report_index`].
    increments: Vec<Increment>,
    /// The queue of the connection that counted the units, even if that connection has been given up since.
    give_backs: UnboundedSender<PendingBatch>,
    link: MemcachedLink,
}

impl Replies {
    /// The replies to `batch`, whose unused units are given back over `give_backs`.
    pub(super) fn new(
        batch: &CommandBatch,
        replies: Vec<MetaReply>,
        give_backs: UnboundedSender<PendingBatch>,
        link: MemcachedLink,
    ) -> Replies {
        Replies {
            increments: executed_increments(batch, &replies).cloned().collect(),
            replies,
            give_backs,
            link,
        }
    }

    /// The reply to the command with this index; `None` if the batch has fewer commands.
    pub(super) fn get(&self, index: usize) -> Option<&MetaReply> {
        self.replies.get(index)
    }

    /// The count in the reply to the command with this index; zero where the item is missing.
    ///
    /// # Errors
    ///
    /// Where the reply is of another kind, or the item holds no number.
    pub(super) fn count(&self, index: usize) -> Result<u64, StoreError> {
        match self.get(index) {
            Some(MetaReply::Value { bytes, .. }) => wire::parse_count(bytes).ok_or(
                StoreError::Other(Cow::Borrowed("a bucket does not hold a number")),
            ),
            Some(MetaReply::Missing) => Ok(0),
            other => Err(unexpected_reply(other)),
        }
    }

    /// Keeps `units` of the units that the command with this index has counted.
    pub(super) fn keep_units(&mut self, index: usize, units: u32) {
        let increments = self.increments.iter_mut();
        for increment in increments.filter(|increment| increment.reply_index == index) {
            increment.units = increment.units.saturating_sub(units);
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let mut batch = self.link.new_batch();
        for increment in &self.increments {
            if increment.units > 0 {
                batch.decrement(&increment.key, increment.units);
            }
        }
        if batch.command_count > 0 {
            // If the connection has ended, the send fails, and the units count until they leave their window.
            let give_back = self.link.pending_batch(batch, 0, None);
            let _ = self.give_backs.send(give_back);
        }
    }
}

/// The error for a reply of a kind that its command cannot have, or for a missing one (`None`). It has the text of a
/// server's error.
pub(super) fn unexpected_reply(reply: Option<&MetaReply>) -> StoreError {
    StoreError::Other(match reply {
        Some(MetaReply::ServerError(text)) => Cow::Owned(text.clone()),
        _ => Cow::Borrowed("a reply is of the wrong kind"),
    })
}

/// The increments that the server has executed; none where the batch's report was stored, which makes them final.
fn executed_increments<'a>(
    batch: &'a CommandBatch,
    replies: &'a [MetaReply],
) -> impl Iterator<Item = &'a Increment> {
    let report = batch.report_index.and_then(|index| replies.get(index));
    let is_final = report == Some(&MetaReply::Done);
    let is_executed = move |increment: &&Increment| {
        let reply = replies.get(increment.reply_index);
        !is_final && matches!(reply, Some(MetaReply::Value { .. }))
    };
    batch.increments.iter().filter(is_executed)
}
