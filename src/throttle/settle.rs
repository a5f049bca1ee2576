//! A response body that settles, at its end, what only the body can tell, and holds the request's
//! permits until then.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::headers::Headers;
use crate::admission::{Outcome, Ticket};
use crate::clock::Clock;
use crate::head::{Answer, Fields, Lookup};
use crate::limit::Rules;

/// Most bytes of a JSON answer that are kept to find its cost; of a longer one the reservation
/// counts.
pub const MAX_JSON: usize = 1024 * 1024;

/// An answer that limits can be settled by and told in.
pub trait Settle {
    /// The same answer, its body settling what is left to settle.
    type Settling;

    /// Its status.
    fn status(&self) -> u16;

    /// Its fields.
    fn fields(&self) -> &dyn Lookup;

    /// Tells of its limits, in the only fields of their names.
    fn tell(&mut self, headers: &Headers, rules: &Rules);

    /// Wraps the body.
    fn settling(self, left: Option<(Ticket, Clock)>) -> Self::Settling;
}

impl<B> Settle for Response<B> {
    type Settling = Response<Settling<B>>;

    fn status(&self) -> u16 {
        self.status().as_u16()
    }

    fn fields(&self) -> &dyn Lookup {
        self.headers()
    }

    fn tell(&mut self, headers: &Headers, rules: &Rules) {
        let mut fields = Fields::default();
        headers.write(&mut fields, rules);
        self.headers_mut().extend(HeaderMap::from(fields));
    }

    fn settling(self, left: Option<(Ticket, Clock)>) -> Response<Settling<B>> {
        self.map(|body| Settling::new(body, left))
    }
}

impl<B> Settle for Answer<B> {
    type Settling = Answer<Settling<B>>;

    fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    fn fields(&self) -> &dyn Lookup {
        &self.head.fields
    }

    fn tell(&mut self, headers: &Headers, rules: &Rules) {
        headers.write(&mut self.head.fields, rules);
    }

    fn settling(self, left: Option<(Ticket, Clock)>) -> Answer<Settling<B>> {
        self.map(|body| Settling::new(body, left))
    }
}

pin_project! {
    /// The inner body; beside it the open ticket, when the cost stands in the body or permits are out.
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
    /// What came so far, where a cost may stand in it.
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
        if self.ticket.is_settled() {
            return;
        }
        let document = self
            .copy
            .take()
            .and_then(|copy| serde_json::from_slice(without_mark(&copy)).ok());
        self.ticket
            .settle(Outcome::Body(document.as_ref()), self.clock.now());
    }
}

/// The document after a byte-order mark.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

impl<B> Settling<B> {
    fn new(inner: B, left: Option<(Ticket, Clock)>) -> Settling<B> {
        let open = left.filter(|(ticket, _)| !ticket.is_empty());
        Settling {
            inner,
            open: open.map(|(ticket, clock)| {
                Box::new(Open {
                    copy: (!ticket.is_settled()).then(BytesMut::new),
                    ticket,
                    clock,
                })
            }),
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
