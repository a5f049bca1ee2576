//! Exemplars: single requests as examples of those that a bucket of a histogram counts.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use super::buckets::BUCKET_COUNT;

/// A traced request as an example of those that a histogram's bucket counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The id of the trace.
    pub trace_id: u128,
    /// The id of the span.
    pub span_id: u64,
    /// The value that was counted, in seconds.
    pub seconds: f64,
    /// When it was counted, since 1970.
    pub at: Duration,
}

/// The exemplar as it stands behind the value of a sample.
impl fmt::Display for Exemplar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exemplar {
            trace_id,
            span_id,
            seconds,
            at,
        } = self;
        let (whole, millis) = (at.as_secs(), at.subsec_millis());
        write!(
            f,
            " # {{trace_id=\"{trace_id:032x}\",span_id=\"{span_id:016x}\"}} {seconds} {whole}.{millis:03}"
        )
    }
}

/// The latest exemplars of one worker's histogram, one for each bucket at most. The lock is shared with scrapes only,
/// which copy 36 values under it.
#[derive(Debug)]
pub struct BucketExemplars(Mutex<[Option<Exemplar>; BUCKET_COUNT]>);

impl Default for BucketExemplars {
    fn default() -> BucketExemplars {
        BucketExemplars(Mutex::new([None; BUCKET_COUNT]))
    }
}

impl BucketExemplars {
    /// Keeps an exemplar of a bucket, in place of the one before.
    pub fn set(&self, bucket_index: usize, exemplar: Exemplar) {
        if let Some(slot) = self.0.lock().get_mut(bucket_index) {
            *slot = Some(exemplar);
        }
    }

    /// A copy of the exemplar of each bucket.
    pub fn all(&self) -> [Option<Exemplar>; BUCKET_COUNT] {
        *self.0.lock()
    }
}
