//! Runs queries on the record on blocking threads, two at a time, until they end, time out or are abandoned.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::catalog;
use super::response::ApiError;
use super::samples::RecordSamples;
use crate::base::clock::{Clock, Nanos};
use crate::record::Record;
use crate::record::promql;
use crate::record::promql::Error;
use crate::record::promql::labels::{Labels, Matcher};
use crate::serve::admin::control::Control;

/// The most queries that run at a time: two, so that a long query does not block short ones. Requests of the dashboard
/// have a bound of their own.
const MAX_CONCURRENT_QUERIES: usize = 2;

/// A permit for each query that may run.
static QUERY_PERMITS: Semaphore = Semaphore::const_new(MAX_CONCURRENT_QUERIES);

/// Longest time for a query, including the wait for other queries.
pub(super) const MAX_QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the record, which this process has opened.
pub(super) struct RecordReader {
    record: Arc<OnceLock<Record>>,
    clock: Clock,
}

impl RecordReader {
    /// A reader of the gateway's record. The error says why there is no record.
    pub(super) fn open(gateway: &dyn Control) -> Result<RecordReader, ApiError> {
        let why_off = "the record is off; remove `record: off` from the gateway file";
        let record = gateway.record().ok_or(ApiError::NotRecorded(why_off))?;
        match record.get() {
            Some(_) => Ok(RecordReader {
                record,
                clock: gateway.clock().clone(),
            }),
            None => Err(ApiError::Unavailable(
                "another process still writes the record; try again when that process has ended",
            )),
        }
    }

    /// Runs a query on a blocking thread. If it times out or this future is dropped, the thread ends at the next check
    /// of the deadline. `timeout` includes the wait for other queries.
    ///
    /// # Errors
    ///
    /// The query is invalid, fails or times out, or the record cannot be read.
    pub(super) async fn run<T: Send + 'static>(
        self,
        timeout: Duration,
        query: impl FnOnce(&RecordSamples) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, ApiError> {
        let deadline = self.clock.now().after(Nanos::from(timeout));
        let permit = tokio::time::timeout(timeout, QUERY_PERMITS.acquire()).await;
        let permit =
            permit.map_err(|_| ApiError::TimedOut("query timed out in query queue".into()))?;
        // The guard is dropped with this future, which shows the thread that no client waits for the result any more.
        let waiting_guard = Arc::new(());
        let guard_observer = Arc::downgrade(&waiting_guard);
        let result = spawn_blocking(move || {
            let _permit = permit;
            let record = self.record.get()?;
            let samples = RecordSamples {
                record,
                exposed: &catalog::expose_series(&record.series()),
                // The current second is incomplete, so no response includes it.
                now: self.clock.wall().as_secs(),
                is_wanted: &|| guard_observer.strong_count() > 0 && self.clock.now() < deadline,
            };
            Some(query(&samples))
        });
        match result.await {
            Ok(Some(result)) => Ok(result?),
            _ => Err(ApiError::Internal(
                "the query on the record did not end".into(),
            )),
        }
    }

    /// The labels of the series that match at least one selector; of all series if there is no selector.
    ///
    /// # Errors
    ///
    /// As for [`RecordReader::run`], with the longest timeout.
    pub(super) async fn matching_labels(
        self,
        selectors: Vec<String>,
    ) -> Result<BTreeSet<Labels>, ApiError> {
        let query = move |samples: &RecordSamples| {
            let mut labels = BTreeSet::new();
            let mut add_matching = |matchers: &[Matcher]| -> Result<(), Error> {
                let matching = samples.matching_series(matchers)?.into_iter();
                labels.extend(matching.map(|series| series.labels.clone()));
                Ok(())
            };
            if selectors.is_empty() {
                add_matching(&[])?;
            }
            for selector in &selectors {
                add_matching(&promql::parse_selector(selector)?)?;
            }
            Ok(labels)
        };
        self.run(MAX_QUERY_TIMEOUT, query).await
    }
}
