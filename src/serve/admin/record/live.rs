//! A word for each second that can be asked for: `text/event-stream`.
//!
//! Bounds: [`MOST`] streams, each for [`LIFE`]; browsers ask again by themselves.

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

/// Streams at a time.
const MOST: usize = 24;
/// Of a stream; a connection to the listener ends soon after.
const LIFE: Nanos = Nanos::from_secs(50);
/// Between two looks whether a second is over.
const PAUSE: Duration = Duration::from_millis(50);

static STREAMS: Semaphore = Semaphore::const_new(MOST);

/// `GET /v1/record/live`.
pub async fn live(State(gateway): ControlState) -> Response {
    let record = match opened_record(&*gateway) {
        Ok(record) => record,
        Err(answer) => return *answer,
    };
    let Ok(place) = STREAMS.try_acquire() else {
        let detail = format!("{MOST} others watch already; ask again later");
        return problem(StatusCode::SERVICE_UNAVAILABLE, &detail);
    };
    let end = gateway.clock().now().after(LIFE);
    let seconds = stream::unfold((1, place), move |(last, place)| {
        let (gateway, record) = (gateway.clone(), record.clone());
        async move {
            loop {
                let next = record.get().map_or(last, Record::reached);
                if gateway.clock().now() >= end {
                    return None;
                }
                if next != last {
                    let text = format!("event: second\ndata: {{\"at\":{}}}\n\n", next - 1);
                    let piece: Result<_, Infallible> = Ok(Bytes::from(text));
                    return Some((piece, (next, place)));
                }
                sleep(PAUSE).await;
            }
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(seconds)).into_response()
}
