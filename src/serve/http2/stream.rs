//! One request of HTTP/2: its head and body. RFC 9113 section 8.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::ext::Protocol;
use h2::server::SendResponse;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body::SizeHint;

use crate::head::{AnswerHead, Fields, Head};
use crate::http1::chunked::Piece;
use crate::http1::{Cause, MAX_FIELDS, MAX_TARGET};
use crate::serve::answer::Why;
use crate::serve::guard::Guard;
use crate::serve::request::passes;
use crate::serve::wire::MAX_DRAIN;

/// See the module.
pub struct Stream {
    guard: Rc<Guard>,
    inner: RefCell<Inner>,
}

struct Inner {
    respond: SendResponse<Bytes>,
    body: RecvStream,
    /// Nothing of the body is left, or none belongs to the request.
    over: bool,
    /// What of the body is left, if the client said how long it is.
    left: Option<u64>,
    /// The client waits to be told to go on.
    waits: bool,
}

impl Stream {
    /// The stream of a request with this head.
    pub fn new(
        guard: Rc<Guard>,
        respond: SendResponse<Bytes>,
        body: RecvStream,
        head: &Head,
    ) -> Rc<Stream> {
        let fields = &head.fields;
        let over = body.is_end_stream() || head.upgrade.is_some();
        let length = fields.text("content-length");
        let expects = fields.first("expect");
        let waits = expects.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
        Rc::new(Stream {
            guard,
            inner: RefCell::new(Inner {
                respond,
                body,
                over,
                left: length.and_then(|text| text.parse().ok()),
                waits: waits && !over,
            }),
        })
    }

    /// The request's deadlines.
    pub fn guard(&self) -> &Rc<Guard> {
        &self.guard
    }

    /// See [`Source::poll_body`](crate::serve::source::Source::poll_body).
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<Piece, Cause>> {
        let inner = &mut *self.inner.borrow_mut();
        if std::mem::take(&mut inner.waits) {
            inner.inform(&AnswerHead {
                status: StatusCode::CONTINUE,
                ..AnswerHead::default()
            });
        }
        loop {
            if inner.over {
                return Poll::Ready(Ok(Piece::End));
            }
            let Some(data) = ready!(inner.body.poll_data(cx)) else {
                let trailers = ready!(inner.body.poll_trailers(cx)).map_err(broken)?;
                inner.over = true;
                return Poll::Ready(Ok(trailers.map_or(Piece::End, Piece::Trailers)));
            };
            let data = data.map_err(broken)?;
            // Whoever asks for a piece has no other, so this much more may come.
            let released = inner.body.flow_control().release_capacity(data.len());
            released.map_err(broken)?;
            inner.over = inner.body.is_end_stream();
            inner.left = inner
                .left
                .map(|left| left.saturating_sub(data.len() as u64));
            if !data.is_empty() {
                return Poll::Ready(Ok(Piece::Data(data)));
            }
        }
    }

    /// Reads what is left of an unwanted body, within bounds.
    pub fn poll_drain(&self, cx: &mut Context<'_>, drained: &mut usize) -> Poll<()> {
        let inner = &mut *self.inner.borrow_mut();
        // A client that was never told to go on may send its body or not.
        while !inner.waits && *drained <= MAX_DRAIN {
            match ready!(inner.body.poll_data(cx)) {
                Some(Ok(data)) => {
                    *drained += data.len();
                    let released = inner.body.flow_control().release_capacity(data.len());
                    if released.is_err() {
                        break;
                    }
                }
                Some(Err(_)) | None => break,
            }
        }
        Poll::Ready(())
    }

    /// What comes next is another protocol, to the end of the stream.
    pub fn open_tunnel(&self) {
        let inner = &mut *self.inner.borrow_mut();
        (inner.over, inner.left) = (inner.body.is_end_stream(), None);
    }

