//! Sends one request to a destination, and decides from the response what became of its samples. Graphite has no
//! responses, so there the end of the connection decides.
//!
//! Nothing here retries, splits or counts. `sender.rs` does that, as the [`DeliveryOutcome`] says.

use std::cell::OnceCell;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::row::RowSlice;
use super::settings::{Engine, Settings};
use super::{graphite, otlp, remote_write};
use crate::base::otlp::{HEADER_FIELDS, rejected_items};
use crate::net::Roots;
use crate::net::client::BoxError;
use crate::net::export::{describe_causes, first_line, parse_retry_after, post};

/// The longest time for connecting, sending the request and reading the response, together.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest delay that a `Retry-After` may ask for, so that a mistake of the destination does not stop pushing for
/// hours.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
/// How many of the first bytes of a response are searched for the phrases below.
const MAX_SEARCHED_BYTES: usize = 4_096;
/// The port of carbon's line receiver, for a URL without one. The policy compiler requires one, so this is a fallback.
const GRAPHITE_PORT: u16 = 2003;
/// Phrases, in lower case, in which Prometheus and Mimir refuse samples of seconds that they have already, or that are
/// before those.
const DUPLICATE_PHRASES: [&str; 4] = [
    "out of order",
    "out-of-order",
    "duplicate sample",
    "sample with the same timestamp",
];
/// Phrases, in lower case, in which Prometheus and Mimir refuse samples that are too old.
const TOO_OLD_PHRASES: [&str; 4] = ["out of bounds", "out-of-bounds", "too old", "too-old"];
/// The error where a Graphite peer may have lost the lines.
const CLOSED_EARLY: &str = "it closes connections before it has read what was sent";

/// The result of a request: which of its samples the destination has. Each text is the reason that operators see.
#[derive(Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The destination has all samples.
    Accepted,
    /// The destination has all samples except `refused_count` of them.
    PartlyAccepted { refused_count: u64, reason: String },
    /// The destination refuses the whole request, because it already has samples of some of these seconds or of later
    /// ones.
    Duplicate(String),
    /// The destination refuses the whole request, because some samples are too old.
    TooOld(String),
    /// The destination refuses the request because of its size.
    TooLarge(String),
    /// The destination will never accept the request.
    Refused(String),
    /// The destination may have the samples or not. The request is to be sent again.
    Retry {
        reason: String,
        /// The delay that the destination requests with `Retry-After`, at most [`MAX_RETRY_AFTER`]; `None` if it
        /// requests none.
        requested_delay: Option<Duration>,
    },
}

/// Sends samples in one request, for at most [`REQUEST_TIMEOUT`]. `now` is the wall clock. Counters count from the
/// second `counted_since`, which only OTLP sends. A failure to send is a [`DeliveryOutcome::Retry`].
///
/// `system_roots` caches the certificates that the system trusts; it is filled when a request first needs them.
pub async fn deliver(
    settings: &Settings,
    system_roots: &OnceCell<Roots>,
    slice: RowSlice<'_>,
    counted_since: u64,
    now: Duration,
) -> DeliveryOutcome {
    let sending = async {
        match settings.engine {
            Engine::Graphite => send_graphite(settings, slice).await,
            Engine::Prometheus | Engine::Otlp => {
                send_http(settings, system_roots, slice, counted_since, now).await
            }
        }
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, sending).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => DeliveryOutcome::Retry {
            reason: describe_causes(&*error),
            requested_delay: None,
        },
        Err(_) => DeliveryOutcome::Retry {
            reason: "no answer in time".into(),
            requested_delay: None,
        },
    }
}

/// Sends lines to carbon. The protocol has no acknowledgement, so the order in which the two sides close the connection
/// takes its place.
///
/// If this side closes first, the peer has read everything before it closes too. A peer that closes first, such as a
/// proxy without a server, may have read nothing; that is an error.
async fn send_graphite(
    settings: &Settings,
    slice: RowSlice<'_>,
) -> Result<DeliveryOutcome, BoxError> {
    let lines = graphite::encode(slice, &settings.labels);
    let url_host = settings.url.host().unwrap_or_default();
    // A URL has brackets around an IPv6 address, and a socket address has none.
    let host = url_host.trim_start_matches('[').trim_end_matches(']');
    let port = settings.url.port_u16().unwrap_or(GRAPHITE_PORT);
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(&lines).await?;
    match SockRef::from(&stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => return Err(CLOSED_EARLY.into()),
        // The system reports a socket's error only once, so it must not be lost here.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
        _ => {}
    }
    stream.shutdown().await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    if let Some(error) = stream.take_error()? {
        return Err(error.into());
    }
    // Once both sides have closed and have acknowledged the other's close, the system forgets the connection. If the
    // system still has a peer address, the peer closed before our close arrived.
    match stream.peer_addr() {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(DeliveryOutcome::Accepted),
        _ => Err(CLOSED_EARLY.into()),
    }
}

