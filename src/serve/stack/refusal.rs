//! Why a request is not served, and the response that its client gets. One exhaustive match maps each cause to a status.
//! The response of a limit comes complete from `limit_refusal.rs`.
//!
//! Facts that a client may not learn, such as a server's address, reach the log and never the response.

use std::future::{Future, Ready};
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::future::Either;
use http::StatusCode;

use super::ban_refusal::{BanRefusal, NOT_ALLOWED};
use super::body;
use super::refusal_document::{grpc_response, problem_response, redirect_response};
use crate::http::head::{Fields, Response, ResponseHead};
use crate::identity::{Denial, Unverified};
use crate::limit::pressure::{RequestClass, Shed};
use crate::limit::{AccessEffect, Identity};
use crate::operator::BanResponse;
use crate::serve::stack::request_outcome::RequestOutcome;
use crate::throttle::{FailedRequest, RequestEnd, reject};
use crate::upstream;

/// Seconds after which a client whose credential was not checked may try again. An address regains one failed check each
/// second.
const UNCHECKED_RETRY_SECONDS: u64 = 1;

/// Why a request is not served.
#[derive(Debug)]
pub enum RefusalCause {
    /// The request breaks a rule of HTTP, has no safe reading, or cannot be counted. The text completes the sentence "The
    /// request is refused: …".
    Bad(&'static str),
    /// The head is too large.
    TooLarge,
    /// The target is too long.
    LongTarget,
    /// The version of HTTP is not supported.
    Version,
    /// The certificate of the connection does not cover the host: RFC 9110 section 15.5.20.
    Misdirected,
    /// The listener sends every request to this URL.
    Redirected(String),
    /// No policy matches the host and the path.
    NoRoute,
    /// Policies match the path with other methods only. The text is the list of these methods for `Allow`.
    WrongMethod(String),
    /// The policy requires this identity, and the request does not have it.
    Unidentified(Identity),
    /// The policy requires a user of another source than the one that verified the client's.
    OtherUserSource,
    /// The credential does not verify.
    Unverified(Unverified),
    /// The credential was not checked, because a limit refuses the address or too many of its credentials have failed.
    Unchecked,
    /// A list of `deny` or `allow` refuses the client.
    Denied(Box<Denial>),
    /// The client is banned.
    Banned(BanRefusal),
    /// A limit refuses the request, with this response.
    Limited(Rc<Response<Bytes>>),
    /// The upstream is under pressure, and other requests have priority.
    Shed(Shed),
    /// A preflight of a browser gets its response here, not from an upstream.
    Preflight {
        /// Whether pages of the origin may send requests.
        is_allowed: bool,
    },
    /// The response of the route is none that a proxy that asks can give.
    NotServed,
    /// The caller asks what it has left of its limits, and gets this response.
    Usage(Rc<Response<Bytes>>),
    /// The body is larger than this number of bytes, which the route allows.
    BodyTooLarge(u64),
    /// The client stopped sending its body.
    SlowBody,
    /// The client's body broke off.
    BrokenBody,
    /// The upstream could not be reached, or sent no whole response.
    Upstream(upstream::Error),
}

impl RefusalCause {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        status_and_detail(self).0
    }

    /// The `detail` of the problem document (RFC 9457).
    pub fn detail(&self) -> String {
        status_and_detail(self).1
    }

    /// Whether the client gets no response: its connection is closed, or its stream is reset.
    pub fn is_silent(&self) -> bool {
        match self {
            RefusalCause::Denied(denial) => denial.list.is_silent,
            RefusalCause::Banned(refusal) => refusal.kind == BanResponse::Silent,
            _ => false,
        }
    }

    /// Whether the client is refused for who it is: it is denied or banned. No limit counts such a request, unless it has a
    /// credential that does not verify.
    pub fn is_about_client(&self) -> bool {
        matches!(self, RefusalCause::Denied(_) | RefusalCause::Banned(_))
    }

