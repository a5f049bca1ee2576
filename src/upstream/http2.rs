//! One request and its response over HTTP/2.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, HOST, HeaderMap, UPGRADE};
use http::uri::Builder;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::error::ExchangeError;
use super::mux::Channel;
use super::pool::Lease;
use super::received::{NextFrame, ReceivedHead};
use super::websocket;
use crate::http::head::{Fields, Head, ResponseHead, hop};
use crate::http::http1::{MAX_FIELDS, Malformed, MessageError, without_zeros};

/// Most interim answers before the final one.
const MAX_INTERIM: u32 = 16;

const LENGTH: &str = "content-length";

/// See the module.
pub struct Http2Exchange<B> {
    pub(super) lease: Lease,
    channel: Channel,
    request: Option<(Request<()>, bool)>,
    answer: Option<ResponseFuture>,
    interim: u32,
    /// The protocol that the server is asked to change to.
    protocol: Option<Bytes>,
    /// What a WebSocket's client of HTTP/1.1 waits for.
    accept: Option<String>,
    out: Option<SendStream<Bytes>>,
    body: Option<B>,
    piece: Bytes,
    /// The server is asked before the body is.
    held: bool,
    /// All of the request has been sent, or no more of it will be.
    pub(super) sent: bool,
    /// The server may have got some of it, and of its body.
    pub(super) begun: bool,
    body_begun: bool,
    progress: bool,
    heard: bool,
    /// The server has not looked at the request.
    untouched: bool,
    /// The whole connection has ended.
    lost: bool,
    /// The stream was reset before all of the request was sent.
    pub(super) canceled: bool,
    /// The request has no body, and its method no effect.
    repeatable: bool,
    answer_body: Option<RecvStream>,
    /// What the answer's head says of its body's length and has not come yet. `h2` holds the server to it.
    left: Option<u64>,
}

impl<B: Body<Data = Bytes> + Unpin> Http2Exchange<B> {
    /// A request that has not been sent.
    pub fn new(lease: Lease, channel: Channel, head: &Head, body: B) -> Http2Exchange<B> {
        let body = Some(body).filter(|body| !body.is_end_stream());
        let protocol = head.upgrade.clone();
        let protocol = protocol.filter(|_| channel.send.is_extended_connect_protocol_enabled());
        let key = head.fields.first(websocket::KEY);
        let safe = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let mut exchange = Http2Exchange {
            request: None,
            answer: None,
            interim: 0,
            out: None,
            piece: Bytes::new(),
            held: false,
            sent: false,
            begun: false,
            body_begun: false,
            progress: false,
            heard: false,
            untouched: false,
            lost: false,
            canceled: false,
            repeatable: safe && body.is_none(),
            answer_body: None,
            left: None,
            lease,
            accept: key.map(websocket::accept).filter(|_| protocol.is_some()),
            channel,
            protocol,
            body,
        };
        exchange.begin(head);
        exchange
    }

    fn begin(&mut self, head: &Head) {
        let end = self.body.is_none() && self.protocol.is_none();
        let request = request(head, self.protocol.as_deref(), self.lease.is_secure());
        // One that cannot be written shows when it is to be sent.
        self.request = request.ok().map(|request| (request, end));
    }

    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    pub fn may_repeat(&self) -> bool {
        if self.untouched {
            return !self.body_begun;
        }
        self.lost && self.channel.reused && !self.heard && (self.repeatable || !self.begun)
    }

    pub fn repeat(&mut self, head: &Head, lease: Lease, channel: Channel) {
        (self.lease, self.channel) = (lease, channel);
        (self.begun, self.untouched, self.sent) = (false, false, false);
        self.lost = false;
        (self.answer, self.out) = (None, None);
        self.begin(head);
    }

    pub fn has_sent(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }

    pub fn tunnel(&mut self, bytes: B) {
        self.body = Some(bytes);
        self.sent = false;
    }

    pub fn hang_up(&mut self) {
        if self.sent {
            return;
        }
        if let Some(out) = &mut self.out {
            out.send_reset(Reason::CANCEL);
        }
        (self.body, self.piece) = (None, Bytes::new());
        (self.sent, self.canceled) = (true, true);
    }

