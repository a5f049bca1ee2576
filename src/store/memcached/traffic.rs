//! One connection, and the batches under way over it; replies come in the same order.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::{Buf, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;

use super::link::Job;
use super::wire::{self, MetaReply};
use crate::store::shared::call::StoreError;

/// A connection, and the batches under way over it.
pub(super) struct LinkTraffic {
    pub(super) stream: TcpStream,
    pub(super) output: BytesMut,
    pub(super) input: BytesMut,
    /// Batches whose replies have not all come, oldest first.
    pub(super) flight: VecDeque<Job>,
    /// Jobs that take units back which this connection counted.
    pub(super) backs: UnboundedReceiver<Job>,
}

impl LinkTraffic {
    pub(super) fn new(stream: TcpStream, backs: UnboundedReceiver<Job>) -> LinkTraffic {
        LinkTraffic {
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

/// Hands on the replies that are complete.
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
        let known = matches!(parsed.reply, MetaReply::Refused(_)) && parsed.opaque.is_none();
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
        true => Err("an unexpected reply".to_owned()),
        false => Ok(()),
    }
}

/// Sends the cause to the call that waits for the next reply.
fn failed(flight: &mut VecDeque<Job>, cause: String) -> String {
    let waits = flight.front_mut().and_then(|job| job.answer.take());
    if let Some(answer) = waits {
        // The call may be abandoned.
        let _ = answer.send(Err(StoreError::Other(Cow::Owned(cause.clone()))));
    }
    cause
}
