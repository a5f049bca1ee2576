//! Sends an event whenever the record has completed a second, as `text/event-stream`. If several were completed at
//! once, only the last one gets an event.
//!
//! Events carry only the time of the second; the dashboard then asks for the values that it shows. Bounds:
//! [`MAX_STREAMS`] streams, each for [`STREAM_LIFETIME`]. Browsers reconnect by themselves.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::query::require_record;
use crate::base::clock::Nanos;
use crate::record::Record;
use crate::serve::admin::control::ControlState;
use crate::serve::admin::problem::problem_response;

/// Maximum number of streams, so that streams are fewer than the requests that the listener serves at a time.
const MAX_STREAMS: usize = 24;

/// Lifetime of a stream, which is shorter than the lifetime of a connection.
const STREAM_LIFETIME: Nanos = Nanos::from_secs(50);

/// Pause between two checks whether a second is complete.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A permit for each stream that may be opened.
static STREAM_PERMITS: Semaphore = Semaphore::const_new(MAX_STREAMS);

/// `GET /v1/record/live`: the stream of events; 404 or 503 if no record is open, and 503 if there are [`MAX_STREAMS`]
/// streams already.
pub async fn live(State(gateway): ControlState) -> Response {
    let record = match require_record(&*gateway) {
        Ok(record) => record,
        Err(response) => return *response,
    };
    let Ok(permit) = STREAM_PERMITS.try_acquire() else {
        let detail = format!("there are {MAX_STREAMS} streams already; try again later");
        return problem_response(StatusCode::SERVICE_UNAVAILABLE, &detail);
    };
    let stream_end = gateway.clock().now().after(STREAM_LIFETIME);
    // A record without seconds ends at 1. So the last completed second gets an event at once.
    let events = stream::unfold((1, permit), move |(last_second_end, permit)| {
        let (gateway, record) = (gateway.clone(), record.clone());
        async move {
            loop {
                let record = record.get();
                let second_end = record.map_or(last_second_end, Record::last_second_end);
                if gateway.clock().now() >= stream_end {
                    return None;
                }
                if second_end != last_second_end {
                    let second = second_end - 1;
                    let text = format!("event: second\ndata: {{\"at\":{second}}}\n\n");
                    let event: Result<_, Infallible> = Ok(Bytes::from(text));
                    return Some((event, (second_end, permit)));
                }
                sleep(CHECK_INTERVAL).await;
            }
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(events)).into_response()
}