    /// The server does not answer: others are not to wait for it on the same connection.
    pub fn late(&mut self) {
        self.channel.leave();
        self.lease.failed();
    }

    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ExchangeError<B::Error>>> {
        let lead = self.poll_lead(cx);
        match &lead {
            Poll::Ready(Ok(ReceivedHead::Final(head))) => self.lease.answered(head.status),
            Poll::Ready(Err(ExchangeError::Server(_)))
                if !self.untouched && (self.heard || !self.channel.reused) =>
            {
                self.lease.failed();
            }
            _ => {}
        }
        lead
    }

    fn poll_lead(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ExchangeError<B::Error>>> {
        ready!(self.poll_begin(cx))?;
        self.send(cx)?;
        loop {
            let Some(answer) = &mut self.answer else {
                return Poll::Ready(Err(MessageError::Closed.into()));
            };
            if let Poll::Ready(Some(interim)) = answer.poll_informational(cx) {
                let (parts, ()) = interim.map_err(|error| self.failed(error))?.into_parts();
                (self.heard, self.interim) = (true, self.interim + 1);
                if self.interim > MAX_INTERIM {
                    return Poll::Ready(Err(Malformed("too many interim answers").into()));
                }
                if parts.status == StatusCode::SWITCHING_PROTOCOLS {
                    // RFC 9113 section 8.6.
                    return Poll::Ready(Err(Malformed("it switches protocols").into()));
                }
                if parts.status == StatusCode::CONTINUE {
                    self.held = false;
                    self.send(cx)?;
                    continue;
                }
                check_count(&parts.headers)?;
                let mut fields = Fields::from(&parts.headers);
                fields.remove(LENGTH);
                hop::strip_connection_fields(&mut fields);
                return Poll::Ready(Ok(ReceivedHead::Interim(ResponseHead {
                    status: parts.status,
                    reason: None,
                    fields,
                })));
            }
            let answer = ready!(Pin::new(answer).poll(cx));
            let answer = answer.map_err(|error| self.failed(error))?;
            self.heard = true;
            check_count(answer.headers())?;
            return Poll::Ready(Ok(ReceivedHead::Final(self.head(answer))));
        }
    }

    fn head(&mut self, answer: Response<RecvStream>) -> ResponseHead {
        let (parts, body) = answer.into_parts();
        let mut fields = Fields::from(&parts.headers);
        hop::strip_connection_fields(&mut fields);
        let mut status = parts.status;
        if let Some(length) = parts.headers.get(LENGTH) {
            // Once, however often: `h2` takes none that differ.
            fields.set(LENGTH, without_zeros(length.as_bytes()));
        }
        self.left = fields.text(LENGTH).and_then(|text| text.parse().ok());
        match &self.protocol {
            // As HTTP/1.1 says it: RFC 8441 section 5.
            Some(protocol) if status == StatusCode::OK => {
                status = StatusCode::SWITCHING_PROTOCOLS;
                fields.set("upgrade", protocol);
                if let Some(accept) = &self.accept {
                    fields.set(websocket::ACCEPT, accept.as_bytes());
                }
                fields.remove(LENGTH);
                self.left = None;
            }
            // Neither may say so: RFC 9110 section 8.6.
            _ if status == StatusCode::NO_CONTENT => fields.remove(LENGTH),
            _ => {}
        }
        self.answer_body = Some(body);
        ResponseHead {
            status,
            reason: None,
            fields,
        }
    }

    /// Sends the head.
    fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError<B::Error>>> {
        if self.answer.is_some() {
            return Poll::Ready(Ok(()));
        }
        let ready = ready!(self.channel.send.poll_ready(cx));
        let Some((request, end)) = self.request.take() else {
            return Poll::Ready(Err(Malformed("the request cannot be said").into()));
        };
        let sent = ready.and_then(|()| self.channel.send.send_request(request, end));
        let (answer, out) = sent.map_err(|error| {
            // It has not left.
            self.untouched = true;
            self.failed(error)
        })?;
        (self.begun, self.progress) = (true, true);
        (self.answer, self.out) = (Some(answer), Some(out));
        self.sent = end;
        Poll::Ready(Ok(()))
    }

    /// A server may answer and stop reading, so that what cannot be sent does not end the exchange.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError<B::Error>> {
        if self.sent {
            return Ok(());
        }
        match self.poll_send(cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.sent = true,
            Poll::Ready(Err(Some(error))) => return Err(ExchangeError::Request(error)),
            Poll::Ready(Err(None)) => self.sent = true,
        }
        Ok(())
    }

