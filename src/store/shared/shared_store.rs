//! [`SharedStore`]: a shared store as the workers of one gateway use it. It sends the calls that the [`Decider`] makes, and
//! bounds the time that a request waits for a reply. A late reply is still awaited, so that its units are not lost: they
//! are kept in hand or given back.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::atomic::{Ordering, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::backend::{Backend, BackendClient};
use super::breaker::{Breaker, StoreStatus};
use super::call::{StoreError, StoreMark, StoreReply, UNGRANTED_UNITS_BIT};
use super::decider::Decider;
use super::give_backs::GiveBacks;
use super::ledger::Ledger;
use super::pending_call::{FirstStep, PendingCall, SharedDecision};
use super::permit_lease::PermitLease;
use super::shared_entries::SharedEntries;
use super::shared_item::SharedItems;
use super::sharing_plan::SharingPlan;
use crate::base::clock::{Clock, Nanos};
use crate::limit::{Fingerprint, Scale};
use crate::store::Taking;
use crate::store::memcached;
use crate::store::memory::MemoryStore;
use crate::store::permits::Permits;
use crate::store::permits::permit_call::PermitReturns;

/// The time limit of calls that no request waits for.
pub(super) const BACKGROUND_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the reply to an abandoned call is awaited. A server that hung executes the commands in its socket once it
/// continues, however late that is.
const LATE_REPLY_TIMEOUT: Duration = Duration::from_secs(600);
/// The most calls at a time whose late replies are awaited that long. The replies to further calls are awaited for
/// [`BACKGROUND_TIMEOUT`].
const MAX_LATE_REPLIES: usize = 4_096;

/// The most times that [`SharedStore::wait_until_connected`] looks for a connection.
const MAX_CONNECT_POLLS: usize = 100;
/// The most times that [`SharedStore::wait_for_entries`] looks for them.
const MAX_ENTRY_POLLS: usize = 50;
/// The pause between two looks for a connection.
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The error that is reported before the first contact.
pub(super) const NO_CONTACT_YET: &str = "no contact yet";

/// The settings of a shared store: its address, and the bounds of its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The store's kind and address.
    pub backend: Backend,
    /// How long a request waits for the store's reply before the gateway decides alone.
    pub budget: Duration,
    /// Most bytes of the [`Ledger`].
    pub ledger_bytes: usize,
    /// How long the store keeps the permits of a gateway that it does not hear of.
    pub permit_lease: Duration,
}

impl Settings {
    /// The default of [`Settings::budget`].
    pub const DEFAULT_BUDGET: Duration = Duration::from_millis(5);
    /// The default of [`Settings::permit_lease`].
    pub const DEFAULT_PERMIT_LEASE: Duration = Duration::from_secs(60);
    /// The least of [`Settings::permit_lease`].
    pub const MIN_PERMIT_LEASE: Duration = Duration::from_secs(2);
    /// The most of [`Settings::permit_lease`].
    pub const MAX_PERMIT_LEASE: Duration = Duration::from_secs(3_600);
}

/// Counts of calls and requests since the start, for the metrics. No count depends on another, so relaxed ordering
/// suffices.
#[derive(Debug, Default)]
pub struct StoreTally {
    /// Calls with a usable reply in time.
    pub answered_calls: AtomicU64,
    /// Calls without a reply in time.
    pub late_calls: AtomicU64,
    /// Calls that failed in any other way, such as with an error of the store or without a connection.
    pub failed_calls: AtomicU64,
    /// Requests that the gateway decided alone although a limit is shared.
    pub decided_alone: AtomicU64,
    /// Requests that needed no call: units in hand sufficed, a refusal of the store still held, or limits that are not
    /// shared decided.
    pub decided_without_call: AtomicU64,
    /// Requests that waited for the store and were decided by its reply.
    pub decided_with_call: AtomicU64,
}

/// The status of a shared store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedStoreStatus {
    /// Whether the store is in use.
    pub status: StoreStatus,
    /// The number of gateways that use the store, by the last heartbeat.
    pub gateway_count: u32,
    /// The last error as text. Empty while the store is shared.
    pub last_error: String,
}