    /// Whether a connection of HTTP/1 must close, because it may be unclear where the request ends.
    pub fn must_close(&self) -> bool {
        match self {
            RefusalCause::Bad(_)
            | RefusalCause::TooLarge
            | RefusalCause::LongTarget
            | RefusalCause::Version
            | RefusalCause::SlowBody
            | RefusalCause::BrokenBody => true,
            RefusalCause::Misdirected
            | RefusalCause::Redirected(_)
            | RefusalCause::NoRoute
            | RefusalCause::WrongMethod(_)
            | RefusalCause::Unidentified(_)
            | RefusalCause::OtherUserSource
            | RefusalCause::Unverified(_)
            | RefusalCause::Unchecked
            | RefusalCause::Denied(_)
            | RefusalCause::Banned(_)
            | RefusalCause::Limited(_)
            | RefusalCause::Shed(_)
            | RefusalCause::Preflight { .. }
            | RefusalCause::NotServed
            | RefusalCause::Usage(_)
            | RefusalCause::BodyTooLarge(_)
            | RefusalCause::Upstream(_) => false,
        }
    }
}

/// The future of a response or a refusal, for rare cases. It is boxed, because it would make the future of every request
/// as large.
pub(super) type BoxedOutcome<T> = Pin<Box<dyn Future<Output = Result<T, Refusal>>>>;

/// The same, or a refusal that needs no allocation: clients that are banned may send many requests.
pub(super) type RareOutcome<T> = Either<BoxedOutcome<T>, Ready<Result<T, Refusal>>>;

/// The refusal of a request, with everything that the response depends on.
#[derive(Debug)]
pub struct Refusal {
    cause: RefusalCause,
    /// Whether the request is a gRPC call, which gets a gRPC status.
    is_grpc: bool,
    /// Whether it is certain that nothing of the request went to an upstream.
    is_unsent: bool,
}

impl Refusal {
    /// The refusal of a request with these header fields.
    pub fn new(cause: RefusalCause, fields: &Fields) -> Refusal {
        Refusal {
            cause,
            is_grpc: reject::is_grpc(fields),
            is_unsent: false,
        }
    }

    /// The refusal of a request by a limit, with a response that is complete already.
    pub fn limited(response: Rc<Response<Bytes>>) -> Refusal {
        Refusal {
            cause: RefusalCause::Limited(response),
            is_grpc: false,
            is_unsent: false,
        }
    }

    /// The refusal of a request with these header fields, of which nothing went to an upstream.
    pub fn unsent(cause: RefusalCause, fields: &Fields) -> Refusal {
        // The response to a banned client is complete already.
        let is_grpc = !matches!(cause, RefusalCause::Banned(_)) && reject::is_grpc(fields);
        Refusal {
            cause,
            is_grpc,
            is_unsent: true,
        }
    }

    /// Whether the client gets no response: its connection is closed, or its stream is reset.
    pub fn is_silent(&self) -> bool {
        self.cause.is_silent()
    }

    /// The outcome of the request, for metrics and the access log.
    pub fn outcome(&self) -> RequestOutcome {
        match self.cause {
            RefusalCause::Limited(_) => RequestOutcome::Refused,
            RefusalCause::Shed(_) => RequestOutcome::Shed,
            RefusalCause::Denied(_) => RequestOutcome::Denied,
            RefusalCause::Banned(_) => RequestOutcome::Banned,
            // As on a route with a redirect.
            RefusalCause::Redirected(_) => RequestOutcome::Admitted,
            RefusalCause::Usage(_) => RequestOutcome::Usage,
            RefusalCause::Upstream(_) => RequestOutcome::Failed,
            RefusalCause::BrokenBody => RequestOutcome::Gone,
            RefusalCause::Preflight { is_allowed: true } => RequestOutcome::Admitted,
            RefusalCause::Bad(_)
            | RefusalCause::TooLarge
            | RefusalCause::LongTarget
            | RefusalCause::Version
            | RefusalCause::Misdirected
            | RefusalCause::NoRoute
            | RefusalCause::WrongMethod(_)
            | RefusalCause::Unidentified(_)
            | RefusalCause::OtherUserSource
            | RefusalCause::Unverified(_)
            | RefusalCause::Unchecked
            | RefusalCause::Preflight { is_allowed: false }
            | RefusalCause::NotServed
            | RefusalCause::BodyTooLarge(_)
            | RefusalCause::SlowBody => RequestOutcome::Rejected,
        }
    }

