//! The entries of a report, in whichever form they are written: their names, how many there may be, and why
//! one is refused.

/// Bytes of a value at most.
pub const LONGEST: usize = 4_096;
/// Entries of a value at most.
pub const MOST: usize = 64;

pub(super) const APPLICATION: &str = "application_utilization";
pub(super) const CPU: &str = "cpu_utilization";
pub(super) const NAMED: &str = "named_metrics";

/// Takes one name and its number.
pub(super) type PutEntry<'p> = dyn FnMut(&str, f64) -> Result<(), ReportError> + 'p;

/// Why a value says nothing. All of it is left out, for where one part is wrong no other is to be trusted.
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
    #[error("a load is there twice")]
    Duplicate,
}
