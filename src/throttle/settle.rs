//! A response body that settles, at its end, what only the body can tell, and holds the request's
//! permits until then.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::admission::{Outcome, Ticket};
use super::headers::Headers;
use crate::base::clock::Clock;
use crate::http::head::{Fields, Lookup, Response};
use crate::limit::Rules;
use crate::limit::cost::Meter;

/// An answer that limits can be settled by and told in.
pub trait Settle {
    /// The same answer, its body settling what is left to settle.
    type Settling;

    /// Its status.
    fn status(&self) -> u16;

    /// Its fields.
    fn fields(&self) -> &dyn Lookup;

    /// No body comes.
    fn is_bodiless(&self) -> bool;

    /// Tells of its limits, in the only fields of their names.
    fn tell(&mut self, headers: &Headers, rules: &Rules);

    /// Wraps the body.
    fn settling(self, left: Option<(Ticket, Clock)>) -> Self::Settling;
}

impl<B: Body> Settle for http::Response<B> {
    type Settling = http::Response<Settling<B>>;

    fn status(&self) -> u16 {
        self.status().as_u16()
    }

    fn fields(&self) -> &dyn Lookup {
        self.headers()
    }

    fn is_bodiless(&self) -> bool {
        self.body().is_end_stream()
    }

    fn tell(&mut self, headers: &Headers, rules: &Rules) {
        let mut fields = Fields::default();
        headers.write(&mut fields, rules);
        self.headers_mut().extend(HeaderMap::from(fields));
    }

    fn settling(self, left: Option<(Ticket, Clock)>) -> http::Response<Settling<B>> {
        let open = left.and_then(|(ticket, clock)| Waiting::new(ticket, clock, self.fields()));
        self.map(|inner| Settling { inner, open })
    }
}

impl<B: Body> Settle for Response<B> {
    type Settling = Response<Settling<B>>;

    fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    fn fields(&self) -> &dyn Lookup {
        &self.head.fields
    }

    fn is_bodiless(&self) -> bool {
        self.body.is_end_stream()
    }

    fn tell(&mut self, headers: &Headers, rules: &Rules) {
        headers.write(&mut self.head.fields, rules);
    }

    fn settling(self, left: Option<(Ticket, Clock)>) -> Response<Settling<B>> {
        let open = left.and_then(|(ticket, clock)| Waiting::new(ticket, clock, self.fields()));
        self.map(|inner| Settling { inner, open })
    }
}

pin_project! {
    /// The inner body; beside it the open ticket, when the cost stands in the body or permits are out.
    #[derive(Debug)]
    pub struct Settling<B> {
        #[pin]
        inner: B,
        open: Option<Box<Waiting>>,
    }
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    clock: Clock,
    /// Reads along, where a cost may stand in the body.
    meter: Option<Meter>,
    trailers: Option<HeaderMap>,
}

impl Waiting {
    fn new(ticket: Ticket, clock: Clock, fields: &dyn Lookup) -> Option<Box<Waiting>> {
        if ticket.is_empty() {
            return None;
        }
        let meter = ticket.paths().next().is_some().then(|| {
            let mut codings = Vec::new();
            fields.visit("content-encoding", &mut |value| {
                codings.push(value.to_vec())
            });
            let codings = codings.iter().map(Vec::as_slice);
            let content_type = fields.lookup("content-type");
            Meter::new(ticket.paths(), codings, content_type, ticket.owner())
        });
        Some(Box::new(Waiting {
            ticket,
            clock,
            meter,
            trailers: None,
        }))
    }

    fn see(&mut self, frame: &Frame<Bytes>) {
        match (frame.data_ref(), &mut self.meter) {
            (Some(data), Some(meter)) => meter.feed(data),
            (None, _) if !self.ticket.is_settled() => {
                self.trailers = frame.trailers_ref().cloned();
            }
            _ => {}
        }
    }

    /// The body is over; `whole` when it was not cut off.
    fn settle(&mut self, whole: bool) {
        if self.ticket.is_settled() {
            return;
        }
        if let Some(meter) = &mut self.meter {
            meter.finish(whole);
        }
        let outcome = Outcome::Ended {
            meter: self.meter.as_ref(),
            trailers: self
                .trailers
                .as_ref()
                .map(|trailers| trailers as &dyn Lookup),
        };
        self.ticket.settle(outcome, self.clock.now());
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.settle(false);
    }
}

/// What the end of a body still decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Units that limits have reserved, and perhaps permits.
    Units,
    /// When permits come back.
    Permits,
}

impl<B> Settling<B> {
    /// None where nothing hangs on the end of the body.
    pub fn open(&self) -> Option<Open> {
        let open = self.open.as_ref()?;
        Some(match open.ticket.is_settled() {
            true => Open::Permits,
            false => Open::Units,
        })
    }

    /// The body that it reads.
    pub fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }
}

impl<B: Body<Data = Bytes>> Body for Settling<B> {
    type Data = Bytes;
    type Error = B::Error;

    // In one piece with what every request takes; the other caller is rare.
    #[inline(always)]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let (Some(open), Some(Ok(frame))) = (this.open.as_mut(), &frame) {
            open.see(frame);
        }
        let cut = matches!(frame, Some(Err(_)));
        let ended = cut || frame.is_none() || this.inner.is_end_stream();
        if ended && let Some(mut open) = this.open.take() {
            open.settle(!cut);
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
