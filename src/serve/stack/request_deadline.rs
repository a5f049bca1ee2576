//! The deadline of a whole request: the end of the time that it may take, where its upstream sets a `total` timeout.
//!
//! It is exact and costs a timer, unlike the deadlines of connections in `serve/worker/deadlines.rs`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// The time at which a request is given up. Without a timer inside, the request may take for ever.
pub struct RequestDeadline(Option<Pin<Box<Sleep>>>);

impl RequestDeadline {
    /// A deadline that passes `timeout` from now; without a timeout it never passes.
    pub fn after(timeout: Option<Duration>) -> RequestDeadline {
        RequestDeadline(timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout))))
    }

    /// Whether the deadline has passed. If not, the task is woken when it passes.
    pub fn has_passed(&mut self, cx: &mut Context<'_>) -> bool {
        let timer = self.0.as_mut();
        timer.is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
    }

    /// The output of `future`; `None` if the deadline passes first. The future is borrowed, because a future that is moved
    /// into an `async fn` takes up its size twice.
    pub async fn run_within<F: Future>(&mut self, mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Pending if self.has_passed(cx) => Poll::Ready(None),
            polled => polled.map(Some),
        })
        .await
    }
}
