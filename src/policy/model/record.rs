//! The model of the sections `record` and `access_log`, as the gateway file writes them.

use super::super::settings::{LogDestination, LoggedRequests};
use super::super::tree::{Located, SourceLocation};
use crate::record::Settings;
use crate::record::push;

/// Whether there is a record, and where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordConfig {
    /// There is no record.
    Off,
    /// The record is kept in a folder or in memory, and pushed to these destinations.
    On(Settings, Vec<PushConfig>),
}

/// A destination to which the record is pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushConfig {
    /// The location of the declaration.
    pub location: SourceLocation,
    /// The settings without `token` and `roots`, which are read from files when the model is compiled.
    pub settings: push::Settings,
    /// The file with the bearer token.
    pub token_file: Option<Located<String>>,
    /// The file of the authorities that verify the destination's certificate.
    pub roots: Option<Located<String>>,
}

/// The requests that are logged, and the destination of their lines.
#[derive(Clone, Debug)]
pub struct AccessLogConfig {
    /// The requests that are logged.
    pub requests: LoggedRequests,
    /// The destination of the lines; a path is still relative to the gateway file.
    pub destination: LogDestination,
}
