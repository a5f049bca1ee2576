//! The end of the time that a whole request may take, where it has one.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// See the module.
pub struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    /// From now on.
    pub fn new(span: Option<Duration>) -> Deadline {
        Deadline(span.map(|span| Box::pin(tokio::time::sleep(span))))
    }

    /// Whether it has passed. If not, wakes the task when it does.
    pub fn has_passed(&mut self, cx: &mut Context<'_>) -> bool {
        let sleep = self.0.as_mut();
        sleep.is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready())
    }

    /// What `future` comes to, if it does in time. Borrowed, for what is handed over is kept twice.
    pub async fn before<F: Future>(&mut self, mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Pending if self.has_passed(cx) => Poll::Ready(None),
            polled => polled.map(Some),
        })
        .await
    }
}
