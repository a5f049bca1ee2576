//! The settings of snapshots. `policy/decode/snapshots.rs` checks their bounds.

use std::path::PathBuf;
use std::time::Duration;

/// The folder of snapshots, and how often one is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder; nothing else may use it.
    pub folder: PathBuf,
    /// A crash loses at most the units counted in this time, from [`Settings::MIN_INTERVAL`] to [`Settings::MAX_INTERVAL`].
    pub every: Duration,
}

impl Settings {
    /// The default of [`Settings::every`].
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
    /// The shortest [`Settings::every`].
    pub const MIN_INTERVAL: Duration = Duration::from_secs(1);
    /// The longest [`Settings::every`].
    pub const MAX_INTERVAL: Duration = Duration::from_secs(600);
}