    /// The `reason` in the access log; `None` for a redirect, for what a caller has left of its limits, and for a limit's refusal, whose line names the limit.
    pub fn reason(&self) -> Option<&'static str> {
        match &self.cause {
            RefusalCause::Limited(_) | RefusalCause::Redirected(_) | RefusalCause::Usage(_) => None,
            RefusalCause::Shed(shed) => Some(match shed.class {
                RequestClass::Critical => "shed, though critical",
                RequestClass::Normal => "shed as normal",
                RequestClass::Low => "shed as low",
            }),
            RefusalCause::Bad(detail) => Some(detail),
            RefusalCause::TooLarge => Some("head too large"),
            RefusalCause::LongTarget => Some("target too long"),
            RefusalCause::Version => Some("version not supported"),
            RefusalCause::Misdirected => Some("host not covered by the certificate"),
            RefusalCause::NoRoute => Some("no route"),
            RefusalCause::WrongMethod(_) => Some("method not allowed"),
            RefusalCause::Unidentified(_) => Some("identity required"),
            RefusalCause::OtherUserSource => Some("user of another source"),
            RefusalCause::Unverified(_) => Some("credential does not verify"),
            RefusalCause::Unchecked => Some("credential not checked"),
            RefusalCause::Preflight { is_allowed: true } => Some("preflight"),
            RefusalCause::Preflight { is_allowed: false } => Some("origin not allowed"),
            RefusalCause::Denied(denial) => Some(match denial.list.effect {
                AccessEffect::Deny => "denied",
                AccessEffect::Allow => "not allowed",
            }),
            RefusalCause::NotServed => Some("answered by the gateway only"),
            RefusalCause::Banned(_) => Some("banned"),
            RefusalCause::BodyTooLarge(_) => Some("request body too large"),
            RefusalCause::SlowBody => Some("request body too slow"),
            RefusalCause::BrokenBody => Some("request body broke off"),
            RefusalCause::Upstream(error) => Some(upstream_reason(error)),
        }
    }

    /// The response to the client.
    pub fn into_response(self) -> Response<Bytes> {
        if let RefusalCause::Limited(response)
        | RefusalCause::Usage(response)
        | RefusalCause::Banned(BanRefusal { response, .. }) = self.cause
        {
            return Rc::unwrap_or_clone(response);
        }
        if let RefusalCause::Preflight { is_allowed: true } = self.cause {
            return Response {
                head: ResponseHead {
                    status: StatusCode::NO_CONTENT,
                    ..ResponseHead::default()
                },
                body: Bytes::new(),
            };
        }
        if let RefusalCause::Redirected(location) = &self.cause {
            return redirect_response(self.cause.status(), location);
        }
        let (status, detail) = status_and_detail(&self.cause);
        let mut response = if self.is_grpc {
            grpc_response(status, &detail)
        } else {
            let problem_type = match &self.cause {
                RefusalCause::Shed(_) => reject::REDUCED_CAPACITY,
                _ => "about:blank",
            };
            problem_response(status, problem_type, &detail)
        };
        let fields = &mut response.head.fields;
        match &self.cause {
            RefusalCause::Unidentified(_) | RefusalCause::Unverified(_) => {
                fields.add("www-authenticate", b"Bearer");
            }
            RefusalCause::Unchecked => {
                fields.add("cache-control", b"no-store");
                reject::add_retry_after(fields, UNCHECKED_RETRY_SECONDS, self.is_grpc);
            }
            RefusalCause::Denied(_) | RefusalCause::OtherUserSource => {
                fields.add("cache-control", b"no-store");
            }
            cause if cause.must_close() => fields.add("connection", b"close"),
            RefusalCause::WrongMethod(allow) => fields.add("allow", allow.as_bytes()),
            RefusalCause::Shed(shed) => {
                reject::add_retry_after(fields, shed.retry_after.ceil_secs(), self.is_grpc);
            }
            _ => {}
        }
        response
    }
}

