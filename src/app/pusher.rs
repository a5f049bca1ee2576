//! Starts the pusher, which sends the record to other engines. `record/push/` decides what it sends and how.

use std::sync::Arc;

use super::error::Error;
use super::live_metrics::LiveMetrics;
use super::metrics_recorder::MetricsRecorder;
use super::series_table::current_series;
use crate::policy::ProcessSettings;
use crate::record::push::{PushContext, Pusher};

/// Starts the pusher; `None` without a record or without a destination. `seed` spreads the retries of several gateways
/// over time.
///
/// # Errors
///
/// [`Error::Thread`] if the thread of the pusher cannot be started.
pub fn start_pusher(
    process: &ProcessSettings,
    recorder: Option<&MetricsRecorder>,
    live_metrics: &Arc<LiveMetrics>,
    seed: u64,
) -> Result<Option<Pusher>, Error> {
    let (Some(recorder), Some(record_settings)) = (recorder, &process.record) else {
        return Ok(None);
    };
    if process.push.is_empty() {
        return Ok(None);
    }
    let metrics_of_series = live_metrics.clone();
    let context = PushContext {
        settings: process.push.clone(),
        record: recorder.record(),
        folder: record_settings.folder.clone(),
        live_series: Arc::new(move || current_series(&metrics_of_series)),
        clock: live_metrics.clock.clone(),
        registry: live_metrics.registry.clone(),
        seed,
    };
    Pusher::start(context).map(Some).map_err(Error::Thread)
}
