//! Messages that are whole leave together, at the end of a worker's turn: when they leave one right after the other,
//! a process on the other side is awake already. Waking it is the kernel's largest cost.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A connection with something that waits to be sent.
pub trait Leave {
    /// Sends it; what the other end does not take at once is left to the connection's own task, which is woken.
    fn leave(&self, cx: &mut Context<'_>);

    /// A panic broke off the sending: wakes the connection's own task, which ends it.
    fn broke(&self);
}

/// The connections of one worker with a message that is to leave.
#[derive(Default)]
pub struct Flushes {
    waiting: RefCell<Vec<Rc<dyn Leave>>>,
    waker: RefCell<Option<Waker>>,
}

impl Flushes {
    /// Has what waits on this connection sent when the other connections that are ready have had their turn.
    pub fn add(&self, connection: Rc<dyn Leave>) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
        waiting.push(connection);
    }

    /// Sends what was added.
    pub fn leave(&self, cx: &mut Context<'_>) {
        let mut leaving = self.waiting.take();
        for connection in leaving.drain(..) {
            // A panic is the end of one connection, not of all.
            let leave = AssertUnwindSafe(|| connection.leave(cx));
            if panic::catch_unwind(leave).is_err() {
                connection.broke();
            }
        }
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            // Its room is for the next turn.
            *waiting = leaving;
        }
    }

    /// Sends what is added, until it is dropped.
    pub async fn run(&self) {
        let sending = poll_fn(|cx| {
            let mut waker = self.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            drop(waker);
            self.leave(cx);
            Poll::Pending
        });
        // One turn may be for more connections than tokio lets a task look at.
        tokio::task::unconstrained(sending).await
    }
}

/// Lets the worker's other connections that are ready go first.
#[derive(Debug, Default)]
pub struct OthersFirst {
    went: bool,
}

impl Future for OthersFirst {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.went, true) {
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

    /// Leaves, or panics; what became of it.
    struct Connection(bool, Cell<&'static str>);

    impl Leave for Connection {
        fn leave(&self, _: &mut Context<'_>) {
            assert!(self.0, "a mistake");
            self.1.set("left");
        }

        fn broke(&self) {
            self.1.set("broke");
        }
    }

    #[test]
    fn a_panic_ends_one_connection() {
        let flushes = Flushes::default();
        let connection = |sound| Rc::new(Connection(sound, Cell::new("waits")));
        let all = [connection(true), connection(false), connection(true)];
        all.iter().for_each(|one| flushes.add(one.clone()));
        flushes.leave(&mut Context::from_waker(Waker::noop()));
        let left = all.each_ref().map(|one| one.1.get());
        assert_eq!(left, ["left", "broke", "left"]);
        flushes.add(all[0].clone());
        all[0].1.set("waits");
        flushes.leave(&mut Context::from_waker(Waker::noop()));
        assert_eq!(all[0].1.get(), "left");
    }
}