/// A shared store as the workers of one gateway use it.
pub struct SharedStore {
    /// Makes the calls, and turns their replies into decisions.
    pub decider: Decider,
    /// Counts of calls and requests.
    pub tally: StoreTally,
    /// The permits of open requests of this gateway.
    pub permits: Arc<Permits>,
    pub(super) permit_lease: PermitLease,
    /// The number of leases that this process began or tried to begin.
    pub(super) lease_count: AtomicU32,
    /// Whether a call has found that the lease has ended.
    pub(super) has_lost_lease: AtomicBool,
    /// The store itself, for calls that outlive a request.
    pub(super) this: OnceLock<Weak<SharedStore>>,
    pub(super) settings: Settings,
    pub(super) client: BackendClient,
    /// The number of workers. Worker `n` uses connection `n`.
    pub(super) worker_count: usize,
    pub(super) clock: Clock,
    /// The secret with which keys are hashed; `None` before the first contact.
    pub(super) secret: Mutex<Option<[u8; 16]>>,
    /// The mark of the store that was last identified; `None` before the first contact.
    pub(super) mark: Mutex<Option<StoreMark>>,
    /// The last error as text, for logs and the admin API.
    pub(super) last_error: Mutex<String>,
    /// The entries that are shared beside counts; empty until they are known, and where there are none.
    pub entries: OnceLock<Arc<dyn SharedEntries>>,
    /// Whether the entries of the store were taken over once.
    pub(super) has_read_entries: AtomicBool,
    /// Notified to end the keeper.
    pub(super) stop: Notify,
    /// The number of abandoned calls whose replies are still awaited.
    awaited_late_replies: AtomicUsize,
}

/// Resolves to the reply to a call.
type ReplyFuture = Pin<Box<dyn Future<Output = Result<StoreReply, StoreError>> + Send>>;

/// A request that waits for the store. If the client leaves, dropping the value returns the units in hand that the request
/// has spent. If the reply has not come by then, or within the budget, a task awaits it, so that its units are not lost.
struct WaitingRequest {
    shared: Arc<SharedStore>,
    worker_index: usize,
    pending_call: Arc<PendingCall>,
    /// The reply; `None` once the reply has come.
    reply: Option<ReplyFuture>,
    /// Whether the decision was made, with the reply or without it.
    is_decided: bool,
}

impl WaitingRequest {
    fn new(
        shared: Arc<SharedStore>,
        worker_index: usize,
        pending_call: PendingCall,
    ) -> WaitingRequest {
        let pending_call = Arc::new(pending_call);
        let (store, sent_call) = (shared.clone(), pending_call.clone());
        let reply = async move { store.client.decide(worker_index, &sent_call.call).await };
        WaitingRequest {
            shared,
            worker_index,
            pending_call,
            reply: Some(Box::pin(reply)),
            is_decided: false,
        }
    }

    async fn decide(mut self, budget: Duration) -> SharedDecision {
        let reply = match &mut self.reply {
            Some(reply) => timeout(budget, reply).await,
            None => Ok(Err(StoreError::NotConnected)),
        };
        if reply.is_ok() {
            self.reply = None;
        }
        let reply = reply.unwrap_or(Err(StoreError::Late));
        let reply = self.shared.record_outcome(reply);
        self.is_decided = true;
        let now = self.shared.clock.now();
        let mut decision = self
            .shared
            .decider
            .finish_decision(&self.pending_call, reply, now);
        let tally = &self.shared.tally;
        self.shared
            .count_decision(&decision, &tally.decided_with_call);
        self.shared.send_followups(self.worker_index, &mut decision);
        decision
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        let (shared, pending_call) = (self.shared.clone(), self.pending_call.clone());
        if !self.is_decided {
            shared
                .decider
                .abandon_call(&pending_call, shared.clock.now());
        }
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(reply), Ok(runtime)) = (self.reply.take(), runtime) {
            runtime.spawn(async move { shared.await_late_reply(&pending_call, reply).await });
        }
    }
}

impl SharedStore {
    /// A store for `worker_count` workers. Nothing is sent before [`SharedStore::start`].
    ///
    /// # Errors
    ///
    /// When the settings of memcached name no server, or its prefix cannot be part of a key.
    pub fn new(
        settings: Settings,
        memory: Arc<MemoryStore>,
        worker_count: usize,
        clock: Clock,
    ) -> Result<SharedStore, memcached::Error> {
        let mut number_bytes = [0; 4];
        // Without random bytes the process number tells gateways apart in most cases.
        if getrandom::fill(&mut number_bytes).is_err() {
            number_bytes = std::process::id().to_le_bytes();
        }
        Ok(SharedStore {
            decider: Decider {
                memory,
                ledger: Ledger::new(settings.ledger_bytes),
                breaker: Breaker::new(clock.now()),
                give_backs: GiveBacks::default(),
                gateway: (u32::from_le_bytes(number_bytes) & !UNGRANTED_UNITS_BIT).max(1),
            },
            tally: StoreTally::default(),
            permits: Arc::new(Permits::shared(clock.clone())),
            permit_lease: PermitLease::new(settings.permit_lease.into()),
            lease_count: AtomicU32::new(0),
            has_lost_lease: AtomicBool::new(false),
            this: OnceLock::new(),
            // One more connection for threads that are not workers.
            client: BackendClient::new(&settings.backend, worker_count + 1, &clock)?,
            settings,
            worker_count,
            clock,
            secret: Mutex::new(None),
            mark: Mutex::new(None),
            last_error: Mutex::new(String::from(NO_CONTACT_YET)),
            entries: OnceLock::new(),
            has_read_entries: AtomicBool::new(false),
            stop: Notify::new(),
            awaited_late_replies: AtomicUsize::new(0),
        })
    }