    /// What of the body is left.
    pub fn body_left(&self) -> SizeHint {
        let inner = self.inner.borrow();
        match inner.left {
            _ if inner.over => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }

    /// All of the body has been read.
    pub fn body_is_over(&self) -> bool {
        self.inner.borrow().over
    }

    /// The client waits to be told to send the body.
    pub fn waits(&self) -> bool {
        self.inner.borrow().waits
    }

    /// Passes on an answer that comes before the final one.
    pub fn inform(&self, head: &AnswerHead) {
        self.inner.borrow_mut().inform(head);
    }

    /// Ready when the client has taken the request back or the connection has ended.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.borrow_mut().respond.poll_reset(cx).map(|_| ())
    }

    /// What the final answer is sent by.
    pub fn respond<T>(&self, send: impl FnOnce(&mut SendResponse<Bytes>) -> T) -> T {
        send(&mut self.inner.borrow_mut().respond)
    }
}

impl Inner {
    fn inform(&mut self, head: &AnswerHead) {
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.headers_mut() = HeaderMap::from(head.fields.clone());
        // One that cannot be sent shows with the answer.
        let _ = self.respond.send_informational(response);
    }
}

fn broken(error: h2::Error) -> Cause {
    if error.is_io() {
        return Cause::Io(error.into_io().unwrap_or_else(|| io::Error::other("")));
    }
    Cause::Io(io::Error::other(error))
}

/// The head of a request, its authority as its `Host`; `bodiless` when nothing follows it.
pub fn head(parts: Parts, bodiless: bool) -> Result<Head, Why> {
    let Parts {
        mut method,
        uri,
        headers,
        extensions,
        ..
    } = parts;
    let protocol = extensions.get::<Protocol>();
    let upgrade = protocol.map(|protocol| Bytes::copy_from_slice(protocol.as_str().as_bytes()));
    if let Some(protocol) = &upgrade {
        if !passes(protocol) {
            return Err(Why::Bad("it asks for a protocol that is not passed on"));
        }
        // What follows is that protocol, and belongs to no request of HTTP.
        if headers.contains_key(CONTENT_LENGTH) {
            return Err(Why::Bad("it asks for another protocol and has a length"));
        }
        // As HTTP/1.1 asks for it: RFC 8441 section 5.
        method = Method::GET;
    }
    if headers.len() > MAX_FIELDS {
        return Err(Why::TooLarge);
    }
    let target = uri.path_and_query().map(|target| target.as_str().len());
    if target.is_some_and(|length| length > MAX_TARGET) {
        return Err(Why::LongTarget);
    }
    let mut fields = Fields::with_capacity(headers.len() + 8);
    let authority = uri.authority().map(|authority| authority.as_str());
    if let Some(authority) = authority {
        fields.add("host", authority.as_bytes());
    }
    for (name, value) in &headers {
        match name.as_str() {
            "host" if authority.is_some() => {
                let same = |host: &str| value.as_bytes().eq_ignore_ascii_case(host.as_bytes());
                if !authority.is_some_and(same) {
                    return Err(Why::Bad("its authority and its Host field differ"));
                }
            }
            // One field, as HTTP/1.1 wants it: RFC 9113 section 8.2.3.
            "cookie" if fields.contains("cookie") => {}
            "cookie" => {
                let all: Vec<&[u8]> = headers.get_all(name).iter().map(|v| v.as_bytes()).collect();
                fields.add("cookie", &all.join(&b"; "[..]));
            }
            name => fields.add(name, value.as_bytes()),
        }
    }
    let has_content = matches!(method, Method::POST | Method::PUT | Method::PATCH);
    if has_content && bodiless && !headers.contains_key(CONTENT_LENGTH) {
        // Servers of HTTP/1.1 want to be told: RFC 9110 section 8.6.
        fields.add("content-length", b"0");
    }
    let uri = match (&method, uri.scheme_str()) {
        // It has no path, and is refused.
        (&Method::CONNECT, _) => uri,
        (_, Some("http" | "https")) => path(uri.path_and_query()),
        // The library gives none where there is no authority.
        (_, None) if authority.is_none() => path(uri.path_and_query()),
        _ => return Err(Why::Bad("the target is not one of HTTP")),
    };
    Ok(Head {
        method,
        uri,
        newer: true,
        upgrade,
        fields,
    })
}

fn path(target: Option<&PathAndQuery>) -> Uri {
    target.map_or_else(Uri::default, |target| Uri::from(target.clone()))
}
