//! The state of a destination that the pushing thread shares with operators' requests and with reloads, and what
//! pushing needs from the process. Nothing here sends anything.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::cursor::Cursor;
use super::settings::{Engine, Settings};
use crate::base::clock::Clock;
use crate::base::telemetry::Registry;
use crate::record::{Record, Series};

/// The state of a destination, as the admin API shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationStatus {
    /// The name of the destination.
    pub name: String,
    /// The protocol that the destination speaks.
    pub engine: Engine,
    /// The URL, without secrets.
    pub url: String,
    /// Seconds from the cursor to now, by the wall clock; 0 until the cursor is read.
    pub behind_seconds: u64,
    /// Samples that the destination has accepted since the start of the process.
    pub sent_samples: u64,
    /// Samples that the destination has refused for good since the start of the process.
    pub refused_samples: u64,
    /// The error that stops pushing, or the last refusal; empty while pushing works.
    pub last_error: String,
}

/// A function that returns the series that the process counts now. They are sent in each step, even if their values do
/// not change.
pub type LiveSeries = Arc<dyn Fn() -> BTreeSet<Series> + Send + Sync>;

/// The parts of the process that pushing needs.
pub struct PushContext {
    /// The settings of all destinations.
    pub settings: Vec<Settings>,
    /// The record, once this process has opened it.
    pub record: Arc<OnceLock<Record>>,
    /// The record's folder, in which cursors have a folder of their own. Without it, cursors are lost when the process
    /// ends.
    pub folder: Option<PathBuf>,
    /// Lists the series that the process counts now.
    pub live_series: LiveSeries,
    /// The clock by which retries are delayed and the lag is computed.
    pub clock: Clock,
    /// The metrics of the process, to which pushing adds its samples and its lag.
    pub registry: Registry,
    /// The seed that spreads the retries of several gateways over time.
    pub seed: u64,
}

impl PushContext {
    /// The folder of the cursors; `None` for a record in memory.
    pub(super) fn cursor_folder(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join("push"))
    }
}

/// A destination, shared by the pushing thread, reloads and the admin API.
pub(super) struct Destination {
    /// The current settings. A reload may change their token and their roots.
    pub(super) settings: Mutex<Settings>,
    /// The state that the admin API shows.
    pub(super) status: Mutex<DestinationStatus>,
    /// The cursor, if the record has no folder. It outlives a sender that panics. `None` until pushing begins, and
    /// always if the record has a folder.
    pub(super) cursor: Mutex<Option<Cursor>>,
}

impl Destination {
    /// Makes a destination to which nothing was sent yet.
    pub(super) fn new(settings: Settings) -> Arc<Destination> {
        let status = DestinationStatus {
            name: settings.name.clone(),
            engine: settings.engine,
            url: settings.display_url.clone(),
            behind_seconds: 0,
            sent_samples: 0,
            refused_samples: 0,
            last_error: String::new(),
        };
        Arc::new(Destination {
            settings: Mutex::new(settings),
            status: Mutex::new(status),
            cursor: Mutex::default(),
        })
    }
}
