//! The settings of snapshots. `policy/decode/store.rs` checks their bounds.

use std::path::PathBuf;
use std::time::Duration;

/// The folder of snapshots, and how often one is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of snapshots; nothing else may use it.
    pub folder: PathBuf,
    /// Longest time whose counts a crash loses, while the disk keeps up. It is from [`Settings::MIN_INTERVAL`] to
    /// [`Settings::MAX_INTERVAL`].
    pub interval: Duration,
}

impl Settings {
    /// The default of [`Settings::interval`].
    pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
    /// The shortest [`Settings::interval`]: a shorter one would keep the disk busy.
    pub const MIN_INTERVAL: Duration = Duration::from_secs(1);
    /// The longest [`Settings::interval`]: ten minutes.
    pub const MAX_INTERVAL: Duration = Duration::from_secs(600);
}
