//! What the admin listener needs of the gateway that it belongs to.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use axum::extract::State;
use serde_json::Value;

use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric};
use crate::policy::Report;
use crate::record::Record;
use crate::record::push;
use crate::serve::worker::generation::Running;

/// Most bytes of a request to the admin listener.
pub(super) const MAX_BODY: usize = 1024 * 1024;

/// The gateway, as far as its operator may reach into it.
pub trait Control: Send + Sync + 'static {
    /// What runs now.
    fn running(&self) -> Running;
    /// Reads the configuration again.
    fn reload(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>>;
    /// `/metrics`.
    fn metrics(&self) -> String;
    /// What happened in every second, once this process has it; nothing if it is not recorded.
    fn record(&self) -> Option<Arc<OnceLock<Record>>>;
    /// The sum of one counter.
    fn count(&self, metric: Metric, labels: &[(Label, &str)]) -> u64;
    /// How each engine does to which figures are pushed.
    fn pushed(&self) -> Vec<push::Status>;
    /// When it was started, in seconds since 1970.
    fn started(&self) -> u64;
    /// Whether new requests are taken.
    fn ready(&self) -> bool;
    /// Time.
    fn clock(&self) -> &Clock;
    /// What operators must prove to know.
    fn token(&self) -> Option<&str>;
}

/// How a reload ended.
pub enum ReloadOutcome {
    /// It runs. What is worth knowing about it.
    Done(Value),
    /// Mistakes; the policies before still run.
    Mistakes(Report),
    /// It could not be run for another reason; the policies before still run.
    Failed(String),
}

pub(super) type ControlState = State<Arc<dyn Control>>;
