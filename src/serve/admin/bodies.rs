//! [`AwaitedBodies`]: reads the body of a request before its handler runs. So a client whose body does not come holds up
//! no order of others. It takes a bounded part of the requests that the listener serves at once.

use std::collections::HashMap;
use std::error::Error as _;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use http_body_util::LengthLimitError;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::connections::network_of;
use super::control::MAX_BODY_BYTES;
use super::operator::AdminOperator;

/// Longest time for a body that is not counted. Most bodies come with the head of their request.
const PROMPT_TIMEOUT: Duration = Duration::from_millis(200);

/// Longest further time for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bodies of one client that are waited for at once, beyond [`PROMPT_TIMEOUT`].
const MAX_AWAITED: usize = 16;

/// Whose body is waited for: the name of the operator, and the network.
type WaitingClient = (Option<Arc<str>>, IpAddr);

/// Bodies that are waited for. There is an entry for each client with one, so there are no more than open requests.
#[derive(Default)]
pub(super) struct AwaitedBodies {
    counts: Mutex<HashMap<WaitingClient, usize>>,
}

/// Why a body was not read: the status of the response, and what the client is told.
pub(super) struct BodyRefusal {
    pub(super) status: StatusCode,
    pub(super) detail: &'static str,
}

impl AwaitedBodies {
    /// Reads the body of a request, which then has it whole.
    ///
    /// # Errors
    ///
    /// The body is too long, does not come in time or ends early, or the client has too many such bodies.
    pub(super) async fn read(
        &self,
        operator: &AdminOperator,
        request: Request,
    ) -> Result<Request, BodyRefusal> {
        if request.body().is_end_stream() {
            return Ok(request);
        }
        let (parts, body) = request.into_parts();
        let mut body = pin!(to_bytes(body, MAX_BODY_BYTES));
        let read = match timeout(PROMPT_TIMEOUT, body.as_mut()).await {
            Ok(read) => read,
            Err(_) => {
                let sender = (operator.name.clone(), network_of(operator.peer));
                let _awaited = AwaitedBody::new(&self.counts, sender).ok_or(BodyRefusal {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    detail: "16 requests of this operator wait for their bodies already; send the body with the head, or try again in some seconds",
                })?;
                let read = timeout(BODY_TIMEOUT, body).await;
                read.map_err(|_| BodyRefusal {
                    status: StatusCode::REQUEST_TIMEOUT,
                    detail: "the body did not arrive within 5 s; send it with the head",
                })?
            }
        };
        let bytes: Bytes = read.map_err(|error| BodyRefusal::new(&error))?;
        Ok(Request::from_parts(parts, Body::from(bytes)))
    }
}

impl BodyRefusal {
    fn new(error: &axum::Error) -> BodyRefusal {
        match error
            .source()
            .is_some_and(|source| source.is::<LengthLimitError>())
        {
            true => BodyRefusal {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                detail: "the body is longer than 1 MiB",
            },
            false => BodyRefusal {
                status: StatusCode::BAD_REQUEST,
                detail: "the body ended early, or has a mistake in its framing",
            },
        }
    }
}

/// Counts a body until it is dropped.
struct AwaitedBody<'a> {
    counts: &'a Mutex<HashMap<WaitingClient, usize>>,
    sender: WaitingClient,
}

impl AwaitedBody<'_> {
    /// `None` if the sender has [`MAX_AWAITED`] bodies already.
    fn new(
        counts: &Mutex<HashMap<WaitingClient, usize>>,
        sender: WaitingClient,
    ) -> Option<AwaitedBody<'_>> {
        let mut locked = counts.lock();
        let count = locked.entry(sender.clone()).or_default();
        if *count >= MAX_AWAITED {
            return None;
        }
        *count += 1;
        drop(locked);
        Some(AwaitedBody { counts, sender })
    }
}

impl Drop for AwaitedBody<'_> {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.sender) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.sender);
            }
        }
    }
}