/// Sends a request over HTTP, for the protocols that use it. Fails if the request cannot be encoded or sent, or if no
/// whole response comes.
async fn send_http(
    settings: &Settings,
    system_roots: &OnceCell<Roots>,
    slice: RowSlice<'_>,
    counted_since: u64,
    now: Duration,
) -> Result<DeliveryOutcome, BoxError> {
    let labels = &settings.labels;
    let (header_fields, body) = match settings.engine {
        Engine::Otlp => (
            &HEADER_FIELDS[..],
            otlp::encode(slice, labels, counted_since),
        ),
        _ => (
            &remote_write::HEADER_FIELDS[..],
            remote_write::encode(slice, labels)?,
        ),
    };
    let credentials = (settings.token.as_deref(), settings.roots.as_ref());
    let response = post(
        &settings.url,
        credentials,
        system_roots,
        header_fields,
        body,
    )
    .await?;
    let (head, response_body) = response.into_parts();
    Ok(classify_response(
        settings.engine,
        head.status,
        &head.headers,
        &response_body,
        now,
    ))
}

/// Decides what a response means for the samples of its request.
fn classify_response(
    engine: Engine,
    status: StatusCode,
    fields: &HeaderMap,
    body: &[u8],
    now: Duration,
) -> DeliveryOutcome {
    if status.is_success() {
        let rejected = (engine == Engine::Otlp).then(|| rejected_items(body));
        return match rejected.flatten() {
            Some((refused_count, reason)) => DeliveryOutcome::PartlyAccepted {
                refused_count,
                reason: first_line(reason.as_bytes()),
            },
            None => DeliveryOutcome::Accepted,
        };
    }
    let searched_bytes = &body[..body.len().min(MAX_SEARCHED_BYTES)];
    let lowercase_text = String::from_utf8_lossy(searched_bytes).to_lowercase();
    let reason = match first_line(body).as_str() {
        "" => format!("it answers {}", status.as_u16()),
        line => format!("it answers {}: {line}", status.as_u16()),
    };
    let has_any = |phrases: &[&str]| phrases.iter().any(|phrase| lowercase_text.contains(phrase));
    let is_prometheus = engine == Engine::Prometheus;
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => DeliveryOutcome::TooLarge(reason),
        StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => {
            if is_prometheus && has_any(&DUPLICATE_PHRASES) {
                DeliveryOutcome::Duplicate(reason)
            } else if is_prometheus && has_any(&TOO_OLD_PHRASES) {
                DeliveryOutcome::TooOld(reason)
            } else {
                DeliveryOutcome::Refused(reason)
            }
        }
        // Other statuses concern the destination or the way to it, not the samples. An operator can correct a wrong
        // token or path.
        _ => DeliveryOutcome::Retry {
            reason,
            requested_delay: parse_retry_after(fields, now, MAX_RETRY_AFTER),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(engine: Engine, status: u16, body: &str, expected: &DeliveryOutcome) {
        let status = StatusCode::from_u16(status).unwrap();
        let now = Duration::from_secs(784_111_777);
        let mut fields = HeaderMap::new();
        fields.insert(
            "retry-after",
            "Sun, 06 Nov 1994 08:49:47 GMT".parse().unwrap(),
        );
        let outcome = classify_response(engine, status, &fields, body.as_bytes(), now);
        assert_eq!(&outcome, expected, "{status} {body}");
    }

    #[test]
    fn responses_are_classified() {
        let (prometheus, otlp) = (Engine::Prometheus, Engine::Otlp);
        check(prometheus, 204, "", &DeliveryOutcome::Accepted);
        check(otlp, 200, "\x0a\x00", &DeliveryOutcome::Accepted);
        let partly = DeliveryOutcome::PartlyAccepted {
            refused_count: 3,
            reason: "no".into(),
        };
        check(otlp, 200, "\x0a\x06\x08\x03\x12\x02no", &partly);
        let retry = |reason: &str| DeliveryOutcome::Retry {
            reason: reason.into(),
            requested_delay: Some(Duration::from_secs(10)),
        };
        check(prometheus, 503, "", &retry("it answers 503"));
        check(otlp, 429, "later\nplease", &retry("it answers 429: later"));
        let duplicate = DeliveryOutcome::Duplicate("it answers 400: out of order sample".into());
        check(prometheus, 400, "out of order sample\n", &duplicate);
        let too_old = DeliveryOutcome::TooOld("it answers 400: out of bounds".into());
        check(prometheus, 400, "out of bounds", &too_old);
        let refused = DeliveryOutcome::Refused("it answers 400: out of order sample".into());
        check(otlp, 400, "out of order sample", &refused);
        let refused = DeliveryOutcome::Refused("it answers 422".into());
        check(prometheus, 422, "", &refused);
        let too_large = DeliveryOutcome::TooLarge("it answers 413".into());
        check(prometheus, 413, "", &too_large);
    }

    /// A wrong path or token must not drop samples that a mended one would deliver.
    #[test]
    fn mistakes_of_operators_are_waited_for() {
        for status in [
            301, 302, 307, 401, 402, 403, 404, 405, 407, 408, 411, 415, 421, 451,
        ] {
            let retry = DeliveryOutcome::Retry {
                reason: format!("it answers {status}"),
                requested_delay: Some(Duration::from_secs(10)),
            };
            check(Engine::Prometheus, status, "", &retry);
            check(Engine::Otlp, status, "", &retry);
        }
    }
}