    /// Lets permits that gateways share be asked for and returned. Only the first call has an effect.
    pub fn connect_permits(self: &Arc<Self>) {
        let _ = self.this.set(Arc::downgrade(self));
        let this: Arc<dyn PermitReturns> = self.clone();
        self.permits.connect(Arc::downgrade(&this));
    }

    /// The index of the connection for threads that are not workers.
    pub fn background_connection(&self) -> usize {
        self.worker_count
    }

    /// Connects a worker where it has no connection. Each worker must call this ten times a second.
    pub fn keep_connected(&self, worker_index: usize) {
        self.client.keep_connected(worker_index);
    }

    /// Waits for one second at most until a worker has its connection. Returns at once unless the store is shared.
    pub async fn wait_until_connected(&self, worker_index: usize) {
        for _ in 0..MAX_CONNECT_POLLS {
            self.keep_connected(worker_index);
            let is_shared = self.decider.breaker.status() == StoreStatus::Shared;
            if self.client.is_ready(worker_index) || !is_shared {
                return;
            }
            tokio::time::sleep(CONNECT_POLL_INTERVAL).await;
        }
    }

    /// Blocks the thread for half a second at most, until the entries of the store were taken over once. Returns at once
    /// while the store is away.
    pub fn wait_for_entries(&self) {
        for _ in 0..MAX_ENTRY_POLLS {
            let is_away = matches!(self.decider.breaker.status(), StoreStatus::Away(_));
            if is_away || self.has_read_entries.load(Ordering::Acquire) {
                return;
            }
            std::thread::sleep(CONNECT_POLL_INTERVAL);
        }
    }

    /// The secret with which all gateways of this store hash keys; `None` before the first contact.
    pub fn secret(&self) -> Option<[u8; 16]> {
        *self.secret.lock()
    }

    /// The store's status, as logs and the admin API show it.
    pub fn status(&self) -> SharedStoreStatus {
        let breaker = &self.decider.breaker;
        let status = breaker.status();
        let last_error = match status {
            StoreStatus::Shared => String::new(),
            StoreStatus::Away(_) | StoreStatus::Learning(_) => self.last_error.lock().clone(),
        };
        SharedStoreStatus {
            status,
            gateway_count: breaker.gateway_count(),
            last_error,
        }
    }

    /// The store's address without credentials.
    pub fn address(&self) -> String {
        self.settings.backend.to_string()
    }

