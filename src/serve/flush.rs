//! Answers that are whole leave together, at the end of a worker's turn: messages that leave one right after the
//! other find a process on the other side awake, and waking it is what costs the kernel most.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::wire::Wire;

/// The connections of one worker with an answer that is to leave.
#[derive(Default)]
pub struct Flushes {
    waiting: RefCell<Vec<Rc<Wire>>>,
    waker: RefCell<Option<Waker>>,
}

impl Flushes {
    /// Has what waits on this connection sent when the other connections that are ready have had their turn.
    pub fn add(&self, wire: Rc<Wire>) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
        waiting.push(wire);
    }

    /// Sends what is added, until it is dropped.
    pub async fn run(&self) {
        let mut leaving = Vec::new();
        let sending = poll_fn(|cx| {
            let mut waker = self.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            drop(waker);
            std::mem::swap(&mut leaving, &mut *self.waiting.borrow_mut());
            leaving.drain(..).for_each(|wire| wire.leave(cx));
            Poll::Pending
        });
        // One turn may be for more connections than tokio lets a task look at.
        tokio::task::unconstrained(sending).await
    }
}

/// Lets the worker's other connections that are ready go first.
pub async fn others_first() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
