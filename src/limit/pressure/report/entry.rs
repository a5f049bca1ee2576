//! The entries of a report, in whichever form they are written: their names, how many there may be, and why
//! one is refused.

/// The most bytes of a value.
pub const LONGEST: usize = 4_096;
/// The most entries of a value.
pub const MOST: usize = 64;

pub(super) const APPLICATION: &str = "application_utilization";
pub(super) const CPU: &str = "cpu_utilization";
pub(super) const NAMED: &str = "named_metrics";

/// Takes the name and the number of an entry.
pub(super) type PutEntry<'p> = dyn FnMut(&str, f64) -> Result<(), ReportError> + 'p;

/// Why a value is ignored. One wrong part makes the whole value untrustworthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// More than [`LONGEST`] bytes or [`MOST`] entries.
    #[error("longer than {LONGEST} bytes or {MOST} entries")]
    Long,
    /// The binary form, or another that is not text or JSON.
    #[error("neither text nor JSON")]
    Form,
    /// An entry is not a name and a number.
    #[error("an entry is not a name and a number")]
    Entry,
    /// NaN, infinite, negative, or above [`Utilisation::MOST`](super::Utilisation::MOST).
    #[error("a load is not a number from 0 to 10")]
    Load,
    /// A load is there twice.
    #[error("a metric is reported twice")]
    Duplicate,
}