    /// Begins a decision. If the decision needs a call to the store, [`SharedStore::decide`] finishes it.
    pub fn begin_decision(
        self: &Arc<Self>,
        worker_index: usize,
        items: SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> FirstStep {
        match self.decider.begin_decision(items, taking, now) {
            FirstStep::Decided(mut decision) => {
                self.count_decision(&decision, &self.tally.decided_without_call);
                self.send_followups(worker_index, &mut decision);
                FirstStep::Decided(decision)
            }
            first_step => first_step,
        }
    }

    /// Sends the call, waits for its reply for at most `budget`, and decides.
    pub fn decide(
        self: &Arc<Self>,
        worker_index: usize,
        pending_call: PendingCall,
        budget: Duration,
    ) -> impl Future<Output = SharedDecision> + Send + use<> {
        WaitingRequest::new(self.clone(), worker_index, pending_call).decide(budget)
    }

    /// See [`Settings::budget`].
    pub fn budget(&self) -> Duration {
        self.settings.budget
    }

    /// Counts a decision in `counter`, or as decided alone if it was.
    pub(super) fn count_decision(&self, decision: &SharedDecision, counter: &AtomicU64) {
        let counter = match decision.is_alone {
            true => &self.tally.decided_alone,
            false => counter,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Sends a call that no request waits for, and waits for its reply.
    pub(super) async fn call_in_background(
        &self,
        connection_index: usize,
        pending_call: &PendingCall,
    ) -> Result<StoreReply, StoreError> {
        let reply = self.client.decide(connection_index, &pending_call.call);
        let reply = timeout(BACKGROUND_TIMEOUT, reply).await;
        self.record_outcome(reply.unwrap_or(Err(StoreError::Late)))
    }

    /// Counts a call by its outcome, and keeps its error.
    pub(super) fn record_outcome<R>(&self, reply: Result<R, StoreError>) -> Result<R, StoreError> {
        let counter = match &reply {
            Ok(_) => &self.tally.answered_calls,
            Err(StoreError::Late) => &self.tally.late_calls,
            Err(_) => &self.tally.failed_calls,
        };
        if let Err(error) = &reply {
            self.record_error(error);
        }
        counter.fetch_add(1, Relaxed);
        reply
    }

    /// Keeps the last error. For a missing connection its cause is kept, if the client has one; if not, the error before it
    /// stays, because it says more.
    pub(super) fn record_error(&self, error: &StoreError) {
        let text = match error {
            StoreError::NotConnected => self.client.disconnect_cause(self.background_connection()),
            // Some gateway will initialise it soon.
            StoreError::Empty => None,
            error => Some(error.to_string()),
        };
        if let Some(text) = text {
            *self.last_error.lock() = text;
        }
    }

    /// Sends the calls that a decision leaves behind.
    fn send_followups(self: &Arc<Self>, worker_index: usize, decision: &mut SharedDecision) {
        for pending_call in decision.followups.drain(..) {
            self.send_in_background(worker_index, pending_call);
        }
    }

    /// Starts to send one call that no request waits for. A call that gives units back is kept for later if the store is
    /// not shared or the connection is not ready. Outside a runtime every call is dropped, and the store counts units that
    /// were to be given back until they leave their window.
    pub fn send_in_background(
        self: &Arc<Self>,
        worker_index: usize,
        mut pending_call: PendingCall,
    ) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let is_shared = self.decider.breaker.status() == StoreStatus::Shared;
        let is_usable = is_shared && self.client.is_ready(worker_index);
        let store_epoch = self.decider.give_backs.store_epoch();
        if pending_call.call.gives_back() && !is_usable {
            return self.decider.give_backs.push(pending_call, store_epoch);
        }
        if pending_call.call.gives_back() {
            pending_call.store_epoch = store_epoch;
            pending_call = pending_call.numbered();
        }
        let shared = self.clone();
        runtime.spawn(async move {
            let mut reply_future: ReplyFuture = {
                let (shared, call) = (shared.clone(), pending_call.call.clone());
                Box::pin(async move { shared.client.decide(worker_index, &call).await })
            };
            let reply = timeout(BACKGROUND_TIMEOUT, &mut reply_future).await;
            let is_late = reply.is_err();
            let reply = shared.record_outcome(reply.unwrap_or(Err(StoreError::Late)));
            shared
                .decider
                .finish_decision(&pending_call, reply, shared.clock.now());
            if is_late && pending_call.is_refill() {
                shared.await_late_reply(&pending_call, reply_future).await;
            }
        });
    }

    /// Waits for the reply to an abandoned call, for [`LATE_REPLY_TIMEOUT`] at most, and records it.
    async fn await_late_reply(&self, pending_call: &PendingCall, reply: ReplyFuture) {
        let time_limit = match self.awaited_late_replies.fetch_add(1, Relaxed) {
            0..MAX_LATE_REPLIES => LATE_REPLY_TIMEOUT,
            _ => BACKGROUND_TIMEOUT,
        };
        let reply = timeout(time_limit, reply).await;
        self.awaited_late_replies.fetch_sub(1, Relaxed);
        if let Ok(Ok(reply)) = reply {
            self.decider
                .record_late_reply(pending_call, &reply, self.clock.now());
        }
    }

    /// Deletes a counter in the store and in the ledger. Returns whether the store had the counter. The ledger's entry is
    /// deleted even if the store fails.
    ///
    /// # Errors
    ///
    /// When there is no connection, or the store does not reply in time or replies with an error.
    pub async fn forget_counter(
        &self,
        plan: &SharingPlan,
        key: Fingerprint,
    ) -> Result<bool, StoreError> {
        let wall = self.clock.wall().into();
        let part = plan.call_part(key, Scale::plan(1), 0, wall);
        self.decider.ledger.remove(&part.name);
        let connection_index = self.background_connection();
        let deletion = self.client.forget_counter(connection_index, &part);
        let existed = timeout(BACKGROUND_TIMEOUT, deletion).await;
        existed.unwrap_or(Err(StoreError::Late))
    }

    /// Ends the keeper, which removes this gateway from the store's list.
    pub fn stop_keeper(&self) {
        self.stop.notify_one();
    }
}

impl std::fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStore")
            .field("decider", &self.decider)
            .finish_non_exhaustive()
    }
}
