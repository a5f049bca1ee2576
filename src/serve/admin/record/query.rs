//! What the endpoints of the record share: they run queries on blocking threads, because a query may wait for the disk,
//! and only a few queries run at a time.

use std::io;
use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::record::Record;
use crate::serve::admin::control::Control;
use crate::serve::admin::problem::problem_response;

/// The most queries that run at a time: two, so that a long query does not block short ones. Each may take some tens of
/// megabytes.
const MAX_CONCURRENT_QUERIES: usize = 2;

/// One permit for each query that may run.
static QUERY_PERMITS: Semaphore = Semaphore::const_new(MAX_CONCURRENT_QUERIES);

/// The record; the cell is empty while another process still writes it.
pub(super) type SharedRecord = Arc<OnceLock<Record>>;

/// A response that says why a query failed.
pub(super) type ErrorResponse = Box<Response>;

/// A response with status 400.
pub(super) fn bad_request(detail: &str) -> ErrorResponse {
    problem_response(StatusCode::BAD_REQUEST, detail).into()
}

/// The record, which is open; otherwise a response that says why it is not.
pub(super) fn require_record(gateway: &dyn Control) -> Result<SharedRecord, ErrorResponse> {
    let Some(record) = gateway.record() else {
        let detail = "the record is off; remove `record: off` from the gateway file";
        return Err(problem_response(StatusCode::NOT_FOUND, detail).into());
    };
    if record.get().is_none() {
        let detail =
            "another process still writes the record; try again when that process has ended";
        return Err(problem_response(StatusCode::SERVICE_UNAVAILABLE, detail).into());
    }
    Ok(record)
}

/// Runs a query, and responds with its result as JSON, or with the response of [`run_query`].
pub(super) async fn respond_with_query(
    gateway: &dyn Control,
    query: impl FnOnce(&Record) -> io::Result<Value> + Send + 'static,
) -> Response {
    match run_query(gateway, query).await {
        Ok(value) => Json(value).into_response(),
        Err(response) => *response,
    }
}

/// Runs a query on a blocking thread. A query runs to its end, even if its client has left.
///
/// # Errors
///
/// The response: 404 or 503 if there is no record, 500 if it cannot be read.
pub(super) async fn run_query<T: Send + 'static>(
    gateway: &dyn Control,
    query: impl FnOnce(&Record) -> io::Result<T> + Send + 'static,
) -> Result<T, ErrorResponse> {
    let record = require_record(gateway)?;
    let permit = QUERY_PERMITS.acquire().await;
    let result = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let describe_error = |record: &Record, error| match record.folder() {
            Some(folder) => format!(
                "reading the record in `{}` failed: {error}",
                folder.display()
            ),
            None => format!("reading the record failed: {error}"),
        };
        let run_query = |record| query(record).map_err(|error| describe_error(record, error));
        record.get().map(run_query)
    });
    let failure = |detail| problem_response(StatusCode::INTERNAL_SERVER_ERROR, detail).into();
    match result.await {
        Ok(Some(Ok(value))) => Ok(value),
        Ok(Some(Err(detail))) => Err(failure(&detail)),
        _ => Err(failure("the query on the record did not end")),
    }
}
