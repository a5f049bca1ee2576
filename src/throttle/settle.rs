//! [`SettlingBody`]: a response body that settles the request's reservations at its end, and holds its permits until
//! then. It also counts the bytes that pass, where a limit counts bytes. With nothing left to settle or to hold, it
//! only passes the body on. It never changes the bytes of a body. [`Settle`] is a response that can have such a body.

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
use crate::limit::cost::CostMeter;

/// A response that settles reservations and carries rate-limit header fields.
pub trait Settle {
    /// The same response, with a body that settles the open reservations.
    type Settling;

    /// The status code of the response.
    fn status(&self) -> u16;

    /// The header fields of the response.
    fn fields(&self) -> &dyn Lookup;

    /// Whether the response has no body, or none is left to come.
    fn is_bodiless(&self) -> bool;

    /// Whether the response says how the request ended. One that does not leaves reservations as they are.
    fn tells_outcome(&self) -> bool;

    /// Writes the rate-limit header fields, in place of fields with the same names.
    fn set_rate_limit_headers(&mut self, headers: &RateLimitHeaders, rules: &Rules);

    /// Wraps the body. `open_ticket` is a ticket that may hold reservations or permits until the end of the body. The
    /// clock beside it gives the time of the settlement.
    fn into_settling(self, open_ticket: Option<(Ticket, Clock)>) -> Self::Settling;
}

impl<B: Body> Settle for http::Response<B> {
    type Settling = http::Response<SettlingBody<B>>;

    fn status(&self) -> u16 {
        self.status().as_u16()
    }

    fn fields(&self) -> &dyn Lookup {
        self.headers()
    }

    fn is_bodiless(&self) -> bool {
        self.body().is_end_stream()
    }

    fn tells_outcome(&self) -> bool {
        true
    }

    fn set_rate_limit_headers(&mut self, headers: &RateLimitHeaders, rules: &Rules) {
        let mut fields = Fields::default();
        headers.write(&mut fields, rules);
        self.headers_mut().extend(HeaderMap::from(fields));
    }

    fn into_settling(
        self,
        open_ticket: Option<(Ticket, Clock)>,
    ) -> http::Response<SettlingBody<B>> {
        let open_ticket =
            open_ticket.and_then(|(ticket, clock)| OpenTicket::new(ticket, clock, self.fields()));
        self.map(|inner| SettlingBody { inner, open_ticket })
    }
}

/// The body of a response, which knows whether the response says how the request ended.
pub trait OutcomeBody: Body {
    /// See [`Settle::tells_outcome`].
    fn tells_outcome(&self) -> bool;
}

impl<B: OutcomeBody> Settle for Response<B> {
    type Settling = Response<SettlingBody<B>>;

    fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    fn fields(&self) -> &dyn Lookup {
        &self.head.fields
    }

    fn is_bodiless(&self) -> bool {
        self.body.is_end_stream()
    }

    fn tells_outcome(&self) -> bool {
        self.body.tells_outcome()
    }

    fn set_rate_limit_headers(&mut self, headers: &RateLimitHeaders, rules: &Rules) {
        headers.write(&mut self.head.fields, rules);
    }

    fn into_settling(self, open_ticket: Option<(Ticket, Clock)>) -> Response<SettlingBody<B>> {
        let open_ticket =
            open_ticket.and_then(|(ticket, clock)| OpenTicket::new(ticket, clock, self.fields()));
        self.map(|inner| SettlingBody { inner, open_ticket })
    }
}

pin_project! {
    /// A response body, and the request's ticket while a reservation is open or permits are out.
    #[derive(Debug)]
    pub struct SettlingBody<B> {
        #[pin]
        inner: B,
        open_ticket: Option<Box<OpenTicket>>,
    }
}

/// A ticket that waits for the end of the body.
#[derive(Debug)]
struct OpenTicket {
    ticket: Ticket,
    clock: Clock,
    /// Reads the body as it passes, where it may state a cost.
    meter: Option<CostMeter>,
    /// The trailer fields, once they have come; `None` without trailers, and if every reservation was settled before.
    trailers: Option<HeaderMap>,
    /// Whether the rest of the body is read for its settlement alone, so that its bytes do not count.
    is_drained: bool,
}

