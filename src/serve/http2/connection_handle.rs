//! What a connection's task and those of its streams share, and how they wake each other.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::AsyncWrite;

use super::connection_state::{ConnectionState, OpenStream};

/// See the module.
pub struct ConnectionHandle<S> {
    shared: RefCell<ConnectionState<S>>,
    /// Requests that are open.
    open_requests: Cell<usize>,
    /// The connection's task, to be woken when there is something to send or no request is open any more.
    waker: RefCell<Option<Waker>>,
    /// The connection's task runs and sees to it by itself.
    attended: Cell<bool>,
}

impl<S: OpenStream> ConnectionHandle<S> {
    /// A connection that begins.
    pub fn new() -> Rc<ConnectionHandle<S>> {
        Rc::new(ConnectionHandle {
            shared: RefCell::default(),
            open_requests: Cell::new(0),
            waker: RefCell::new(None),
            attended: Cell::new(false),
        })
    }

    /// What is shared. Not to be called inside of `change`.
    pub fn with<T>(&self, change: impl FnOnce(&mut ConnectionState<S>) -> T) -> T {
        change(&mut self.shared.borrow_mut())
    }

    /// The connection's task runs, or does so no more.
    pub fn attend(&self, cx: Option<&Context<'_>>) {
        self.attended.set(cx.is_some());
        if let Some(cx) = cx {
            let mut waker = self.waker.borrow_mut();
            match &mut *waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
        }
    }

    /// There is something to be done for the connection's task.
    pub fn notify(&self) {
        if !self.attended.get()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Requests that are open.
    pub fn open_requests(&self) -> usize {
        self.open_requests.get()
    }

    /// One more, or one less.
    pub fn change_open_requests(&self, change: isize) {
        self.open_requests
            .update(|open_requests| open_requests.saturating_add_signed(change));
    }

    /// Sends all that can be sent now.
    pub fn poll_flush<W>(&self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let shared = &mut *self.shared.borrow_mut();
        shared.wake_freed();
        loop {
            // Also when nothing waits here: under TLS it may wait inside.
            ready!(shared.outbox.poll_empty(cx, to))?;
            shared.wake_held_up();
            shared.send();
            if shared.outbox.is_empty() {
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

    /// Takes all, and keeps it until it has been asked twice to let it go.
    #[derive(Default)]
    struct Inside(u32);

    impl AsyncWrite for Inside {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0 += 1;
            match self.0 {
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
        let (handle, mut socket) = (ConnectionHandle::<Http2Stream>::new(), Inside::default());
        assert!(handle.poll_flush(&mut cx, &mut socket).is_pending());
        assert!(handle.poll_flush(&mut cx, &mut socket).is_ready());
        assert_eq!(socket.0, 2);
    }
}
