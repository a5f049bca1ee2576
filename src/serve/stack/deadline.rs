//! The deadline of a whole request: the end of the time it may take, where its upstream sets one.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// The time at which a request is given up; without one it may take for ever.
pub struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    /// A deadline that passes `timeout` from now; without a timeout it never does.
    pub fn after(timeout: Option<Duration>) -> Deadline {
        Deadline(timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout))))
    }

    /// Whether the deadline has passed. If not, the task is woken when it does.
    pub fn has_passed(&mut self, cx: &mut Context<'_>) -> bool {
        let sleep = self.0.as_mut();
        sleep.is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready())
    }

    /// The output of `future`; none if the deadline passes first. The future is borrowed, because a future that is
    /// moved into an `async fn` takes up its size twice.
    pub async fn limit<F: Future>(&mut self, mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Pending if self.has_passed(cx) => Poll::Ready(None),
            polled => polled.map(Some),
        })
        .await
    }
}
