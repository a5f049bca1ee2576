//! Starts pushing the record to other engines.

use std::sync::Arc;

use super::error::Error;
use super::figures::Figures;
use super::recording::{MetricsRecorder, current_series};
use crate::policy::Process;
use crate::record::push::{PushContext, Pusher};

/// Starts pushing if there is a record and a destination.
pub fn start(
    process: &Process,
    recorder: Option<&MetricsRecorder>,
    figures: &Arc<Figures>,
    seed: u64,
) -> Result<Option<Pusher>, Error> {
    let (Some(recorder), Some(settings)) = (recorder, &process.record) else {
        return Ok(None);
    };
    if process.push.is_empty() {
        return Ok(None);
    }
    let all_figures = figures.clone();
    let context = PushContext {
        settings: process.push.clone(),
        record: recorder.record(),
        folder: settings.folder.clone(),
        live_series: Arc::new(move || current_series(&all_figures)),
        clock: figures.clock.clone(),
        registry: figures.registry.clone(),
        seed,
    };
    Pusher::start(context).map(Some).map_err(Error::Thread)
}