impl OpenTicket {
    /// Prepares to settle a ticket by a body with these header fields; `None` for an empty ticket.
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
            CostMeter::new(
                ticket.cost_paths(),
                codings,
                content_type,
                ticket.owner_key(),
            )
        });
        Some(Box::new(OpenTicket {
            ticket,
            clock,
            meter,
            trailers: None,
            is_drained: false,
        }))
    }

    /// Counts the bytes of a frame, and reads what the frame states of the cost.
    fn read_frame(&mut self, frame: &Frame<Bytes>) {
        if let (Some(bytes), Some(data)) = (self.ticket.passed_bytes(), frame.data_ref())
            && !self.is_drained
        {
            bytes.add_outgoing(data.len());
        }
        match (frame.data_ref(), &mut self.meter) {
            (Some(data), Some(meter)) => meter.feed(data),
            (None, _) if !self.ticket.is_settled() => {
                self.trailers = frame.trailers_ref().cloned();
            }
            _ => {}
        }
    }

    /// Settles all reservations at the end of the body. `is_complete` says that it was not cut off.
    fn settle(&mut self, is_complete: bool) {
        if self.ticket.is_settled() {
            return;
        }
        if let Some(meter) = &mut self.meter {
            meter.finish(is_complete);
        }
        let progress = RequestProgress::Ended {
            meter: self.meter.as_ref(),
            trailers: self
                .trailers
                .as_ref()
                .map(|trailers| trailers as &dyn Lookup),
        };
        self.ticket.settle(progress, self.clock.now());
    }
}

impl Drop for OpenTicket {
    fn drop(&mut self) {
        self.settle(false);
    }
}

/// What depends on the end of a body; see [`SettlingBody::pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingSettlement {
    /// The cost that the response states, which says how many reserved units count; perhaps also the return of permits.
    Units,
    /// The return of permits, and nothing else.
    Permits,
}

impl<B> SettlingBody<B> {
    /// What depends on the rest of the body, even after the client has left; `None` if nothing does. Counts of bytes do
    /// not depend on it, because no more bytes reach the client.
    pub fn pending(&self) -> Option<PendingSettlement> {
        let open_ticket = self.open_ticket.as_ref()?;
        let ticket = &open_ticket.ticket;
        match (ticket.awaits_response(), ticket.has_permits()) {
            (true, _) => Some(PendingSettlement::Units),
            (false, true) => Some(PendingSettlement::Permits),
            (false, false) => None,
        }
    }

    /// Records that the rest of the body is read for its settlement alone, so that its bytes do not count as passed.
    pub fn begin_drain(&mut self) {
        if let Some(open_ticket) = &mut self.open_ticket {
            open_ticket.is_drained = true;
        }
    }

    /// Takes out the ticket with its clock, so that the end of the body settles nothing; `None` if there is none.
    pub fn take_ticket(&mut self) -> Option<(Ticket, Clock)> {
        let mut open_ticket = self.open_ticket.take()?;
        Some((
            std::mem::take(&mut open_ticket.ticket),
            open_ticket.clock.clone(),
        ))
    }

    /// The response body inside, without the ticket.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// As [`SettlingBody::inner`], to be changed.
    pub fn inner_mut(&mut self) -> &mut B {
        &mut self.inner
    }

    /// Ends the body with `end`. Then what is left of the request's ticket is settled.
    pub fn end<T>(self, end: impl FnOnce(B) -> T) -> T {
        let SettlingBody { inner, open_ticket } = self;
        let result = end(inner);
        drop(open_ticket);
        result
    }
}

impl<B: Body<Data = Bytes>> Body for SettlingBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    // Inlined, because every response is polled here. The other callers are rare: they read on after the client has
    // left.
    #[inline(always)]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let (Some(open_ticket), Some(Ok(frame))) = (this.open_ticket.as_mut(), &frame) {
            open_ticket.read_frame(frame);
        }
        let is_cut_off = matches!(frame, Some(Err(_)));
        let has_ended = is_cut_off || frame.is_none() || this.inner.is_end_stream();
        if has_ended && let Some(mut open_ticket) = this.open_ticket.take() {
            open_ticket.settle(!is_cut_off);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // With an open ticket the body must be polled once more, so that the ticket is settled.
        self.open_ticket.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
