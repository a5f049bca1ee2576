//! The interface between queries and a store of samples. An implementation decides which series exist and how their
//! samples are read.

use super::error::Error;
use super::labels::{Labels, Matcher};
use super::window::Sample;

/// A store of samples.
pub trait SampleSource {
    /// Reads the samples of all series whose labels match. `range_ms` has the first and the last millisecond since 1970
    /// that is read.
    ///
    /// # Errors
    ///
    /// Fails if there are more than `max_samples`, or if they cannot be read.
    fn select(
        &self,
        matchers: &[Matcher],
        range_ms: (i64, i64),
        max_samples: usize,
    ) -> Result<SelectedSeries, Error>;

    /// Checks whether the evaluation should go on. It is called at each step, and every few milliseconds in between.
    ///
    /// # Errors
    ///
    /// Fails if the deadline has passed or no client waits any more. The error ends the evaluation. A source without a
    /// deadline never fails here, which is the default.
    fn check_deadline(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Series with their samples.
#[derive(Clone, Debug, Default)]
pub struct SelectedSeries {
    /// The series, sorted by labels, with their samples in order.
    pub series: Vec<SampledSeries>,
    /// Milliseconds between two successive samples of a series where none is missing.
    pub step_ms: i64,
}

/// The labels of a series, and its samples in the order of time.
pub type SampledSeries = (Labels, Vec<Sample>);
