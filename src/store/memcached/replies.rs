//! What a server said to a batch. What it counted and nobody keeps is taken back when that is dropped.

use std::borrow::Cow;

use tokio::sync::mpsc::UnboundedSender;

use super::link::{Job, Link};
use super::wire::{self, Add, Batch, Reply};
use crate::store::shared::call::Failure;

/// See the module.
pub(super) struct Replies {
    replies: Vec<Reply>,
    /// What was counted and is not kept.
    adds: Vec<Add>,
    /// Where it is taken back: over the connection that counted it, also when that is given up meanwhile.
    backs: UnboundedSender<Job>,
    link: Link,
}

impl Replies {
    /// The replies to `batch`, whose takings go back over `backs`.
    pub(super) fn new(
        batch: &Batch,
        replies: Vec<Reply>,
        backs: UnboundedSender<Job>,
        link: Link,
    ) -> Replies {
        Replies {
            adds: counted(batch, &replies).cloned().collect(),
            replies,
            backs,
            link,
        }
    }

    /// What was said to one command.
    pub(super) fn get(&self, place: usize) -> Option<&Reply> {
        self.replies.get(place)
    }

    /// The count that one command was answered with, zero where there is none.
    pub(super) fn count(&self, place: usize) -> Result<u64, Failure> {
        match self.get(place) {
            Some(Reply::Value { bytes, .. }) => {
                wire::count(bytes).ok_or(Failure::Said(Cow::Borrowed("a bucket holds no number")))
            }
            Some(Reply::Missing) => Ok(0),
            other => Err(unexpected(other)),
        }
    }

    /// Keeps so many units of what the command at `place` counted.
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
            // Where the connection has broken, what it counted is lost.
            let _ = self.backs.send(self.link.job(batch, 0, None));
        }
    }
}

/// A reply that does not belong to its command.
pub(super) fn unexpected(reply: Option<&Reply>) -> Failure {
    Failure::Said(match reply {
        Some(Reply::Refused(text)) => Cow::Owned(text.clone()),
        _ => Cow::Borrowed("a reply is of another kind than asked for"),
    })
}

/// What the server did count and is not to be kept anyhow.
pub(super) fn counted<'a>(batch: &'a Batch, replies: &'a [Reply]) -> impl Iterator<Item = &'a Add> {
    let noted = batch.noted.and_then(|place| replies.get(place)) == Some(&Reply::Done);
    let value =
        move |add: &&Add| !noted && matches!(replies.get(add.place), Some(Reply::Value { .. }));
    batch.adds.iter().filter(value)
}
