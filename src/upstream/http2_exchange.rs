//! One request and its response over a stream of HTTP/2. The `h2` crate runs the connection in a task of its own. Other
//! requests share the connection; an error of this stream alone does not affect them.

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
use super::muxed_connections::ReservedStream;
use super::received::{NextFrame, ReceivedHead};
use super::upstream_pool::Assignment;
use super::websocket;
use crate::http::head::{Fields, Head, ResponseHead, hop_by_hop};
use crate::http::http1::{MAX_FIELDS, Malformed, MessageError, without_leading_zeros};

/// Maximum number of interim responses before the final one, so that a server cannot send them without end.
const MAX_INTERIM_RESPONSES: u32 = 16;

/// An exchange over HTTP/2. [`super::exchange::Exchange`] documents its methods.
pub struct Http2Exchange<B> {
    pub(super) assignment: Assignment,
    stream: ReservedStream,
    /// The request's head until it is sent; `None` too if HTTP/2 cannot express it.
    unsent_head: Option<UnsentHead>,
    /// Receives the heads of the response; `None` before the request's head is sent.
    response: Option<ResponseFuture>,
    /// The number of interim responses so far.
    interim_count: u32,
    /// The protocol that an extended CONNECT requests; `None` for every other request.
    protocol: Option<Bytes>,
    /// The `Sec-WebSocket-Accept` that a client of HTTP/1.1 expects; `None` if this is no WebSocket handshake of one.
    websocket_accept: Option<String>,
    /// Sends the body; `None` before the request's head is sent.
    body_sender: Option<SendStream<Bytes>>,
    /// The request's body; `None` if there is none, and once all of it is read or given up.
    body: Option<B>,
    /// The part of the body's last piece that is not sent yet, because the server's window has no room for it.
    unsent_piece: Bytes,
    /// Whether the body is held back until the server sends `100 Continue`.
    is_body_held: bool,
    /// Whether no more of the request will be sent.
    pub(super) is_sent: bool,
    /// Whether the server may have received some of the request.
    pub(super) has_begun: bool,
    /// Whether some of the request's body was read from the client.
    has_body_begun: bool,
    /// Whether the server has accepted bytes since the flag was last cleared.
    has_progress: bool,
    /// Whether some of the response has come.
    has_received: bool,
    /// Whether the server certainly has not processed the request.
    is_unprocessed: bool,
    /// Whether the whole connection has ended, or takes no more streams.
    is_connection_lost: bool,
    /// Whether the gateway has given the request up before all of it was sent.
    pub(super) is_canceled: bool,
    /// Whether the request has no body and a safe method, so that it may be sent again.
    is_safe: bool,
    /// The body of the response; `None` before the final head has come, and after the body's end.
    response_body: Option<RecvStream>,
    /// The bytes of the response's body that are still to come, as `h2` enforces; `None` without `Content-Length`.
    remaining_length: Option<u64>,
}

