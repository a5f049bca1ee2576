//! A destination while it is pushed to, and what that needs of the process.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::cursor::Cursor;
use super::settings::{Engine, Settings};
use crate::base::clock::Clock;
use crate::base::telemetry::Registry;
use crate::record::{Record, Series};

/// The state of a destination, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationStatus {
    /// The name of the destination.
    pub name: String,
    /// The protocol.
    pub engine: Engine,
    /// The URL, without secrets.
    pub url: String,
    /// Recorded seconds that the destination does not have yet.
    pub behind_seconds: u64,
    /// Samples that the destination has taken.
    pub sent: u64,
    /// Samples that the destination has refused.
    pub refused: u64,
    /// Why nothing can be pushed; empty while pushing works.
    pub trouble: String,
}

/// Returns the series of the present metrics. They are sent even while nothing happens in them.
pub type LiveSeries = Arc<dyn Fn() -> BTreeSet<Series> + Send + Sync>;

/// What pushing needs of the process.
pub struct PushContext {
    /// The settings of all destinations.
    pub settings: Vec<Settings>,
    /// The record, once this process has opened it.
    pub record: Arc<OnceLock<Record>>,
    /// The record's folder; without one, cursors are forgotten with the process.
    pub folder: Option<PathBuf>,
    /// The series of the present metrics.
    pub live_series: LiveSeries,
    /// The clock.
    pub clock: Clock,
    /// Where sent samples are counted.
    pub registry: Registry,
    /// The seed that spreads the requests of several gateways over time.
    pub seed: u64,
}

impl PushContext {
    /// The folder of the cursors.
    pub(super) fn cursors(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join("push"))
    }
}

/// A destination, as the pushing thread and other threads share it.
pub(super) struct Destination {
    pub(super) settings: Mutex<Settings>,
    pub(super) status: Mutex<DestinationStatus>,
    /// The cursor, where there is no folder.
    pub(super) cursor: Mutex<Option<Cursor>>,
}

impl Destination {
    pub(super) fn new(settings: Settings) -> Arc<Destination> {
        let status = DestinationStatus {
            name: settings.name.clone(),
            engine: settings.engine,
            url: settings.display_url.clone(),
            behind_seconds: 0,
            sent: 0,
            refused: 0,
            trouble: String::new(),
        };
        Arc::new(Destination {
            settings: Mutex::new(settings),
            status: Mutex::new(status),
            cursor: Mutex::default(),
        })
    }
}
