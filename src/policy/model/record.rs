//! What `record` and `access_log` say.

use std::path::PathBuf;

use super::super::settings::Logged;
use crate::record::Settings;

/// Where what happens is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Nowhere.
    Off,
    /// There, as it is written.
    Kept(Settings),
}

/// Where requests are logged.
#[derive(Clone, Debug)]
pub struct AccessLog {
    /// Which requests.
    pub requests: Logged,
    /// The file; standard output when absent.
    pub file: Option<PathBuf>,
}
