//! Where snapshots are kept, and how often one is made.

use std::path::PathBuf;
use std::time::Duration;

/// Where counts are kept, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder, which nothing else may use.
    pub folder: PathBuf,
    /// A crash forgives at most what was counted in so long, [`Settings::SHORTEST`] to [`Settings::LONGEST`].
    pub every: Duration,
}

impl Settings {
    /// What [`Settings::every`] is where nobody says.
    pub const USUAL: Duration = Duration::from_secs(10);
    /// The least that it may be.
    pub const SHORTEST: Duration = Duration::from_secs(1);
    /// The most that it may be.
    pub const LONGEST: Duration = Duration::from_secs(600);
}
