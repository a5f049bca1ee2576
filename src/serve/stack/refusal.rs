//! Why a request is not served, and what the client gets: one exhaustive match from cause to status.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;

use super::body;
use crate::http::head::{Fields, Response, ResponseHead};
use crate::identity::Unverified;
use crate::limit::Identity;
use crate::limit::pressure::{RequestClass, Shed};
use crate::serve::stack::outcome::RequestOutcome;
use crate::throttle::{FailedRequest, RequestEnd, reject};
use crate::upstream;

/// Why a request is not served.
#[derive(Debug)]
pub enum RefusalCause {
    /// It breaks a rule of HTTP, or servers could read it differently.
    Bad(&'static str),
    /// Its head is too large.
    TooLarge,
    /// Its target is too long.
    LongTarget,
    /// It is of another version of HTTP.
    Version,
    /// The certificate of its connection does not cover its host: RFC 9110 section 15.5.20.
    Misdirected,
    /// No policy matches.
    NoRoute,
    /// Policies match this path with these methods only, as `Allow` lists them.
    WrongMethod(String),
    /// The policy requires an identity that the request does not prove.
    Unidentified(Identity),
    /// Its credential does not verify.
    Unverified(Unverified),
    /// Its credential is not checked now, because its address is refused or too many others of it failed.
    Unchecked,
    /// A limit refuses it, with this response.
    Limited(Rc<Response<Bytes>>),
    /// It gives way under pressure to requests that matter more.
    Shed(Shed),
    /// The client stopped sending its body.
    SlowBody,
    /// The client's body broke off.
    BrokenBody,
    /// The upstream did not respond.
    Upstream(upstream::Error),
}

impl RefusalCause {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        describe(self).0
    }

    /// The `detail` of the problem document.
    pub fn detail(&self) -> String {
        describe(self).1
    }

    /// Whether the connection must close, because the rest of the request cannot be read.
    pub fn closes(&self) -> bool {
        match self {
            RefusalCause::Bad(_)
            | RefusalCause::TooLarge
            | RefusalCause::LongTarget
            | RefusalCause::Version
            | RefusalCause::SlowBody
            | RefusalCause::BrokenBody => true,
            RefusalCause::Misdirected
            | RefusalCause::NoRoute
            | RefusalCause::WrongMethod(_)
            | RefusalCause::Unidentified(_)
            | RefusalCause::Unverified(_)
            | RefusalCause::Unchecked
            | RefusalCause::Limited(_)
            | RefusalCause::Shed(_)
            | RefusalCause::Upstream(_) => false,
        }
    }
}

/// A response or a refusal to come, boxed where that is rare: the future of every request would be as large.
pub(super) type BoxedOutcome<T> = Pin<Box<dyn Future<Output = Result<T, Refusal>>>>;

/// A request that is not served.
#[derive(Debug)]
pub struct Refusal {
    why: RefusalCause,
    grpc: bool,
    /// Certainly nothing of the request went to an upstream.
    unsent: bool,
}

impl Refusal {
    /// Refuses a request with these fields.
    pub fn new(why: RefusalCause, fields: &Fields) -> Refusal {
        Refusal::with_grpc(why, reject::is_grpc(fields))
    }

    /// Refuses a request; `grpc` if it is a gRPC call, which gets a gRPC status.
    pub fn with_grpc(why: RefusalCause, grpc: bool) -> Refusal {
        Refusal {
            why,
            grpc,
            unsent: false,
        }
    }

    /// Refuses a request of which nothing went to an upstream.
    pub fn unsent(why: RefusalCause, fields: &Fields) -> Refusal {
        Refusal {
            unsent: true,
            ..Refusal::new(why, fields)
        }
    }

    /// How the request ended, for metrics and the log.
    pub fn outcome(&self) -> RequestOutcome {
        match self.why {
            RefusalCause::Limited(_) => RequestOutcome::Refused,
            RefusalCause::Shed(_) => RequestOutcome::Shed,
            RefusalCause::Upstream(_) => RequestOutcome::Failed,
            RefusalCause::BrokenBody => RequestOutcome::Gone,
            RefusalCause::Bad(_)
            | RefusalCause::TooLarge
            | RefusalCause::LongTarget
            | RefusalCause::Version
            | RefusalCause::Misdirected
            | RefusalCause::NoRoute
            | RefusalCause::WrongMethod(_)
            | RefusalCause::Unidentified(_)
            | RefusalCause::Unverified(_)
            | RefusalCause::Unchecked
            | RefusalCause::SlowBody => RequestOutcome::Rejected,
        }
    }

