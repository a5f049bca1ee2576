//! Answers one call of gRPC: which method it is, and what becomes of it. It reads and sends nothing by itself.
//!
//! What a client of the caller can bring about is refused by the protocol's own answer, not by an error: proxies usually
//! admit a request if the service fails.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::StatusCode;
use tokio::time::timeout;

use super::grpc::{self, CROWDED, Failure, INCOMPLETE, LATE, Message, TOO_LARGE};
use super::rate_limit;
use super::rate_limit_answer::refused_unseen;
use super::rate_limit_messages::{RateLimitRequest, RequestError, decode_health_request};
use crate::base::proto_message::ProtoMessage;
use crate::http::head::Head;
use crate::serve::stack::downstream::Downstream;
use crate::serve::stack::layers::Stack;
use crate::serve::stack::observed_call::ObservedCall;
use crate::serve::stack::peer::Peer;
use crate::serve::stack::request_outcome::RequestOutcome;
use crate::throttle::admission::JointError;

/// The name of the service in paths and in health checks.
const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const RATE_LIMIT_PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH_PATH: &str = "/grpc.health.v1.Health/Check";

/// The statuses of `grpc.health.v1`.
const SERVING: u64 = 1;
const NOT_SERVING: u64 = 2;

const UNKNOWN_METHOD: Failure = Failure::new(Failure::UNIMPLEMENTED, "there is no such method");
const UNKNOWN_SERVICE: Failure = Failure::new(Failure::NOT_FOUND, "there is no such service");

/// Why descriptors cannot be decided together, for the log.
fn reason_of(error: JointError) -> &'static str {
    match error {
        JointError::TooManyCounters => {
            "the descriptors count in more than 250 counters: send fewer, or write fewer limits"
        }
        JointError::SharedNetwork => {
            "a shared store cannot count two addresses of one IPv6 network in one call: send one, or count by `remote_address`"
        }
    }
}

/// A call whose head has come.
pub struct GrpcCall {
    /// The head.
    pub head: Rc<Head>,
    /// The stream of the call.
    pub downstream: Downstream,
    /// The caller's end of the connection.
    pub peer: Rc<Peer>,
}

/// What the caller gets.
pub enum Reply {
    /// A message, with its prefix, and the status OK.
    Message(Bytes),
    /// A status without a message.
    Failure(Failure),
    /// The status of HTTP, because the request is no call.
    Refused(StatusCode),
}

impl Reply {
    fn message(message: &[u8]) -> Reply {
        Reply::Message(grpc::frame_message(message))
    }

    /// The status of HTTP, and the length of the response in bytes.
    fn status_and_length(&self) -> (StatusCode, usize) {
        match self {
            Reply::Message(message) => (StatusCode::OK, message.len()),
            Reply::Failure(_) => (StatusCode::OK, 0),
            Reply::Refused(status) => (*status, 0),
        }
    }
}

impl GrpcCall {
    /// Answers the call. `reading` returns its message. `leaving` is ready when the caller has given the call up, with the
    /// reason for the log; the result is then `None`, and the call is recorded.
    ///
    /// The value beside the reply must live until the reply is sent: it then records the call. Health checks are not
    /// recorded.
    pub async fn answer(
        &self,
        stack: &Stack,
        reading: impl Future<Output = Result<Message, Failure>>,
        leaving: impl Future<Output = &'static str>,
    ) -> Option<(Reply, Option<ObservedCall>)> {
        let path = self.head.uri.path();
        if path == HEALTH_PATH && grpc::find_objection(&self.head).is_none() {
            return Some((self.check_health(reading).await, None));
        }
        let generation = self.peer.worker.generation();
        let observed =
            stack.observe_call(&self.head, &self.downstream, self.peer.clone(), generation);
        let (reply, outcome) = match grpc::find_objection(&self.head) {
            Some(status) => (Reply::Refused(status), RequestOutcome::Rejected),
            None if path != RATE_LIMIT_PATH => {
                (Reply::Failure(UNKNOWN_METHOD), RequestOutcome::Rejected)
            }
            None => {
                let deciding = self.decide_in_time(&observed, reading);
                // The caller is checked first, because a closed stream has lost what was received of the message.
                match select(pin!(leaving), pin!(deciding)).await {
                    Either::Left((reason, _)) => {
                        observed.context().reason.set(Some(reason));
                        return None;
                    }
                    Either::Right((answered, _)) => answered,
                }
            }
        };
        let (status, length) = reply.status_and_length();
        if let Reply::Failure(failure) = &reply {
            observed.context().reason.set(Some(failure.detail));
        }
        observed.conclude(status, length, outcome);
        Some((reply, Some(observed)))
    }

    /// Decides within the caller's deadline, if it has one.
    async fn decide_in_time(
        &self,
        observed: &ObservedCall,
        reading: impl Future<Output = Result<Message, Failure>>,
    ) -> (Reply, RequestOutcome) {
        let deciding = self.decide(observed, reading);
        let late = || (Reply::Failure(LATE), RequestOutcome::Failed);
        match grpc::find_timeout(&self.head) {
            Some(time) => timeout(time, deciding).await.unwrap_or_else(|_| late()),
            None => deciding.await,
        }
    }

    async fn decide(
        &self,
        observed: &ObservedCall,
        reading: impl Future<Output = Result<Message, Failure>>,
    ) -> (Reply, RequestOutcome) {
        let refuse_unseen = |reason| {
            observed.context().reason.set(Some(reason));
            let message = refused_unseen().encode();
            (Reply::message(&message), RequestOutcome::Rejected)
        };
        let message = match self.read_in_time(reading).await {
            Ok(message) => message,
            Err(failure @ (TOO_LARGE | CROWDED)) => return refuse_unseen(failure.detail),
            Err(failure) => return (Reply::Failure(failure), RequestOutcome::Rejected),
        };
        let request = match RateLimitRequest::decode(&message) {
            Ok(request) => request,
            Err(error @ RequestError::TooMany) => return refuse_unseen(error.detail()),
            Err(error) => {
                let failure = Failure::new(Failure::INVALID_ARGUMENT, error.detail());
                return (Reply::Failure(failure), RequestOutcome::Rejected);
            }
        };
        match rate_limit::decide(observed, &request).await {
            Ok((response, outcome)) => (Reply::message(&response.encode()), outcome),
            Err(error) => refuse_unseen(reason_of(error)),
        }
    }

    /// Reads the message within the time that a head of a request may take.
    async fn read_in_time(
        &self,
        reading: impl Future<Output = Result<Message, Failure>>,
    ) -> Result<Message, Failure> {
        let reading = timeout(self.peer.header_timeout, reading);
        reading.await.unwrap_or(Err(INCOMPLETE))
    }

    /// Says whether callers should send requests here, as `/readyz` does.
    async fn check_health(&self, reading: impl Future<Output = Result<Message, Failure>>) -> Reply {
        let message = match self.read_in_time(reading).await {
            Ok(message) => message,
            Err(failure) => return Reply::Failure(failure),
        };
        match decode_health_request(&message) {
            Some("" | SERVICE) => {}
            Some(_) => return Reply::Failure(UNKNOWN_SERVICE),
            None => {
                let detail = RequestError::Malformed.detail();
                return Reply::Failure(Failure::new(Failure::INVALID_ARGUMENT, detail));
            }
        }
        let status = match self.peer.worker.is_ready() {
            true => SERVING,
            false => NOT_SERVING,
        };
        Reply::message(&ProtoMessage::default().with_uint(1, status).into_bytes())
    }
}
