//! What `record` and `access_log` say.

use super::super::settings::{LogTo, Logged};
use super::super::tree::{Located, SourcePlace};
use crate::record::Settings;
use crate::record::push;

/// Where what happens is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordConfig {
    /// Nowhere.
    Off,
    /// There, as it is written, and pushed to these.
    Kept(Settings, Vec<PushConfig>),
}

/// Where it is pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushConfig {
    /// Where it is written.
    pub place: SourcePlace,
    /// All that needs no file.
    pub settings: push::Settings,
    /// The file with its token.
    pub token_file: Option<Located<String>>,
    /// The file of who vouches for it.
    pub roots: Option<Located<String>>,
}

/// Where requests are logged.
#[derive(Clone, Debug)]
pub struct AccessLogConfig {
    /// Which requests.
    pub requests: Logged,
    /// Where to, as it is written.
    pub to: LogTo,
}
