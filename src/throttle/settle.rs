//! A response body that settles, at its end, what only the body can tell.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::admission::{Outcome, Ticket};
use crate::clock::Clock;

/// Most bytes of a JSON answer that are kept to find its cost; of a longer one the reservation
/// counts.
pub const MAX_JSON: usize = 1024 * 1024;

pin_project! {
    /// The inner body; beside it the open ticket, when the cost stands in the body.
    #[derive(Debug)]
    pub struct Settling<B> {
        #[pin]
        inner: B,
        open: Option<Box<Open>>,
    }
}

#[derive(Debug)]
struct Open {
    ticket: Ticket,
    clock: Clock,
    copy: Option<BytesMut>,
}

impl Open {
    fn keep(&mut self, data: &[u8]) {
        if let Some(copy) = &mut self.copy {
            if copy.len() + data.len() > MAX_JSON {
                self.copy = None;
            } else {
                copy.extend_from_slice(data);
            }
        }
    }

    fn settle(mut self) {
        let document = self
            .copy
            .take()
            .and_then(|copy| serde_json::from_slice(&copy).ok());
        self.ticket
            .settle(Outcome::Body(document.as_ref()), self.clock.now());
    }
}

impl<B> Settling<B> {
    /// A body with nothing to settle.
    pub fn plain(inner: B) -> Settling<B> {
        Settling { inner, open: None }
    }

    /// A body whose end settles what is left on `ticket`.
    pub fn new(inner: B, ticket: Ticket, clock: Clock) -> Settling<B> {
        let open = Open {
            ticket,
            clock,
            copy: Some(BytesMut::new()),
        };
        Settling {
            inner,
            open: (!open.ticket.is_empty()).then(|| Box::new(open)),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for Settling<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let Some(open) = this.open
            && let Some(Ok(data)) = frame.as_ref().map(|f| f.as_ref().map(|f| f.data_ref()))
        {
            open.keep(data.map_or(&[], |data| data.chunk()));
        }
        let ended = frame.is_none() || this.inner.is_end_stream();
        if ended && let Some(open) = this.open.take() {
            open.settle();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.open.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
