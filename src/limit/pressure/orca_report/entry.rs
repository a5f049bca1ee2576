//! What the text and the JSON form of a report have in common: the names of entries, the bounds, and the errors.
//! Neither form is parsed here.

/// The largest number of bytes of a report. A longer report is ignored as a whole.
pub const MAX_REPORT_BYTES: usize = 4_096;
/// The largest number of entries of a report. A report with more entries is ignored as a whole.
pub const MAX_REPORT_ENTRIES: usize = 64;

/// The name of the application's own load.
pub(super) const APPLICATION_METRIC: &str = "application_utilization";
/// The name of the load of the processors.
pub(super) const CPU_METRIC: &str = "cpu_utilization";
/// The name of the object, or the prefix, of metrics that the application names itself.
pub(super) const NAMED_METRICS: &str = "named_metrics";

/// A callback that gets the name and the number of each entry that may be a load. An error ends the parsing.
pub(super) type OnEntry<'p> = dyn FnMut(&str, f64) -> Result<(), ReportError> + 'p;

/// Why a report is ignored. One wrong part makes all of it untrustworthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The report has more than [`MAX_REPORT_BYTES`] bytes or [`MAX_REPORT_ENTRIES`] entries.
    #[error("longer than {MAX_REPORT_BYTES} bytes or {MAX_REPORT_ENTRIES} entries")]
    TooLong,
    /// The report is neither text nor JSON: it is in the binary form, or not UTF-8.
    #[error("neither text nor JSON")]
    UnknownForm,
    /// An entry is not a name and a number, or the JSON is malformed.
    #[error("an entry is not a name and a number")]
    BadEntry,
    /// A load is NaN, infinite, negative, or above [`Utilisation::MAX`](super::Utilisation::MAX).
    #[error("a load is not a number from 0 to 10")]
    BadLoad,
    /// A load stands in the report twice, by whichever of its spellings.
    #[error("a metric is reported twice")]
    Duplicate,
}