    /// The `reason` of the access log.
    pub fn reason(&self) -> Option<&'static str> {
        match &self.why {
            RefusalCause::Limited(_) => None,
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
            RefusalCause::Unverified(_) => Some("credential does not verify"),
            RefusalCause::Unchecked => Some("credential not checked"),
            RefusalCause::SlowBody => Some("request body too slow"),
            RefusalCause::BrokenBody => Some("request body broke off"),
            RefusalCause::Upstream(error) => Some(upstream_reason(error)),
        }
    }

    /// The response to the client.
    pub fn into_response(self) -> Response<Bytes> {
        if let RefusalCause::Limited(response) = self.why {
            return Rc::unwrap_or_clone(response);
        }
        let (status, detail) = describe(&self.why);
        let mut response = if self.grpc {
            grpc(status, &detail)
        } else {
            let kind = match &self.why {
                RefusalCause::Shed(_) => reject::REDUCED_CAPACITY,
                _ => "about:blank",
            };
            problem(status, kind, &detail)
        };
        let fields = &mut response.head.fields;
        match &self.why {
            RefusalCause::Unidentified(_) | RefusalCause::Unverified(_) => {
                fields.add("www-authenticate", b"Bearer");
            }
            // Each second one more credential of the address may fail.
            RefusalCause::Unchecked => reject::add_retry_after(fields, 1, self.grpc),
            why if why.closes() => fields.add("connection", b"close"),
            RefusalCause::WrongMethod(allow) => fields.add("allow", allow.as_bytes()),
            RefusalCause::Shed(shed) => {
                reject::add_retry_after(fields, shed.retry_after.ceil_secs(), self.grpc);
            }
            _ => {}
        }
        response
    }
}

fn describe(why: &RefusalCause) -> (StatusCode, String) {
    match why {
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
        RefusalCause::Unverified(reason) => (StatusCode::UNAUTHORIZED, unverified(*reason).into()),
        RefusalCause::Unchecked => (
            StatusCode::TOO_MANY_REQUESTS,
            "The credential was not checked, because its address is refused or too many others of it failed; try again in 1 s.".into(),
        ),
        RefusalCause::Limited(_) => (StatusCode::TOO_MANY_REQUESTS, String::new()),
        RefusalCause::Shed(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The upstream is under pressure, and other requests matter more.".into(),
        ),
        RefusalCause::SlowBody => (
            StatusCode::REQUEST_TIMEOUT,
            "The request body did not arrive in time.".into(),
        ),
        RefusalCause::BrokenBody => (
            StatusCode::BAD_REQUEST,
            "The request body broke off.".into(),
        ),
        RefusalCause::Upstream(error) => match error {
            upstream::Error::FirstByteTimeout { .. } | upstream::Error::TotalTimeout { .. } => (
                StatusCode::GATEWAY_TIMEOUT,
                "The upstream did not respond in time.".into(),
            ),
            upstream::Error::ConnectTimeout { .. } | upstream::Error::Connect { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The upstream cannot be reached.".into(),
            ),
            upstream::Error::Unavailable { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "No server of the upstream is available.".into(),
            ),
            upstream::Error::Full { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The upstream has too many requests.".into(),
            ),
            upstream::Error::Exchange { .. } => (
                StatusCode::BAD_GATEWAY,
                "The upstream broke off its response.".into(),
            ),
        },
    }
}

/// What a client learns about its credential: enough for its owner, and nothing about the gateway's keys.
fn unverified(reason: Unverified) -> &'static str {
    match reason {
        Unverified::Expired => "The token has expired.",
        Unverified::NotYet => "The token is not valid yet.",
        Unverified::NoExpiry => "The token has no expiry.",
        Unverified::Scheme => "The credential is not of the scheme that this route asks for.",
        Unverified::Certificate => "The client certificate names no user.",
        Unverified::Issuer
        | Unverified::Audience
        | Unverified::KeyId
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

/// Why an upstream did not respond, in the words of metrics and the log.
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

fn problem(status: StatusCode, kind: &str, detail: &str) -> Response<Bytes> {
    let title = match kind {
        reject::REDUCED_CAPACITY => "Temporary reduced capacity",
        _ => status.canonical_reason().unwrap_or_default(),
    };
    let body = json!({
        "type": kind, "title": title, "status": status.as_u16(), "detail": detail,
    });
    let mut head = ResponseHead {
        status,
        ..ResponseHead::default()
    };
    head.fields.add("content-type", reject::PROBLEM_JSON);
    Response {
        head,
        body: body.to_string().into(),
    }
}

/// The gRPC status that stands for an HTTP status: the gRPC project's mapping, and UNAVAILABLE for
/// an upstream that cannot be reached.
fn grpc(status: StatusCode, detail: &str) -> Response<Bytes> {
    let code = match status.as_u16() {
        400 => 13,
        401 => 16,
        404 | 405 => 12,
        408 | 504 => 4,
        _ => 14,
    };
    reject::grpc_response(code, detail.as_bytes())
}

impl From<body::Error> for RefusalCause {
    fn from(error: body::Error) -> RefusalCause {
        match error {
            body::Error::Idle(_) => RefusalCause::SlowBody,
            // A request's body has no other.
            body::Error::Broken(_)
            | body::Error::Upstream(_)
            | body::Error::Silent(_)
            | body::Error::Unused(_)
            | body::Error::Overdue => RefusalCause::BrokenBody,
        }
    }
}

impl FailedRequest for Refusal {
    fn end(&self) -> RequestEnd {
        use upstream::Error::{Connect, ConnectTimeout, Full, Unavailable};
        match &self.why {
            why if self.unsent => RequestEnd::Status(why.status().as_u16()),
            RefusalCause::Upstream(
                Connect { .. } | ConnectTimeout { .. } | Unavailable { .. } | Full { .. },
            ) => RequestEnd::Unsent,
            RefusalCause::Upstream(_) => RequestEnd::Status(describe(&self.why).0.as_u16()),
            _ => RequestEnd::Unknown,
        }
    }
}
