//! Sends the complete messages of several connections together, at the end of a worker's turn. In a turn the worker
//! runs each task that is ready.
//!
//! The kernel's largest cost of a message is to wake the process that receives it. If several messages are sent to one
//! process right after each other, only the first one has this cost. Each connection decides which of its messages may
//! wait. With [`YieldToOthers`], its task can also give other connections their turn first.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A connection whose message waits to be sent.
pub trait DeferredFlush {
    /// Sends the waiting message. If the socket does not take all of it, or fails, the connection's own task is woken.
    /// The task sends the remainder or closes the connection.
    fn flush_deferred(&self, cx: &mut Context<'_>);

    /// Called when `flush_deferred` panicked. Wakes the connection's own task, which closes the connection.
    fn mark_broken(&self);
}

/// The connections of one worker whose messages wait. Each turn of the worker empties the queue, which bounds it.
#[derive(Default)]
pub struct FlushQueue {
    connections: RefCell<Vec<Rc<dyn DeferredFlush>>>,
    /// Wakes the task of [`FlushQueue::run`]; `None` before its first turn.
    waker: RefCell<Option<Waker>>,
}

impl FlushQueue {
    /// Adds a connection. Its message is sent once the other connections that are ready have had their turn.
    pub fn add(&self, connection: Rc<dyn DeferredFlush>) {
        let mut connections = self.connections.borrow_mut();
        if connections.is_empty()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
        connections.push(connection);
    }

    /// Sends the messages of all added connections. If one panics, it is marked as broken.
    pub fn flush_all(&self, cx: &mut Context<'_>) {
        let mut flushed_connections = self.connections.take();
        for connection in flushed_connections.drain(..) {
            // A panic ends one connection, not the whole worker.
            let flush_one = AssertUnwindSafe(|| connection.flush_deferred(cx));
            if panic::catch_unwind(flush_one).is_err() {
                connection.mark_broken();
            }
        }
        let mut connections = self.connections.borrow_mut();
        if connections.is_empty() {
            // The allocation is used again.
            *connections = flushed_connections;
        }
    }

    /// Calls [`FlushQueue::flush_all`] whenever connections were added. Never returns. Only one task may run it.
    pub async fn run(&self) {
        let flush_forever = poll_fn(|cx| {
            let mut waker = self.waker.borrow_mut();
            if !waker
                .as_ref()
                .is_some_and(|waker| waker.will_wake(cx.waker()))
            {
                *waker = Some(cx.waker().clone());
            }
            drop(waker);
            self.flush_all(cx);
            Poll::Pending
        });
        // One turn may flush more connections than tokio's budget for a task allows.
        tokio::task::unconstrained(flush_forever).await
    }
}

/// A future that yields once, so that the worker's other ready connections run first.
///
/// Unlike `tokio::task::yield_now`, it wakes its task at once: the task runs again in this turn, before the worker
/// waits for events.
#[derive(Debug, Default)]
pub struct YieldToOthers {
    has_yielded: bool,
}

impl Future for YieldToOthers {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A connection that panics when it is flushed, if it is not sound.
    struct Connection {
        is_sound: bool,
        state: Cell<&'static str>,
    }

    impl DeferredFlush for Connection {
        fn flush_deferred(&self, _: &mut Context<'_>) {
            assert!(self.is_sound, "a mistake");
            self.state.set("flushed");
        }

        fn mark_broken(&self) {
            self.state.set("broken");
        }
    }

    #[test]
    fn a_panic_ends_one_connection() {
        let queue = FlushQueue::default();
        let connection = |is_sound| {
            Rc::new(Connection {
                is_sound,
                state: Cell::new("waits"),
            })
        };
        let all = [connection(true), connection(false), connection(true)];
        all.iter().for_each(|one| queue.add(one.clone()));
        queue.flush_all(&mut Context::from_waker(Waker::noop()));
        let states = all.each_ref().map(|one| one.state.get());
        assert_eq!(states, ["flushed", "broken", "flushed"]);
        queue.add(all[0].clone());
        all[0].state.set("waits");
        queue.flush_all(&mut Context::from_waker(Waker::noop()));
        assert_eq!(all[0].state.get(), "flushed");
    }
}
