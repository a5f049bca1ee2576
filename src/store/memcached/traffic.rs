//! [`LinkTraffic`]: one connection, with the bytes to send, the bytes read, and the batches whose replies have not come.
//! Replies are matched to batches by their order, and each batch's first reply is checked by its number. Nothing here
//! reads or writes the socket. The commands of a link's calls are bounded: see `LinkShared::awaited_commands`.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::{Buf, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;

use super::link::PendingBatch;
use super::wire::{self, MetaReply, ReplyError};
use crate::store::shared::call::StoreError;

/// Initial capacity of a connection's input, in bytes.
const INPUT_CAPACITY: usize = 4_096;

/// A connection and the batches under way over it.
pub(super) struct LinkTraffic {
    pub(super) stream: TcpStream,
    /// Bytes of queued batches that are not yet written.
    pub(super) output: BytesMut,
    /// Bytes that were read and are not yet parsed.
    pub(super) input: BytesMut,
    /// Batches whose replies have not all come, oldest first.
    pub(super) in_flight: VecDeque<PendingBatch>,
    /// The queue of batches that give back units which this connection has counted.
    pub(super) give_backs: UnboundedReceiver<PendingBatch>,
}

impl LinkTraffic {
    pub(super) fn new(
        stream: TcpStream,
        give_backs: UnboundedReceiver<PendingBatch>,
    ) -> LinkTraffic {
        LinkTraffic {
            stream,
            give_backs,
            output: BytesMut::new(),
            input: BytesMut::with_capacity(INPUT_CAPACITY),
            in_flight: VecDeque::new(),
        }
    }

    /// Adds a batch to the output and to those in flight.
    pub(super) fn enqueue(&mut self, batch: PendingBatch) {
        self.output.extend_from_slice(&batch.commands.bytes);
        self.in_flight.push_back(batch);
    }
}

/// Takes complete replies from `input`, and calls `finish` with each batch that has all of its replies.
///
/// # Errors
///
/// [`ReplyError`] where the input is not the next reply, or where no batch awaits one. The call that waits for the next
/// reply, if there is one, gets the cause, too.
pub(super) fn deliver_replies(
    input: &mut BytesMut,
    in_flight: &mut VecDeque<PendingBatch>,
    mut finish: impl FnMut(PendingBatch),
) -> Result<(), ReplyError> {
    while let Some(batch) = in_flight.front_mut() {
        let parsed = match wire::parse_reply(input) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Ok(()),
            Err(cause) => return Err(fail_oldest_call(in_flight, cause)),
        };
        let is_first = batch.replies.is_empty();
        // A server's error carries no number.
        let may_lack_number =
            matches!(parsed.reply, MetaReply::ServerError(_)) && parsed.opaque.is_none();
        if is_first && !may_lack_number && parsed.opaque != Some(batch.commands.opaque) {
            return Err(fail_oldest_call(in_flight, ReplyError::OtherBatch));
        }
        batch.replies.push(parsed.reply);
        if batch.replies.len() == batch.commands.command_count
            && let Some(batch) = in_flight.pop_front()
        {
            finish(batch);
        }
    }
    match input.has_remaining() {
        true => Err(ReplyError::UnexpectedReply),
        false => Ok(()),
    }
}

/// Sends the cause to the call that waits for the oldest batch, and returns it.
fn fail_oldest_call(in_flight: &mut VecDeque<PendingBatch>, cause: ReplyError) -> ReplyError {
    let oldest = in_flight.front_mut();
    if let Some(sender) = oldest.and_then(|batch| batch.reply_sender.take()) {
        // The call may be abandoned.
        let _ = sender.send(Err(StoreError::Other(Cow::Owned(cause.to_string()))));
    }
    cause
}
