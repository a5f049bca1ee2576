//! The sections `record` and `access_log` as written.

use super::super::settings::{LogTo, Logged};
use super::super::tree::{Located, SourcePlace};
use crate::record::Settings;
use crate::record::push;

/// Where the record is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordConfig {
    /// Nowhere.
    Off,
    /// In this folder, or in memory, and pushed to these destinations.
    Kept(Settings, Vec<PushConfig>),
}

/// A destination of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushConfig {
    /// The place of its declaration.
    pub place: SourcePlace,
    /// The settings that need no file.
    pub settings: push::Settings,
    /// The file with its token.
    pub token_file: Option<Located<String>>,
    /// The file of the authorities that verify its certificate.
    pub roots: Option<Located<String>>,
}

/// Where requests are logged.
#[derive(Clone, Debug)]
pub struct AccessLogConfig {
    /// Which requests.
    pub requests: Logged,
    /// The destination, as written.
    pub to: LogTo,
}
