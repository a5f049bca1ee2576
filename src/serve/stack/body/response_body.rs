//! The body of a response. The body of an upstream's response is streamed, with a deadline for each piece. The body of the
//! gateway's own response is a single piece of bytes. So is the body that a route has in place of an upstream's.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::body_error::Error;
use super::compressed_body::CompressedBody;
use super::early_close::{ClientEnd, CloseInsertion};
use super::request_body::RequestBody;
use crate::base::clock::Clock;
use crate::http::content_coding::ContentCoding;
use crate::http::head::hop_by_hop::strip_forbidden_trailers;
use crate::serve::stack::request_deadline::RequestDeadline;
use crate::serve::stack::upstream_load;
use crate::serve::worker::deadlines::Deadlines;
use crate::throttle::admission::Ticket;
use crate::throttle::{OutcomeBody, SettlingBody};
use crate::upstream::UpstreamBody;

/// A response's body from an upstream. It is boxed, because every layer of the stack moves the response, and a response of
/// the gateway itself would be as large.
pub struct RelayedBody(Box<Option<RelayedParts>>);

/// The memory of a [`RelayedBody`] that has ended, for another one.
pub struct SpareRelay(Box<Option<RelayedParts>>);

struct RelayedParts {
    upstream_body: UpstreamBody<RequestBody>,
    deadlines: Rc<Deadlines>,
    settings: RelaySettings,
    /// Puts a close frame behind the server's frames, where limits count a WebSocket's messages.
    close_insertion: Option<Box<CloseInsertion>>,
}

/// How long a response's body may take, and which parts of it are not for the client.
pub struct RelaySettings {
    /// The longest time without a byte from the server, or a byte of the request that the server takes.
    pub idle_timeout: Duration,
    /// The end of the time for the whole request.
    pub deadline: RequestDeadline,
    /// Whether the server's load reports are removed from the trailers.
    pub strips_load_reports: bool,
    /// Whether the server has switched to another protocol, so that either side may be silent.
    pub is_tunnel: bool,
}

impl RelayedBody {
    /// Streams `upstream_body`, in the memory of `spare` if there is some. `deadlines` are those of the request at its client.
    pub fn new(
        spare: Option<SpareRelay>,
        upstream_body: UpstreamBody<RequestBody>,
        deadlines: Rc<Deadlines>,
        settings: RelaySettings,
    ) -> RelayedBody {
        let mut parts = spare.map_or_else(Box::default, |spare| spare.0);
        *parts = Some(RelayedParts {
            upstream_body,
            deadlines,
            settings,
            close_insertion: None,
        });
        RelayedBody(parts)
    }

    /// Ends a WebSocket with a close frame of the gateway, where `insertion` says so.
    pub fn with_close_insertion(mut self, insertion: CloseInsertion) -> RelayedBody {
        if let Some(parts) = &mut *self.0 {
            parts.close_insertion = Some(Box::new(insertion));
        }
        self
    }

    /// Replaces the deadlines of a client that has left, because its connection may carry other requests.
    pub fn detach(&mut self, deadlines: Rc<Deadlines>) {
        if let Some(parts) = &mut *self.0 {
            parts.deadlines = deadlines;
        }
    }

    /// Prepares the next read of a response whose client has left: registers the task to be woken when the server is late,
    /// and cancels a request that was not sent whole. Returns whether more of the response can come.
    pub fn poll_detached(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(RelayedParts {
            upstream_body,
            deadlines,
            ..
        }) = &mut *self.0
        else {
            return false;
        };
        let _ = deadlines.must_close(cx);
        if !upstream_body.is_sent() {
            upstream_body.cancel(cx);
        }
        upstream_body.is_observable()
    }

    /// Takes the upstream's body out, without the client's deadlines, and leaves an empty one.
    pub fn take_upstream_body(&mut self) -> UpstreamBody<RequestBody> {
        match &mut *self.0 {
            Some(parts) => std::mem::replace(&mut parts.upstream_body, UpstreamBody::empty()),
            None => UpstreamBody::empty(),
        }
    }

    /// Ends the body, and leaves its memory.
    fn into_spare(mut self) -> SpareRelay {
        *self.0 = None;
        SpareRelay(self.0)
    }
}

