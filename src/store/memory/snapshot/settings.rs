//! The folder of snapshots, and how often one is written.

use std::path::PathBuf;
use std::time::Duration;

/// The folder of snapshots, and how often one is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder; nothing else may use it.
    pub folder: PathBuf,
    /// A crash forgives at most the units counted in this time, from [`Settings::SHORTEST`] to [`Settings::LONGEST`].
    pub every: Duration,
}

impl Settings {
    /// The default of [`Settings::every`].
    pub const USUAL: Duration = Duration::from_secs(10);
    /// The shortest [`Settings::every`].
    pub const SHORTEST: Duration = Duration::from_secs(1);
    /// The longest [`Settings::every`].
    pub const LONGEST: Duration = Duration::from_secs(600);
}
