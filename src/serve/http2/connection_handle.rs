//! Gives the tasks of a connection access to the state that they share: the connection's own task and the tasks of its
//! streams. All run on one thread, so cells are enough.
//!
//! The handle wakes the connection's task when a stream has something to send, or no request is open any more.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;

use super::connection_state::{ConnectionState, OpenStream};

/// Access to the shared state of one connection.
pub struct ConnectionHandle<S> {
    state: RefCell<ConnectionState<S>>,
    /// The number that [`ConnectionHandle::open_request_count`] returns.
    open_request_count: Cell<usize>,
    /// Wakes the connection's task, when there is something to send or no request is open any more.
    waker: RefCell<Option<Waker>>,
    /// Whether the connection's task is running, so that it needs no waking.
    is_task_running: Cell<bool>,
}

impl<S: OpenStream> ConnectionHandle<S> {
    /// A handle of a new connection, on which no stream is open, and at most `max_streams` may be.
    pub fn new(max_streams: usize) -> Rc<ConnectionHandle<S>> {
        Rc::new(ConnectionHandle {
            state: RefCell::new(ConnectionState::new(max_streams)),
            open_request_count: Cell::new(0),
            waker: RefCell::new(None),
            is_task_running: Cell::new(false),
        })
    }

    /// Calls `access` with the shared state.
    ///
    /// # Panics
    ///
    /// If `access` calls this function again.
    pub fn with_state<T>(&self, access: impl FnOnce(&mut ConnectionState<S>) -> T) -> T {
        access(&mut self.state.borrow_mut())
    }

    /// Marks the connection's task as running, and stores the task's waker.
    pub fn begin_task_turn(&self, cx: &Context<'_>) {
        self.is_task_running.set(true);
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }

    /// Marks the connection's task as waiting.
    pub fn end_task_turn(&self) {
        self.is_task_running.set(false);
    }

    /// Wakes the connection's task, unless it is running.
    pub fn wake_task(&self) {
        if !self.is_task_running.get()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// The number of open requests. Their tasks may live on for a moment after their streams have ended.
    pub fn open_request_count(&self) -> usize {
        self.open_request_count.get()
    }

    /// Adds `change` to the number of open requests.
    pub fn change_open_request_count(&self, change: isize) {
        self.open_request_count
            .update(|count| count.saturating_add_signed(change));
    }

    /// Sends everything that the client's flow-control windows allow; ready when all of that is written. Also wakes
    /// streams that wait for space or for the window. Fails if the socket does.
    pub fn poll_flush<W>(&self, cx: &mut Context<'_>, socket: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let state = &mut *self.state.borrow_mut();
        state.wake_streams_if_reopened();
        loop {
            // Even if the outbox is empty: under TLS bytes may wait inside the socket.
            ready!(state.outbox.poll_flush(cx, socket))?;
            state.wake_waiting_streams();
            state.send_queued();
            if state.outbox.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;
    use crate::serve::http2::Http2Stream;

    /// Accepts all bytes, and holds them until the second flush.
    #[derive(Default)]
    struct HoldingSocket {
        flush_count: u32,
    }

    impl AsyncWrite for HoldingSocket {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flush_count += 1;
            match self.flush_count {
                1 => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// As TLS does while the client does not read.
    #[test]
    fn what_waits_inside_of_the_socket_is_not_forgotten() {
        let mut cx = Context::from_waker(Waker::noop());
        let handle = ConnectionHandle::<Http2Stream>::new(1);
        let mut socket = HoldingSocket::default();
        assert!(handle.poll_flush(&mut cx, &mut socket).is_pending());
        assert!(handle.poll_flush(&mut cx, &mut socket).is_ready());
        assert_eq!(socket.flush_count, 2);
    }
}
