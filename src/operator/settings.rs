//! The settings of what operators order at run time.

use std::path::PathBuf;

/// Where entries are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The file of the entries; `None` if they are not kept over restarts.
    pub file: Option<PathBuf>,
}

/// What a banned client gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BanResponse {
    /// 429 with the problem type `#abnormal-usage-detected`, and the seconds until the ban ends.
    #[default]
    TooManyRequests,
    /// 403, as by a list of `deny`.
    Forbidden,
    /// No response: its connection is closed, or its stream is reset.
    Silent,
}
