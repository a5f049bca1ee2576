//! A response body that settles the request's reservations at its end, where only the body states the cost,
//! and holds the request's permits until then.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::admission::{RequestProgress, Ticket};
use super::headers::RateLimitHeaders;
use crate::base::clock::Clock;
use crate::http::head::{Fields, Lookup, Response};
use crate::limit::Rules;
use crate::limit::cost::Meter;

/// A response that settles reservations and carries rate-limit headers.
pub trait Settle {
    /// The same response with a body that settles the reservations that are still open.
    type Settling;

    /// The status code.
    fn status(&self) -> u16;

    /// The header fields.
    fn fields(&self) -> &dyn Lookup;

    /// Whether the response has no body.
    fn is_bodiless(&self) -> bool;

    /// Adds the rate-limit headers, in place of fields of the same names.
    fn set_rate_limit_headers(&mut self, headers: &RateLimitHeaders, rules: &Rules);

    /// Wraps the body. `open` is a ticket that the head did not settle, and the clock to settle it by.
    fn into_settling(self, open: Option<(Ticket, Clock)>) -> Self::Settling;
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

    fn set_rate_limit_headers(&mut self, headers: &RateLimitHeaders, rules: &Rules) {
        let mut fields = Fields::default();
        headers.write(&mut fields, rules);
        self.headers_mut().extend(HeaderMap::from(fields));
    }

    fn into_settling(self, open: Option<(Ticket, Clock)>) -> http::Response<Settling<B>> {
        let open = open.and_then(|(ticket, clock)| OpenTicket::new(ticket, clock, self.fields()));
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

    fn set_rate_limit_headers(&mut self, headers: &RateLimitHeaders, rules: &Rules) {
        headers.write(&mut self.head.fields, rules);
    }

    fn into_settling(self, open: Option<(Ticket, Clock)>) -> Response<Settling<B>> {
        let open = open.and_then(|(ticket, clock)| OpenTicket::new(ticket, clock, self.fields()));
        self.map(|inner| Settling { inner, open })
    }
}

pin_project! {
    /// The inner body, and beside it the ticket while the body may state a cost or permits are out.
    #[derive(Debug)]
    pub struct Settling<B> {
        #[pin]
        inner: B,
        open: Option<Box<OpenTicket>>,
    }
}

/// A ticket that waits for the end of the body.
#[derive(Debug)]
struct OpenTicket {
    ticket: Ticket,
    clock: Clock,
    /// Reads the body as it passes, where it may state a cost.
    meter: Option<Meter>,
    trailers: Option<HeaderMap>,
}

impl OpenTicket {
    fn new(ticket: Ticket, clock: Clock, fields: &dyn Lookup) -> Option<Box<OpenTicket>> {
        if ticket.is_empty() {
            return None;
        }
        let meter = ticket.cost_paths().next().is_some().then(|| {
            let mut codings = Vec::new();
            fields.visit("content-encoding", &mut |value| {
                codings.push(value.to_vec())
            });
            let codings = codings.iter().map(Vec::as_slice);
            let content_type = fields.lookup("content-type");
            Meter::new(ticket.cost_paths(), codings, content_type, ticket.owner())
        });
        Some(Box::new(OpenTicket {
            ticket,
            clock,
            meter,
            trailers: None,
        }))
    }

    fn read_frame(&mut self, frame: &Frame<Bytes>) {
        match (frame.data_ref(), &mut self.meter) {
            (Some(data), Some(meter)) => meter.feed(data),
            (None, _) if !self.ticket.is_settled() => {
                self.trailers = frame.trailers_ref().cloned();
            }
            _ => {}
        }
    }

    /// Settles at the end of the body; `whole` if it was not cut off.
    fn settle(&mut self, whole: bool) {
        if self.ticket.is_settled() {
            return;
        }
        if let Some(meter) = &mut self.meter {
            meter.finish(whole);
        }
        let outcome = RequestProgress::Ended {
            meter: self.meter.as_ref(),
            trailers: self
                .trailers
                .as_ref()
                .map(|trailers| trailers as &dyn Lookup),
        };
        self.ticket.settle(outcome, self.clock.now());
    }
}

impl Drop for OpenTicket {
    fn drop(&mut self) {
        self.settle(false);
    }
}

/// What the end of a body still decides; see [`Settling::pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingSettlement {
    /// How many of the reserved units count, and perhaps when permits come back.
    Units,
    /// When permits come back, and nothing else.
    Permits,
}

impl<B> Settling<B> {
    /// What the end of the body still decides, if anything.
    pub fn pending(&self) -> Option<PendingSettlement> {
        let open = self.open.as_ref()?;
        Some(match open.ticket.is_settled() {
            true => PendingSettlement::Permits,
            false => PendingSettlement::Units,
        })
    }

    /// The body inside.
    pub fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }
}

impl<B: Body<Data = Bytes>> Body for Settling<B> {
    type Data = Bytes;
    type Error = B::Error;

    // Inlined into the path of every request; the other caller is rare.
    #[inline(always)]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let (Some(open), Some(Ok(frame))) = (this.open.as_mut(), &frame) {
            open.read_frame(frame);
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