/// The head of a request that is not sent yet.
struct UnsentHead {
    request: Request<()>,
    /// Whether nothing follows the head.
    ends_request: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Http2Exchange<B> {
    /// An exchange of which nothing has been sent.
    pub fn new(
        assignment: Assignment,
        stream: ReservedStream,
        head: &Head,
        body: B,
    ) -> Http2Exchange<B> {
        let body = Some(body).filter(|body| !body.is_end_stream());
        let protocol = head.upgrade.clone();
        let protocol = protocol.filter(|_| stream.sender.is_extended_connect_protocol_enabled());
        let websocket_key = head.fields.first(websocket::KEY_FIELD);
        let has_safe_method = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let mut exchange = Http2Exchange {
            unsent_head: None,
            response: None,
            interim_count: 0,
            body_sender: None,
            unsent_piece: Bytes::new(),
            is_body_held: false,
            is_sent: false,
            has_begun: false,
            has_body_begun: false,
            has_progress: false,
            has_received: false,
            is_unprocessed: false,
            is_connection_lost: false,
            is_canceled: false,
            is_safe: has_safe_method && body.is_none(),
            response_body: None,
            remaining_length: None,
            assignment,
            websocket_accept: websocket_key
                .map(websocket::accept_value)
                .filter(|_| protocol.is_some()),
            stream,
            protocol,
            body,
        };
        exchange.build_head(head);
        exchange
    }

    /// Builds the head for the current connection. Sending fails if HTTP/2 cannot express the head.
    fn build_head(&mut self, head: &Head) {
        let ends_request = self.body.is_none() && self.protocol.is_none();
        let request = build_request(head, self.protocol.as_deref(), self.assignment.is_tls());
        self.unsent_head = request.ok().map(|request| UnsentHead {
            request,
            ends_request,
        });
    }

    pub fn set_body_held(&mut self, is_body_held: bool) {
        self.is_body_held = is_body_held;
    }

    pub fn is_retryable(&self) -> bool {
        if self.is_unprocessed {
            return !self.has_body_begun;
        }
        self.is_connection_lost
            && self.stream.is_reused
            && !self.has_received
            && (self.is_safe || !self.has_begun)
    }

    pub fn retry_over(&mut self, head: &Head, assignment: Assignment, stream: ReservedStream) {
        self.assignment = assignment;
        self.stream = stream;
        self.has_begun = false;
        self.is_unprocessed = false;
        self.is_sent = false;
        self.is_connection_lost = false;
        self.response = None;
        self.body_sender = None;
        self.build_head(head);
    }

    pub fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progress)
    }

    pub fn begin_tunnel(&mut self, bytes: B) {
        self.body = Some(bytes);
        self.is_sent = false;
    }

    pub fn cancel(&mut self) {
        if self.is_sent {
            return;
        }
        if let Some(sender) = &mut self.body_sender {
            sender.send_reset(Reason::CANCEL);
        }
        self.body = None;
        self.unsent_piece = Bytes::new();
        self.is_sent = true;
        self.is_canceled = true;
    }

    /// Records that the server took too long. New requests use other connections, which may still work.
    pub fn record_timeout(&mut self) {
        self.stream.retire();
        self.assignment.record_failure();
    }

    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ExchangeError<B::Error>>> {
        let head = self.poll_next_head(cx);
        match &head {
            Poll::Ready(Ok(ReceivedHead::Final(head))) => {
                self.assignment.record_response(head.status)
            }
            Poll::Ready(Err(ExchangeError::Server(_)))
                if !self.is_unprocessed && (self.has_received || !self.stream.is_reused) =>
            {
                self.assignment.record_failure();
            }
            _ => {}
        }
        head
    }

    fn poll_next_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ExchangeError<B::Error>>> {
        ready!(self.poll_send_head(cx))?;
        self.advance_upload(cx)?;
        loop {
            let Some(response) = &mut self.response else {
                return Poll::Ready(Err(MessageError::Closed.into()));
            };
            if let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
                let (parts, ()) = interim
                    .map_err(|error| self.convert_error(error))?
                    .into_parts();
                self.has_received = true;
                self.interim_count += 1;
                if self.interim_count > MAX_INTERIM_RESPONSES {
                    return Poll::Ready(Err(Malformed("too many interim responses").into()));
                }
                if parts.status == StatusCode::SWITCHING_PROTOCOLS {
                    // HTTP/2 has no 101: RFC 9113 section 8.6.
                    return Poll::Ready(Err(Malformed("it switches protocols").into()));
                }
                if parts.status == StatusCode::CONTINUE {
                    self.is_body_held = false;
                    self.advance_upload(cx)?;
                    continue;
                }
                check_field_count(&parts.headers)?;
                let mut fields = Fields::from(&parts.headers);
                fields.remove("content-length");
                hop_by_hop::strip_connection_fields(&mut fields);
                return Poll::Ready(Ok(ReceivedHead::Interim(ResponseHead {
                    status: parts.status,
                    reason: None,
                    fields,
                })));
            }
            let response = ready!(Pin::new(response).poll(cx));
            let response = response.map_err(|error| self.convert_error(error))?;
            self.has_received = true;
            check_field_count(response.headers())?;
            return Poll::Ready(Ok(ReceivedHead::Final(self.convert_final_head(response))));
        }
    }

    /// Converts the final head, and keeps the body. A switch of protocols becomes one of HTTP/1.1.
    fn convert_final_head(&mut self, response: Response<RecvStream>) -> ResponseHead {
        let (parts, body) = response.into_parts();
        let mut fields = Fields::from(&parts.headers);
        hop_by_hop::strip_connection_fields(&mut fields);
        let mut status = parts.status;
        if let Some(length) = parts.headers.get("content-length") {
            // The field may be repeated. `h2` has refused values that differ.
            fields.set("content-length", without_leading_zeros(length.as_bytes()));
        }
        self.remaining_length = fields
            .text("content-length")
            .and_then(|text| text.parse().ok());
        match &self.protocol {
            // Success means a switch of protocols (RFC 8441 section 5), for which HTTP/1.1 has a status of its own.
            Some(protocol) if status == StatusCode::OK => {
                status = StatusCode::SWITCHING_PROTOCOLS;
                fields.set("upgrade", protocol);
                if let Some(websocket_accept) = &self.websocket_accept {
                    fields.set(websocket::ACCEPT_FIELD, websocket_accept.as_bytes());
                }
                fields.remove("content-length");
                self.remaining_length = None;
            }
            // A response without content must not give a length: RFC 9110 section 8.6.
            _ if status == StatusCode::NO_CONTENT => fields.remove("content-length"),
            _ => {}
        }
        self.response_body = Some(body);
        ResponseHead {
            status,
            reason: None,
            fields,
        }
    }

    /// Sends the request's head, once the connection has room for another stream.
    fn poll_send_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ExchangeError<B::Error>>> {
        if self.response.is_some() {
            return Poll::Ready(Ok(()));
        }
        let readiness = ready!(self.stream.sender.poll_ready(cx));
        let Some(UnsentHead {
            request,
            ends_request,
        }) = self.unsent_head.take()
        else {
            return Poll::Ready(Err(Malformed("the request has no form in HTTP/2").into()));
        };
        let sent = readiness.and_then(|()| self.stream.sender.send_request(request, ends_request));
        let (response, body_sender) = sent.map_err(|error| {
            // Nothing of the request was sent.
            self.is_unprocessed = true;
            self.convert_error(error)
        })?;
        self.has_begun = true;
        self.has_progress = true;
        self.response = Some(response);
        self.body_sender = Some(body_sender);
        self.is_sent = ends_request;
        Poll::Ready(Ok(()))
    }

    /// Sends as much of the request as the server accepts now. A server may respond and stop reading, so an error of the
    /// stream does not end the exchange.
    fn advance_upload(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError<B::Error>> {
        if self.is_sent {
            return Ok(());
        }
        match self.poll_send_body(cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.is_sent = true,
            Poll::Ready(Err(Some(error))) => return Err(ExchangeError::Request(error)),
            Poll::Ready(Err(None)) => self.is_sent = true,
        }
        Ok(())
    }

    /// Sends the body. The error is that of the client's body; `None` if the server accepts no more bytes.
    fn poll_send_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Option<B::Error>>> {
        let Some(sender) = &mut self.body_sender else {
            return Poll::Ready(Err(None));
        };
        loop {
            while !self.unsent_piece.is_empty() {
                sender.reserve_capacity(self.unsent_piece.len());
                let capacity = match sender.capacity() {
                    0 => ready!(sender.poll_capacity(cx))
                        .ok_or(None)?
                        .map_err(|_| None)?,
                    capacity => capacity,
                };
                let sent_part = self
                    .unsent_piece
                    .split_to(capacity.min(self.unsent_piece.len()));
                sender.send_data(sent_part, false).map_err(|_| None)?;
                self.has_progress = true;
            }
            let Some(body) = &mut self.body else {
                // A tunnel has no bytes before the server has agreed to it.
                return if self.protocol.is_some() && self.response_body.is_none() {
                    Poll::Pending
                } else {
                    Poll::Ready(Ok(()))
                };
            };
            if self.is_body_held {
                return Poll::Pending;
            }
            let frame = ready!(Pin::new(body).poll_frame(cx))
                .transpose()
                .map_err(Some)?;
            self.has_body_begun = true;
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => self.unsent_piece = data,
                Some(Err(frame)) => {
                    self.body = None;
                    let trailers = frame.into_trailers().unwrap_or_default();
                    return Poll::Ready(sender.send_trailers(trailers).map_err(|_| None));
                }
                None => {
                    self.body = None;
                    let sent = sender.send_data(Bytes::new(), true);
                    return Poll::Ready(sent.map_err(|_| None));
                }
            }
        }
    }

    /// Records what an error of the stream means for a retry, and converts it.
    fn convert_error(&mut self, error: h2::Error) -> ExchangeError<B::Error> {
        if error.is_go_away() || error.is_io() {
            self.is_connection_lost = true;
            self.stream.retire();
        }
        // REFUSED_STREAM and GOAWAY say that the server has not processed the request: RFC 9113 section 8.7.
        let is_refused = error.reason() == Some(Reason::REFUSED_STREAM);
        let is_going_away = error.is_go_away() && error.is_remote();
        self.is_unprocessed |= !self.has_received && (is_refused || is_going_away);
        to_message_error(error).into()
    }

    /// Receives the next piece of the response's body. Ready with `None` at its end.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame<B::Error>> {
        if let Err(error) = self.advance_upload(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(body) = &mut self.response_body else {
            return Poll::Ready(None);
        };
        loop {
            let Some(data) = ready!(body.poll_data(cx)) else {
                let trailers = match ready!(body.poll_trailers(cx)) {
                    Ok(trailers) => trailers,
                    Err(error) => return Poll::Ready(Some(Err(self.convert_error(error)))),
                };
                self.response_body = None;
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            };
            // The caller holds one piece at a time, so the server may send as many bytes as this piece has.
            let released = data.and_then(|data| {
                body.flow_control().release_capacity(data.len())?;
                Ok(data)
            });
            let data = match released {
                Ok(data) => data,
                Err(error) => return Poll::Ready(Some(Err(self.convert_error(error)))),
            };
            if !data.is_empty() {
                let data_bytes = data.len() as u64;
                self.remaining_length = self
                    .remaining_length
                    .map(|bytes| bytes.saturating_sub(data_bytes));
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    /// Whether the response has ended.
    pub fn is_over(&self) -> bool {
        self.response_body
            .as_ref()
            .is_none_or(RecvStream::is_end_stream)
    }

    pub fn size_hint(&self) -> SizeHint {
        if self.is_over() {
            return SizeHint::with_exact(0);
        }
        self.remaining_length
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Refuses more fields than a head of HTTP/1.1 may have. `h2` limits the bytes.
fn check_field_count(fields: &HeaderMap) -> Result<(), Malformed> {
    match fields.len() > MAX_FIELDS {
        true => Err(Malformed("it has too many fields")),
        false => Ok(()),
    }
}

fn to_message_error(error: h2::Error) -> MessageError {
    match error.is_io() {
        true => error
            .into_io()
            .map_or(MessageError::Closed, MessageError::Io),
        false => MessageError::Io(io::Error::other(error)),
    }
}

/// Builds a request for `h2`. With a `protocol` it is an extended CONNECT: RFC 8441. Fails for an invalid target or host.
fn build_request(
    head: &Head,
    protocol: Option<&[u8]>,
    is_tls: bool,
) -> Result<Request<()>, http::Error> {
    let mut fields = HeaderMap::from(head.fields.clone());
    fields.remove(CONNECTION);
    fields.remove(UPGRADE);
    let authority = fields.remove(HOST);
    let authority = authority.as_ref().map_or(&b""[..], |host| host.as_bytes());
    let target = head.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let builder = Builder::new()
        .scheme(if is_tls { "https" } else { "http" })
        .authority(authority);
    // The target of `http://host?query` has no path.
    let uri = if target.starts_with(['/', '*']) {
        builder.path_and_query(target)
    } else {
        builder.path_and_query(format!("/{target}"))
    }
    .build()?;
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    *request.method_mut() = head.method.clone();
    if let Some(protocol) = protocol.and_then(|name| std::str::from_utf8(name).ok()) {
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from(protocol));
        fields.remove(websocket::KEY_FIELD);
    }
    *request.headers_mut() = fields;
    Ok(request)
}
