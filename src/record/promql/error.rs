//! Why a query has no result.

use std::io;

use super::limits::{LABELS, POINTS};

/// Why a query has no result. Texts that Prometheus has too are the same as there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The query cannot be parsed, or its types or times are wrong.
    #[error("{0}")]
    Invalid(String),
    /// The query cannot be evaluated for these series.
    #[error("{0}")]
    Execution(String),
    /// No client waits for the result any more.
    #[error("query timed out in expression evaluation")]
    TimedOut,
    /// The samples cannot be read.
    #[error("the samples cannot be read: {0}")]
    Source(#[from] io::Error),
}

impl Error {
    /// An error at a byte of the query.
    pub(super) fn parse(query: &str, at: usize, why: &str) -> Error {
        let before = query.get(..at).unwrap_or(query);
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        Error::Invalid(format!("{line}:{column}: parse error: {why}"))
    }

    pub(super) fn execution(why: impl Into<String>) -> Error {
        Error::Execution(why.into())
    }

    pub(super) fn too_many_points() -> Error {
        Error::execution(format!(
            "the answer has more than {POINTS} points: ask for fewer series or a longer step"
        ))
    }

    pub(super) fn too_many_labels() -> Error {
        Error::execution(format!(
            "the labels of the answer have more than {LABELS} bytes: ask for fewer series, or write shorter labels"
        ))
    }
}
