//! Runs queries on the record, two at a time, until they end, time out or are abandoned.

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

/// Two queries at a time, so that a long one does not block short ones. Requests of the dashboard have their own bound.
static CONCURRENT_QUERIES: Semaphore = Semaphore::const_new(2);
/// Longest time for a query, including the wait for others.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// The record, which this process has opened.
pub(super) struct RecordReader {
    record: Arc<OnceLock<Record>>,
    clock: Clock,
}

impl RecordReader {
    pub(super) fn of(gateway: &dyn Control) -> Result<RecordReader, ApiError> {
        let off = "the record is off; remove `record: off` from the gateway file";
        let record = gateway.record().ok_or(ApiError::Nowhere(off))?;
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

    /// Runs a query on a blocking thread, until it times out or this future is dropped.
    pub(super) async fn run<T: Send + 'static>(
        self,
        timeout: Duration,
        query: impl FnOnce(&RecordSamples) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, ApiError> {
        let until = self.clock.now().after(Nanos::from(timeout));
        let turn = tokio::time::timeout(timeout, CONCURRENT_QUERIES.acquire()).await;
        let turn = turn.map_err(|_| ApiError::Late("query timed out in query queue".into()))?;
        // Dropped with this future, which tells the thread that nobody waits any more.
        let asker = Arc::new(());
        let waits = Arc::downgrade(&asker);
        let run = spawn_blocking(move || {
            let _turn = turn;
            let record = self.record.get()?;
            let recorded = RecordSamples {
                record,
                exposed: &catalog::exposed(&record.series()),
                // The current second is incomplete, so no response includes it.
                now: self.clock.wall().as_secs(),
                wanted: &|| waits.strong_count() > 0 && self.clock.now() < until,
            };
            Some(query(&recorded))
        });
        match run.await {
            Ok(Some(found)) => Ok(found?),
            _ => Err(ApiError::Internal(
                "the query on the record did not end".into(),
            )),
        }
    }

    /// The labels of series that match one of the selectors, or of all series without selectors.
    pub(super) async fn fitting(
        self,
        selectors: Vec<String>,
    ) -> Result<BTreeSet<Labels>, ApiError> {
        let query = move |recorded: &RecordSamples| {
            let mut found = BTreeSet::new();
            let mut take = |matchers: &[Matcher]| -> Result<(), Error> {
                let fitting = recorded.fitting(matchers)?.into_iter();
                found.extend(fitting.map(|one| one.labels.clone()));
                Ok(())
            };
            if selectors.is_empty() {
                take(&[])?;
            }
            for text in &selectors {
                take(&promql::selector(text)?)?;
            }
            Ok(found)
        };
        self.run(TIMEOUT, query).await
    }
}
