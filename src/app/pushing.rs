//! Starts pushing the record to other engines.

use std::sync::Arc;

use super::error::Error;
use super::figures::Figures;
use super::recording::{MetricsRecorder, current_series};
use crate::policy::Process;
use crate::record::push;
use crate::record::push::Push;

/// Starts pushing if there is a record and a destination.
pub fn start(
    process: &Process,
    recorder: Option<&MetricsRecorder>,
    figures: &Arc<Figures>,
    seed: u64,
) -> Result<Option<Push>, Error> {
    let (Some(recorder), Some(settings)) = (recorder, &process.record) else {
        return Ok(None);
    };
    if process.push.is_empty() {
        return Ok(None);
    }
    let all_figures = figures.clone();
    let start = push::Start {
        settings: process.push.clone(),
        record: recorder.record(),
        folder: settings.folder.clone(),
        living: Arc::new(move || current_series(&all_figures)),
        clock: figures.clock.clone(),
        registry: figures.registry.clone(),
        seed,
    };
    Push::start(start).map(Some).map_err(Error::Thread)
}