impl RelayedParts {
    /// The next piece of the response, or an error once the server or the whole response is late. Forbidden trailers are
    /// removed.
    #[inline]
    fn poll_relayed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = Pin::new(&mut self.upstream_body).poll_frame(cx);
        if frame.is_ready() {
            self.deadlines.report_server_responded();
        } else {
            let settings = &mut self.settings;
            if settings.deadline.has_passed(cx) {
                return Poll::Ready(Some(Err(Error::Overdue)));
            }
            let has_server_progress = self.upstream_body.take_progress();
            if !has_server_progress && self.deadlines.is_server_late() {
                // A server whose response has begun may have nothing to send, so its health does not suffer.
                let error = match settings.is_tunnel {
                    true => Error::Unused,
                    false => Error::Silent,
                };
                return Poll::Ready(Some(Err(error(settings.idle_timeout))));
            }
            let idle_timeout = settings.idle_timeout;
            self.deadlines
                .await_server(idle_timeout, has_server_progress);
        }
        let strips_load_reports = self.settings.strips_load_reports;
        frame.map(|frame| {
            let frame = frame?.map_err(Error::from);
            Some(frame.map(|frame| match frame.into_trailers() {
                Ok(mut trailers) => {
                    strip_forbidden_trailers(&mut trailers, |name| {
                        strips_load_reports && upstream_load::is_report_field(name)
                    });
                    Frame::trailers(trailers)
                }
                Err(frame) => frame,
            }))
        })
    }

    /// The next piece of a WebSocket, or the close frame that ends it. Then the connection to the server ends too. Not
    /// inlined, because few responses are WebSockets.
    #[inline(never)]
    fn poll_until_closed(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = self.poll_relayed(cx);
        let data = match &frame {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().cloned().unwrap_or_default(),
            _ => Bytes::new(),
        };
        let insertion = self.close_insertion.as_mut();
        let client_end = insertion.and_then(|insertion| insertion.end_early(&data));
        match client_end {
            None => frame,
            // No bytes have come, and the server's current frame is incomplete.
            Some(ClientEnd::After(0)) => frame,
            Some(ClientEnd::After(passed_bytes)) => {
                Poll::Ready(Some(Ok(Frame::data(data.slice(..passed_bytes)))))
            }
            Some(ClientEnd::Close(close_frame)) => {
                self.upstream_body = UpstreamBody::empty();
                Poll::Ready(Some(Ok(Frame::data(close_frame))))
            }
            Some(ClientEnd::Nothing) => {
                self.upstream_body = UpstreamBody::empty();
                Poll::Ready(None)
            }
        }
    }
}

