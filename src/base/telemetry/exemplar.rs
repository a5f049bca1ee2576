//! Exemplars: single requests as examples of those that a bucket of a histogram counts.

use std::fmt;
use std::time::Duration;

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
