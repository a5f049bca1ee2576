//! Bounds the memory of messages that have not come whole or are not decided yet. Each connection has a bound, and so have all
//! connections of a worker together.
//!
//! The first bytes of each message are free, so that the calls of ordinary clients pass while those of others fill the
//! memory. The number of calls of a connection bounds the sum of these.

use std::cell::Cell;
use std::rc::Rc;

/// Bytes of each message that are not charged.
pub const FREE_BYTES: usize = 1024;
/// Maximum charged bytes of a connection.
const MAX_CONNECTION_BYTES: usize = 4 * 1024 * 1024;
/// Maximum charged bytes of all connections of a worker.
const MAX_WORKER_BYTES: usize = 32 * 1024 * 1024;

/// The bytes that are charged for all connections of a worker.
#[derive(Debug, Default)]
pub struct WorkerMessageMemory {
    charged_bytes: Cell<usize>,
}

/// The bytes that are charged for one connection.
#[derive(Debug, Default)]
pub struct MessageMemory {
    charged_bytes: Cell<usize>,
    worker: Rc<WorkerMessageMemory>,
}

/// The memory of one message, charged until this value is dropped.
#[derive(Debug, Default)]
pub struct MessageCharge {
    memory: Rc<MessageMemory>,
    bytes: usize,
}

impl MessageMemory {
    /// The memory of a new connection of this worker.
    pub fn of_connection(worker: &Rc<WorkerMessageMemory>) -> Rc<MessageMemory> {
        Rc::new(MessageMemory {
            charged_bytes: Cell::new(0),
            worker: worker.clone(),
        })
    }

    /// Charges more bytes; `false` without a charge if there is no room for them.
    ///
    /// A connection may have at most half of what no connection has. So it takes many connections to fill the memory, and
    /// messages within [`FREE_BYTES`] pass even then.
    fn charge(&self, bytes: usize) -> bool {
        let of_worker = self.worker.charged_bytes.get();
        let free_bytes = MAX_WORKER_BYTES.saturating_sub(of_worker);
        let of_connection = self.charged_bytes.get() + bytes;
        if of_connection > MAX_CONNECTION_BYTES.min(free_bytes / 2) {
            return false;
        }
        self.charged_bytes.set(of_connection);
        self.worker.charged_bytes.set(of_worker + bytes);
        true
    }
}

impl MessageCharge {
    /// The charge of a new message of this connection.
    pub fn new(memory: Rc<MessageMemory>) -> MessageCharge {
        MessageCharge { memory, bytes: 0 }
    }

    /// Charges a message that holds so many bytes now; `false` without a change if there is no room for them.
    #[must_use]
    pub fn grow_to(&mut self, message_bytes: usize) -> bool {
        let bytes = message_bytes.saturating_sub(FREE_BYTES);
        let more_bytes = bytes.saturating_sub(self.bytes);
        let has_room = more_bytes == 0 || self.memory.charge(more_bytes);
        if has_room {
            self.bytes += more_bytes;
        }
        has_room
    }
}

impl Drop for MessageCharge {
    fn drop(&mut self) {
        let MessageMemory {
            charged_bytes,
            worker,
        } = &*self.memory;
        for charged_bytes in [charged_bytes, &worker.charged_bytes] {
            charged_bytes.update(|bytes| bytes.saturating_sub(self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE_BYTES: usize = 64 * 1024;

    /// Charges as many large messages as there is room for.
    fn fill(memory: &Rc<MessageMemory>) -> Vec<MessageCharge> {
        let charges = std::iter::repeat_with(|| {
            let mut charge = MessageCharge::new(memory.clone());
            charge.grow_to(MESSAGE_BYTES).then_some(charge)
        });
        charges.map_while(|charge| charge).collect()
    }

    #[test]
    fn the_messages_of_a_connection_have_a_bound() {
        let worker = Rc::default();
        let memory = MessageMemory::of_connection(&worker);
        let held = fill(&memory);
        let bytes_each = MESSAGE_BYTES - FREE_BYTES;
        assert_eq!(held.len(), MAX_CONNECTION_BYTES / bytes_each);
        let mut small = MessageCharge::new(memory.clone());
        assert!(small.grow_to(FREE_BYTES));
        assert!(!small.grow_to(MESSAGE_BYTES));
        drop(held);
        assert_eq!(worker.charged_bytes.get(), 0);
        assert!(small.grow_to(MESSAGE_BYTES) && small.grow_to(10));
        assert_eq!(memory.charged_bytes.get(), bytes_each);
    }

    #[test]
    fn it_takes_many_connections_to_fill_the_memory() {
        let worker = Rc::default();
        let mut held = Vec::new();
        for _ in 0..100 {
            held.push(fill(&MessageMemory::of_connection(&worker)));
        }
        assert!(worker.charged_bytes.get() < MAX_WORKER_BYTES);
        assert!(!held[15].is_empty());
        let mut small = MessageCharge::new(MessageMemory::of_connection(&worker));
        assert!(small.grow_to(FREE_BYTES));
        drop(held);
        assert_eq!(worker.charged_bytes.get(), 0);
    }
}