/// The status of a refusal's response, and the `detail` of its problem document.
fn status_and_detail(cause: &RefusalCause) -> (StatusCode, String) {
    match cause {
        RefusalCause::Bad(detail) => (
            StatusCode::BAD_REQUEST,
            format!("The request is refused: {detail}."),
        ),
        RefusalCause::TooLarge => (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "The head of the request is too large.".into(),
        ),
        RefusalCause::LongTarget => (
            StatusCode::URI_TOO_LONG,
            "The target of the request is too long.".into(),
        ),
        RefusalCause::Version => (
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "Only HTTP/1.0, HTTP/1.1 and HTTP/2 are served here.".into(),
        ),
        RefusalCause::Misdirected => (
            StatusCode::MISDIRECTED_REQUEST,
            "The certificate of this connection is not for the host of the request; use a connection of its own.".into(),
        ),
        RefusalCause::Redirected(location) => (
            StatusCode::PERMANENT_REDIRECT,
            format!("This listener sends every request to HTTPS: {location}."),
        ),
        RefusalCause::NoRoute => (
            StatusCode::NOT_FOUND,
            "No policy matches this request.".into(),
        ),
        RefusalCause::WrongMethod(_) => (
            StatusCode::METHOD_NOT_ALLOWED,
            "Policies match this path with other methods only.".into(),
        ),
        RefusalCause::Unidentified(identity) => (
            StatusCode::UNAUTHORIZED,
            format!("This route requires a valid {}.", identity.as_str()),
        ),
        // The credential verifies, so another request with it ends alike: RFC 9110 section 15.5.4.
        RefusalCause::OtherUserSource => (
            StatusCode::FORBIDDEN,
            "This route does not accept users of this issuer or kind of credential.".into(),
        ),
        RefusalCause::Unverified(reason) => (
            StatusCode::UNAUTHORIZED,
            unverified_detail(*reason).into(),
        ),
        RefusalCause::Unchecked => (
            StatusCode::TOO_MANY_REQUESTS,
            "The credential was not checked, because its address is refused or too many others of it failed; try again in 1 s.".into(),
        ),
        RefusalCause::Denied(_) => (
            StatusCode::FORBIDDEN,
            NOT_ALLOWED.into(),
        ),
        RefusalCause::Banned(refusal) => (refusal.status(), refusal.detail()),
        RefusalCause::Limited(_) => (StatusCode::TOO_MANY_REQUESTS, String::new()),
        RefusalCause::Shed(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The upstream is under pressure, and other requests matter more.".into(),
        ),
        RefusalCause::Preflight { is_allowed: true } => (
            StatusCode::NO_CONTENT,
            "The gateway answers this preflight itself.".into(),
        ),
        RefusalCause::Preflight { is_allowed: false } => (
            StatusCode::FORBIDDEN,
            "Pages of this origin may not send such requests.".into(),
        ),
        RefusalCause::NotServed => (
            StatusCode::FORBIDDEN,
            "The gateway answers such requests itself, which a proxy that asks cannot do.".into(),
        ),
        RefusalCause::Usage(_) => (StatusCode::OK, String::new()),
        RefusalCause::BodyTooLarge(max_bytes) => (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The request body is larger than {max_bytes} bytes."),
        ),
        RefusalCause::SlowBody => (
            StatusCode::REQUEST_TIMEOUT,
            "The request body did not arrive in time.".into(),
        ),
        RefusalCause::BrokenBody => (
            StatusCode::BAD_REQUEST,
            "The request body broke off.".into(),
        ),
        RefusalCause::Upstream(error) => {
            let (status, detail) = upstream_status_and_detail(error);
            (status, detail.into())
        }
    }
}

