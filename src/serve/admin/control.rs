//! The interface through which the admin listener reads and controls its gateway. `app/control.rs` implements it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::State;
use serde_json::Value;

use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric, MetricsFormat};
use crate::limit::LimitGrant;
use crate::operator::{
    AddedApiKey, ApiKeyError, BanError, HeldOrder, ListedApiKey, ListedBan, ListedGrant, NewApiKey,
    NewBan,
};
use crate::policy::{DiagnosticReport, GrantMistake};
use crate::record::Record;
use crate::record::insight::AuditEntry;
use crate::record::push;
use crate::serve::worker::generation::RunningConfig;

/// Maximum bytes of a request body, such as that of a request to explain.
pub(super) const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The parts of the gateway that operators may read, and the actions that they may take.
pub trait Control: Send + Sync + 'static {
    /// The configuration that runs now. A later reload does not change the returned one.
    fn running(&self) -> RunningConfig;
    /// Reads the configuration again and runs it if it has no mistakes.
    fn reload(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>>;
    /// Orders a ban, which holds at all workers when this returns. Waits for the disk.
    ///
    /// # Errors
    ///
    /// See [`BanError`].
    fn ban(&self, ban: NewBan) -> Result<ListedBan, BanError>;
    /// Lifts the ban of a key, and returns it as it was. `by` is who lifts it. Waits for the disk.
    ///
    /// # Errors
    ///
    /// See [`BanError`].
    fn lift_ban(&self, key: &str, by: &str) -> Result<ListedBan, BanError>;
    /// Grants a key more of a limit, or adds credits to its account, at all workers when this returns. Waits for the disk.
    ///
    /// # Errors
    ///
    /// See [`GrantMistake`].
    fn grant(&self, order: GrantOrder) -> Result<Granted, GrantMistake>;
    /// Takes a grant back, and returns it as it was. `by` is who does so. Waits for the disk.
    ///
    /// # Errors
    ///
    /// See [`GrantMistake`].
    fn revoke_grant(&self, limit: &str, key: &str, by: &str) -> Result<ListedGrant, GrantMistake>;
    /// Takes back what is left of an account of credits: `left` of the credits that it has had in all. Returns the account
    /// as it is then, also at all workers. Waits for the disk.
    ///
    /// # Errors
    ///
    /// The account has changed since it was read, or see [`GrantMistake`].
    fn take_credits_back(
        &self,
        account: &ListedGrant,
        left: u32,
        by: &str,
    ) -> Result<ListedGrant, GrantMistake>;
    /// Makes an API key, which holds at all workers when this returns. Waits for the disk.
    ///
    /// # Errors
    ///
    /// See [`ApiKeyError`].
    fn add_api_key(&self, new_key: NewApiKey) -> Result<AddedApiKey, ApiKeyError>;
    /// Revokes the API key with this id, and returns it as it was. `by` is who revokes it. Waits for the disk.
    ///
    /// # Errors
    ///
    /// See [`ApiKeyError`].
    fn revoke_api_key(&self, id: &str, by: &str) -> Result<ListedApiKey, ApiKeyError>;
    /// Keeps an order of an operator in the record, and writes it to the log. Does not wait for the disk.
    fn audit(&self, entry: AuditEntry);
    /// Waits until the disk has every order that was kept, so that none is lost in a crash.
    fn write_audit(&self);
    /// All metrics in this format.
    fn metrics(&self, format: MetricsFormat) -> String;
    /// Whether the process was started with traces, so that metrics may have exemplars. A reload does not change it.
    fn has_traces(&self) -> bool;
    /// The record; `None` if the configuration switches it off. The cell is empty while another process still writes it.
    fn record(&self) -> Option<Arc<OnceLock<Record>>>;
    /// The total of a counter over all workers.
    fn counter_total(&self, metric: Metric, labels: &[(Label, &str)]) -> u64;
    /// The state of every destination to which the record is pushed.
    fn push_status(&self) -> Vec<push::DestinationStatus>;
    /// When the gateway was started, in seconds since 1970.
    fn started_at(&self) -> u64;
    /// Whether the gateway accepts new requests: false before its workers start, and once it stops.
    fn is_ready(&self) -> bool;
    /// The clock of the gateway's requests and responses.
    fn clock(&self) -> &Clock;
}

/// A grant as an operator orders it.
#[derive(Clone, Debug)]
pub struct GrantOrder {
    /// The limit by its name, or with its policy as in `api/per-user`.
    pub limit: String,
    /// The key as `explain` shows it.
    pub key: String,
    /// How much more.
    pub grant: LimitGrant,
    /// How long it lasts; `None` for credits.
    pub duration: Option<Duration>,
    /// The id of an order of credits; `None` for a random one, and for other grants.
    pub order: Option<String>,
    /// Why; may be empty.
    pub reason: String,
    /// Who orders it.
    pub by: String,
}

/// What an operator has ordered.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The grant, or the account of credits with the order.
    pub grant: ListedGrant,
    /// The order of credits; `None` for other grants.
    pub order: Option<HeldOrder>,
}

/// How a reload ended.
pub enum ReloadOutcome {
    /// The new configuration runs. The value has the changes, the warnings and what needs a restart, as JSON.
    Done(Value),
    /// The new configuration has mistakes; the previous configuration still runs.
    Mistakes(DiagnosticReport),
    /// The reload failed for another reason; the previous configuration still runs.
    Failed(String),
}

/// The extractor of axum from which handlers get the gateway.
pub(super) type ControlState = State<Arc<dyn Control>>;