impl Body for RelayedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(parts) = &mut *self.0 else {
            return Poll::Ready(None);
        };
        match parts.close_insertion {
            None => parts.poll_relayed(cx),
            Some(_) => parts.poll_until_closed(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        let parts = self.0.as_ref().as_ref();
        parts.is_none_or(|parts| parts.upstream_body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.0 {
            Some(parts) => parts.upstream_body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// The body of the response to an admitted request.
pub enum AdmittedBody {
    /// An upstream sends the body.
    Relayed(RelayedBody),
    /// The route has a response of its own. `None` if its body is empty or has been sent. It is boxed, because every layer
    /// of the stack moves the response.
    Own(Option<Box<Bytes>>),
    /// A proxy that asks gets no body, and serves the request itself.
    Check,
}

impl AdmittedBody {
    /// The body of a response that a route has of its own.
    pub fn own(bytes: Bytes) -> AdmittedBody {
        AdmittedBody::Own((!bytes.is_empty()).then(|| Box::new(bytes)))
    }

    /// Whether the gateway itself responds.
    pub fn is_own(&self) -> bool {
        !matches!(self, AdmittedBody::Relayed(_))
    }

    /// See [`RelayedBody::detach`].
    pub fn detach(&mut self, deadlines: Rc<Deadlines>) {
        if let AdmittedBody::Relayed(body) = self {
            body.detach(deadlines);
        }
    }

    /// See [`RelayedBody::poll_detached`]. The rest of an own body can always come.
    pub fn poll_detached(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            AdmittedBody::Relayed(body) => body.poll_detached(cx),
            AdmittedBody::Own(_) | AdmittedBody::Check => true,
        }
    }

    /// Takes the upstream's body out, without the client's deadlines, and leaves an empty one. It is empty if the gateway
    /// itself responds.
    pub fn take_upstream_body(&mut self) -> UpstreamBody<RequestBody> {
        match self {
            AdmittedBody::Relayed(body) => body.take_upstream_body(),
            AdmittedBody::Own(_) | AdmittedBody::Check => UpstreamBody::empty(),
        }
    }
}

impl OutcomeBody for AdmittedBody {
    fn tells_outcome(&self) -> bool {
        !matches!(self, AdmittedBody::Check)
    }
}

impl Body for AdmittedBody {
    type Data = Bytes;
    type Error = Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.get_mut() {
            AdmittedBody::Relayed(body) => Pin::new(body).poll_frame(cx),
            AdmittedBody::Own(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(*bytes))))
            }
            AdmittedBody::Check => Poll::Ready(None),
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match self {
            AdmittedBody::Relayed(body) => body.is_end_stream(),
            AdmittedBody::Own(bytes) => bytes.is_none(),
            AdmittedBody::Check => true,
        }
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match self {
            AdmittedBody::Relayed(body) => body.size_hint(),
            AdmittedBody::Own(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            AdmittedBody::Check => SizeHint::with_exact(0),
        }
    }
}

/// The body that a client gets.
pub enum ResponseBody {
    /// The gateway has made the body. `None` if the body is empty or has been sent.
    FromGateway(Option<Bytes>),
    /// The client gets no response at all: its connection ends, over HTTP/2 its stream.
    Withheld,
    /// The request was admitted.
    Admitted(SettlingBody<AdmittedBody>),
    /// The request was admitted, and the response is compressed.
    Compressed(Box<CompressedBody<SettlingBody<AdmittedBody>>>),
}

impl ResponseBody {
    /// A body that the gateway has made.
    pub fn from_gateway(bytes: Bytes) -> ResponseBody {
        ResponseBody::FromGateway(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// See [`SettlingBody::take_ticket`]. Only a request that was admitted has a ticket.
    pub fn take_ticket(&mut self) -> Option<(Ticket, Clock)> {
        match self {
            ResponseBody::Admitted(body) => body.take_ticket(),
            _ => None,
        }
    }

    /// Takes the body out, and leaves an empty one.
    pub fn take(&mut self) -> ResponseBody {
        std::mem::replace(self, ResponseBody::FromGateway(None))
    }

    /// Ends the body. Returns its memory, if an upstream has sent it.
    pub fn into_spare_relay(self) -> Option<SpareRelay> {
        match self {
            ResponseBody::Admitted(body) => body.end(|body| match body {
                AdmittedBody::Relayed(body) => Some(body.into_spare()),
                AdmittedBody::Own(_) | AdmittedBody::Check => None,
            }),
            ResponseBody::FromGateway(_) | ResponseBody::Withheld | ResponseBody::Compressed(_) => {
                None
            }
        }
    }

    /// Compresses the body of the response to an admitted request. Returns whether it does; it does not if the memory for
    /// that is in use.
    pub fn compress(&mut self, coding: ContentCoding) -> bool {
        let ResponseBody::Admitted(body) = self.take() else {
            return false;
        };
        let compressed = CompressedBody::new(body, coding);
        let is_compressed = compressed.is_ok();
        *self = match compressed {
            Ok(body) => ResponseBody::Compressed(Box::new(body)),
            Err(body) => ResponseBody::Admitted(body),
        };
        is_compressed
    }

    /// The body of the response to an admitted request, as the upstream sends it; `None` if the request was refused.
    pub fn admitted(&self) -> Option<&SettlingBody<AdmittedBody>> {
        match self {
            ResponseBody::Admitted(body) => Some(body),
            ResponseBody::Compressed(body) => Some(body.inner()),
            ResponseBody::FromGateway(_) | ResponseBody::Withheld => None,
        }
    }

    /// See [`ResponseBody::admitted`].
    pub fn into_admitted(self) -> Option<SettlingBody<AdmittedBody>> {
        match self {
            ResponseBody::Admitted(body) => Some(body),
            ResponseBody::Compressed(body) => Some(body.into_inner()),
            ResponseBody::FromGateway(_) | ResponseBody::Withheld => None,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut *self {
            ResponseBody::FromGateway(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
            ResponseBody::Withheld => Poll::Ready(None),
            ResponseBody::Admitted(body) => Pin::new(body).poll_frame(cx),
            ResponseBody::Compressed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::FromGateway(bytes) => bytes.is_none(),
            ResponseBody::Withheld => true,
            ResponseBody::Admitted(body) => body.is_end_stream(),
            ResponseBody::Compressed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::FromGateway(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ResponseBody::Withheld => SizeHint::with_exact(0),
            ResponseBody::Admitted(body) => body.size_hint(),
            ResponseBody::Compressed(body) => body.size_hint(),
        }
    }
}
