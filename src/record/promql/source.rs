//! Where the samples of a query come from.

use super::error::Error;
use super::labels::{Labels, Matcher};
use super::window::Sample;

/// Where samples come from.
pub trait SampleSource {
    /// Reads the samples of all series that the matchers fit, of a span in milliseconds, both ends included; at most `most`
    /// samples.
    fn select(
        &self,
        matchers: &[Matcher],
        span: (i64, i64),
        most: usize,
    ) -> Result<SelectedSeries, Error>;

    /// Fails when no client waits for the result any more. Called again and again during the evaluation, which the error
    /// ends.
    fn check_deadline(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Series with their samples.
#[derive(Clone, Debug, Default)]
pub struct SelectedSeries {
    /// Sorted by labels; samples in order.
    pub series: Vec<SampledSeries>,
    /// Milliseconds from one sample to the next where none is missing.
    pub step: i64,
}

/// A series and its samples.
pub type SampledSeries = (Labels, Vec<Sample>);