    /// The error is the body's; none when the server takes no more.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Option<B::Error>>> {
        let Some(out) = &mut self.out else {
            return Poll::Ready(Err(None));
        };
        loop {
            while !self.piece.is_empty() {
                out.reserve_capacity(self.piece.len());
                let room = match out.capacity() {
                    0 => ready!(out.poll_capacity(cx))
                        .ok_or(None)?
                        .map_err(|_| None)?,
                    room => room,
                };
                let part = self.piece.split_to(room.min(self.piece.len()));
                out.send_data(part, false).map_err(|_| None)?;
                self.progress = true;
            }
            let Some(body) = &mut self.body else {
                // What a tunnel will say is not known before the server has agreed.
                return if self.protocol.is_some() && self.answer_body.is_none() {
                    Poll::Pending
                } else {
                    Poll::Ready(Ok(()))
                };
            };
            if self.held {
                return Poll::Pending;
            }
            let frame = ready!(Pin::new(body).poll_frame(cx))
                .transpose()
                .map_err(Some)?;
            self.body_begun = true;
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => self.piece = data,
                Some(Err(frame)) => {
                    self.body = None;
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return Poll::Ready(out.send_trailers(trailers).map_err(|_| None));
                }
                None => {
                    self.body = None;
                    let end = out.send_data(Bytes::new(), true);
                    return Poll::Ready(end.map_err(|_| None));
                }
            }
        }
    }

    fn failed(&mut self, error: h2::Error) -> ExchangeError<B::Error> {
        if error.is_go_away() || error.is_io() {
            self.lost = true;
            self.channel.leave();
        }
        // RFC 9113 section 8.7.
        let refused = error.reason() == Some(Reason::REFUSED_STREAM);
        self.untouched |= !self.heard && (refused || error.is_go_away() && error.is_remote());
        cause(error).into()
    }

    /// The next piece of the answer's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame<B::Error>> {
        if let Err(failure) = self.send(cx) {
            return Poll::Ready(Some(Err(failure)));
        }
        let Some(body) = &mut self.answer_body else {
            return Poll::Ready(None);
        };
        loop {
            let Some(data) = ready!(body.poll_data(cx)) else {
                let trailers = match ready!(body.poll_trailers(cx)) {
                    Ok(trailers) => trailers,
                    Err(error) => return Poll::Ready(Some(Err(self.failed(error)))),
                };
                self.answer_body = None;
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            };
            // Whoever asks for a piece has no other, so this much more may come.
            let released = data.and_then(|data| {
                body.flow_control().release_capacity(data.len())?;
                Ok(data)
            });
            let data = match released {
                Ok(data) => data,
                Err(error) => return Poll::Ready(Some(Err(self.failed(error)))),
            };
            if !data.is_empty() {
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    /// Nothing of the answer is left.
    pub fn is_over(&self) -> bool {
        self.answer_body
            .as_ref()
            .is_none_or(RecvStream::is_end_stream)
    }

    pub fn size_hint(&self) -> SizeHint {
        if self.is_over() {
            return SizeHint::with_exact(0);
        }
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Refuses more fields than a head of HTTP/1.1 may have. `h2` refuses more bytes.
fn check_count(fields: &HeaderMap) -> Result<(), Malformed> {
    match fields.len() > MAX_FIELDS {
        true => Err(Malformed("it has too many fields")),
        false => Ok(()),
    }
}

fn cause(error: h2::Error) -> MessageError {
    match error.is_io() {
        true => error
            .into_io()
            .map_or(MessageError::Closed, MessageError::Io),
        false => MessageError::Io(io::Error::other(error)),
    }
}

fn request(head: &Head, protocol: Option<&[u8]>, secure: bool) -> Result<Request<()>, http::Error> {
    let mut fields = HeaderMap::from(head.fields.clone());
    fields.remove(CONNECTION);
    fields.remove(UPGRADE);
    let authority = fields.remove(HOST);
    let authority = authority.as_ref().map_or(&b""[..], |host| host.as_bytes());
    let target = head.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let builder = Builder::new()
        .scheme(if secure { "https" } else { "http" })
        .authority(authority);
    // `http://host?query` has no path.
    let uri = if target.starts_with(['/', '*']) {
        builder.path_and_query(target)
    } else {
        builder.path_and_query(format!("/{target}"))
    }
    .build()?;
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    *request.method_mut() = head.method.clone();
    if let Some(protocol) = protocol.and_then(|text| std::str::from_utf8(text).ok()) {
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from(protocol));
        fields.remove(websocket::KEY);
    }
    *request.headers_mut() = fields;
    Ok(request)
}
