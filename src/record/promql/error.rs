//! The error of a query. Where Prometheus has the same error, the text is the same, because Grafana shows it.

use std::io;

use super::limits::{MAX_LABEL_BYTES, MAX_RESULT_SAMPLES};

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The query cannot be parsed, its types or times are wrong, or its text or steps exceed a bound.
    #[error("{0}")]
    Invalid(String),
    /// The query cannot be evaluated for these series, or exceeds a bound of samples, labels or work.
    #[error("{0}")]
    Execution(String),
    /// The deadline has passed, or no client waits for the result any more.
    #[error("query timed out in expression evaluation")]
    TimedOut,
    /// The samples cannot be read.
    #[error("the samples cannot be read: {0}")]
    Source(#[from] io::Error),
}

impl Error {
    /// Makes an error about the byte at `offset` in the query. The text names its line and its column, both from 1 on;
    /// the column counts bytes.
    pub(super) fn parse(query: &str, offset: usize, why: &str) -> Error {
        let before = query.get(..offset).unwrap_or(query);
        let line = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.len() - line_start + 1;
        Error::Invalid(format!("{line}:{column}: parse error: {why}"))
    }

    /// Makes an [`Error::Execution`] with this text.
    pub(super) fn execution(why: impl Into<String>) -> Error {
        Error::Execution(why.into())
    }

    /// Makes the error of a result with more than [`MAX_RESULT_SAMPLES`].
    pub(super) fn too_many_samples() -> Error {
        Error::execution(format!(
            "the answer has more than {MAX_RESULT_SAMPLES} points: ask for fewer series or a longer step"
        ))
    }

    /// Makes the error of a result with more than [`MAX_LABEL_BYTES`].
    pub(super) fn too_many_labels() -> Error {
        Error::execution(format!(
            "the labels of the answer have more than {MAX_LABEL_BYTES} bytes: ask for fewer series, or write shorter labels"
        ))
    }
}
