//! Sends an event for each second that the record has completed, as `text/event-stream`.
//!
//! Events carry only the time of the second; the dashboard then asks for the values that it shows. Bounds:
//! [`MAX_STREAMS`] streams, each for [`LIFETIME`]; browsers reconnect by themselves.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::query::opened_record;
use crate::base::clock::Nanos;
use crate::record::Record;
use crate::serve::admin::control::ControlState;
use crate::serve::admin::problem::problem;

/// Maximum number of streams.
const MAX_STREAMS: usize = 24;

/// Lifetime of a stream. It ends before the lifetime of its connection does.
const LIFETIME: Nanos = Nanos::from_secs(50);

/// Pause between two checks whether a second is complete.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

static STREAMS: Semaphore = Semaphore::const_new(MAX_STREAMS);

/// `GET /v1/record/live`.
pub async fn live(State(gateway): ControlState) -> Response {
    let record = match opened_record(&*gateway) {
        Ok(record) => record,
        Err(response) => return *response,
    };
    let Ok(permit) = STREAMS.try_acquire() else {
        let detail = format!("there are {MAX_STREAMS} streams already; try again later");
        return problem(StatusCode::SERVICE_UNAVAILABLE, &detail);
    };
    let end = gateway.clock().now().after(LIFETIME);
    let seconds = stream::unfold((1, permit), move |(last, permit)| {
        let (gateway, record) = (gateway.clone(), record.clone());
        async move {
            loop {
                let next = record.get().map_or(last, Record::last_second_end);
                if gateway.clock().now() >= end {
                    return None;
                }
                if next != last {
                    let text = format!("event: second\ndata: {{\"at\":{}}}\n\n", next - 1);
                    let piece: Result<_, Infallible> = Ok(Bytes::from(text));
                    return Some((piece, (next, permit)));
                }
                sleep(CHECK_INTERVAL).await;
            }
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(seconds)).into_response()
}
