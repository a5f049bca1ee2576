//! The refusal of a request whose client is banned, with its response. `ban_view.rs` keeps responses for the next ones.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::refusal_document::{grpc_response, problem_response};
use crate::base::clock::Nanos;
use crate::http::head::Response;
use crate::operator::{ActiveBan, BanResponse};
use crate::throttle::reject;

/// What a denied client is told, and a banned one that gets 403.
pub(super) const NOT_ALLOWED: &str = "This client is not allowed here.";

/// The status code of gRPC for a banned client: RESOURCE_EXHAUSTED, as for the refusal of a limit.
const GRPC_RESOURCE_EXHAUSTED: u16 = 8;

/// The refusal of a request whose client is banned.
#[derive(Clone, Debug)]
pub struct BanRefusal {
    /// The ban.
    pub ban: Arc<ActiveBan>,
    /// What the client gets.
    pub kind: BanResponse,
    /// The seconds until the ban ends.
    pub seconds: u64,
    /// The response; the client gets none if `kind` is [`BanResponse::Silent`].
    pub(super) response: Rc<Response<Bytes>>,
}

impl BanRefusal {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        status_of(self.kind)
    }

    /// The seconds in `Retry-After`; `None` if the response has no such field.
    pub fn retry_after(&self) -> Option<u64> {
        (self.kind == BanResponse::TooManyRequests).then_some(self.seconds)
    }

    /// The `detail` of the problem document. It does not say what is banned or why.
    pub fn detail(&self) -> String {
        detail_of(self.kind, self.seconds)
    }
}

/// The seconds until a ban ends, rounded up.
pub(super) fn seconds_until(ban: &ActiveBan, now: Nanos) -> u64 {
    ban.until.since(now).ceil_secs()
}

/// Builds the response to a banned client whose ban ends in this number of seconds.
pub(super) fn build_response(kind: BanResponse, seconds: u64, is_grpc: bool) -> Response<Bytes> {
    let (status, detail) = (status_of(kind), detail_of(kind, seconds));
    let is_told_when = kind == BanResponse::TooManyRequests;
    let mut response = match (is_grpc, is_told_when) {
        (true, true) => reject::grpc_response(GRPC_RESOURCE_EXHAUSTED, detail.as_bytes()),
        (true, false) => grpc_response(status, &detail),
        (false, true) => problem_response(status, reject::ABNORMAL_USAGE, &detail),
        (false, false) => problem_response(status, "about:blank", &detail),
    };
    let fields = &mut response.head.fields;
    fields.add("cache-control", b"no-store");
    if is_told_when {
        reject::add_retry_after(fields, seconds, is_grpc);
    }
    response
}

fn status_of(kind: BanResponse) -> StatusCode {
    match kind {
        BanResponse::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        BanResponse::Forbidden | BanResponse::Silent => StatusCode::FORBIDDEN,
    }
}

fn detail_of(kind: BanResponse, seconds: u64) -> String {
    match kind {
        BanResponse::TooManyRequests => {
            format!("This client is banned; try again in {seconds} s.")
        }
        BanResponse::Forbidden | BanResponse::Silent => NOT_ALLOWED.into(),
    }
}