/// The status and the `detail` for a request whose upstream failed. The text names neither the server nor the cause.
fn upstream_status_and_detail(error: &upstream::Error) -> (StatusCode, &'static str) {
    match error {
        upstream::Error::FirstByteTimeout { .. } | upstream::Error::TotalTimeout { .. } => (
            StatusCode::GATEWAY_TIMEOUT,
            "The upstream did not respond in time.",
        ),
        upstream::Error::ConnectTimeout { .. } | upstream::Error::Connect { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The upstream cannot be reached.",
        ),
        upstream::Error::Unavailable { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "No server of the upstream is available.",
        ),
        upstream::Error::Full { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The upstream has too many requests.",
        ),
        upstream::Error::Exchange { .. } => (
            StatusCode::BAD_GATEWAY,
            "The upstream broke off its response.",
        ),
    }
}

/// The `detail` for a credential that does not verify. It helps the owner, and says nothing about the gateway's keys.
fn unverified_detail(reason: Unverified) -> &'static str {
    match reason {
        Unverified::Expired => "The token has expired.",
        Unverified::NotYet => "The token is not valid yet.",
        Unverified::NoExpiry => "The token has no expiry.",
        Unverified::Scheme => "The credential is not of the scheme that this route asks for.",
        Unverified::Certificate => "The client certificate names no user.",
        Unverified::Revoked => "The API key was revoked.",
        Unverified::Issuer
        | Unverified::Audience
        | Unverified::KeyId
        | Unverified::NoKeySet
        | Unverified::Signature
        | Unverified::Malformed
        | Unverified::Claim
        | Unverified::UnknownKey
        | Unverified::Ambiguous
        | Unverified::Field
        | Unverified::Peer
        | Unverified::Unchecked => "The credential does not verify.",
    }
}

/// The word in metrics and the access log for why an upstream sent no response.
pub fn upstream_reason(error: &upstream::Error) -> &'static str {
    match error {
        upstream::Error::ConnectTimeout { .. } => "connect timeout",
        upstream::Error::Connect { .. } => "connect failed",
        upstream::Error::Exchange { .. } => "no answer",
        upstream::Error::FirstByteTimeout { .. } => "first byte timeout",
        upstream::Error::TotalTimeout { .. } => "total timeout",
        upstream::Error::Unavailable { .. } => "no server available",
        upstream::Error::Full { .. } => "too many requests",
    }
}

impl From<body::Error> for RefusalCause {
    fn from(error: body::Error) -> RefusalCause {
        match error {
            body::Error::Idle(_) => RefusalCause::SlowBody,
            body::Error::TooLarge(max_bytes) => RefusalCause::BodyTooLarge(max_bytes),
            // All of these but `Broken` arise only in responses' bodies.
            body::Error::Broken(_)
            | body::Error::Upstream(_)
            | body::Error::Silent(_)
            | body::Error::Unused(_)
            | body::Error::Overdue
            | body::Error::Compression(_) => RefusalCause::BrokenBody,
        }
    }
}

impl FailedRequest for Refusal {
    fn end(&self) -> RequestEnd {
        use upstream::Error::{Connect, ConnectTimeout, Full, Unavailable};
        match &self.cause {
            cause if self.is_unsent => RequestEnd::Status(cause.status().as_u16()),
            RefusalCause::Upstream(
                Connect { .. } | ConnectTimeout { .. } | Unavailable { .. } | Full { .. },
            ) => RequestEnd::Unsent,
            RefusalCause::Upstream(_) => RequestEnd::Status(self.cause.status().as_u16()),
            // The client's body broke off or is late. The server may have processed a part of the request.
            _ => RequestEnd::Unknown,
        }
    }
}
