//! What `record` and `access_log` say.

use super::super::settings::{LogTo, Logged};
use super::super::tree::Place;
use super::At;
use crate::record::Settings;
use crate::record::push;

/// Where what happens is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Nowhere.
    Off,
    /// There, as it is written, and pushed to these.
    Kept(Settings, Vec<Push>),
}

/// Where it is pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Where it is written.
    pub place: Place,
    /// All that needs no file.
    pub settings: push::Settings,
    /// The file with its token.
    pub token_file: Option<At<String>>,
    /// The file of who vouches for it.
    pub roots: Option<At<String>>,
}

/// Where requests are logged.
#[derive(Clone, Debug)]
pub struct AccessLog {
    /// Which requests.
    pub requests: Logged,
    /// Where to, as it is written.
    pub to: LogTo,
}
