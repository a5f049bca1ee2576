//! A store that several gateways share, as the workers of one gateway use it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::backend::{Backend, BackendClient};
use super::breaker::{Breaker, StoreStatus};
use super::call::{ALONE, StoreError, StoreMark, StoreReply};
use super::decider::Decider;
use super::give_backs::GiveBacks;
use super::item::SharedItems;
use super::ledger::Ledger;
use super::pending::{FirstStep, PendingCall, SharedDecision};
use super::plan::SharingPlan;
use crate::base::clock::{Clock, Nanos};
use crate::limit::{Fingerprint, Scale};
use crate::store::Taking;
use crate::store::memcached;
use crate::store::memory::Memory;

/// Time limit of calls that no request waits for.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);
/// How long the reply to an abandoned call is awaited. A server that hangs executes the commands in its socket as soon
/// as it continues, however late that is.
const LATE_REPLIES_FOR: Duration = Duration::from_secs(600);
/// Most calls whose late replies are awaited that long at a time.
const MOST_LATE_REPLIES: usize = 4_096;

/// The trouble that is reported before the first contact.
pub(super) const NOT_MET: &str = "no contact yet";

/// Which store is shared, and how long a request waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The store.
    pub backend: Backend,
    /// How long a request waits for the store's reply before the gateway decides alone.
    pub budget: Duration,
    /// Bytes for the [`Ledger`].
    pub ledger: usize,
}

impl Settings {
    /// The default of [`Settings::budget`].
    pub const BUDGET: Duration = Duration::from_millis(5);
}

/// Counts of calls and requests since the start, for the metrics.
#[derive(Debug, Default)]
pub struct Tally {
    /// Calls with a reply.
    pub answered: AtomicU64,
    /// Calls without a reply in time.
    pub late: AtomicU64,
    /// Calls that failed otherwise.
    pub failed: AtomicU64,
    /// Requests that the gateway decided alone although the store should have been asked.
    pub alone: AtomicU64,
    /// Requests that needed no call: units in hand or a remembered refusal decided.
    pub saved: AtomicU64,
    /// Requests that waited for the store.
    pub asked: AtomicU64,
}

/// A shared store as the workers of one gateway use it.
pub struct Shared {
    /// Decides as far as that needs no waiting.
    pub decider: Decider,
    /// Counts for the metrics.
    pub tally: Tally,
    pub(super) settings: Settings,
    pub(super) client: BackendClient,
    pub(super) workers: usize,
    pub(super) clock: Clock,
    pub(super) secret: Mutex<Option<[u8; 16]>>,
    /// The mark of the store that was met last.
    pub(super) mark: Mutex<Option<StoreMark>>,
    /// The last error, for logs and the admin API.
    pub(super) trouble: Mutex<String>,
    pub(super) stop: Notify,
    /// Abandoned calls whose replies are still awaited.
    late_replies: AtomicUsize,
}

type ReplyFuture = Pin<Box<dyn Future<Output = Result<StoreReply, StoreError>> + Send>>;

/// A request that waits for the store. When its client leaves, the units that it has in hand go back, and so do those
/// that the store takes for it later.
struct WaitingRequest {
    shared: Arc<Shared>,
    worker: usize,
    pending_call: Arc<PendingCall>,
    future: Option<ReplyFuture>,
    decided: bool,
}

impl WaitingRequest {
    fn new(shared: Arc<Shared>, worker: usize, pending_call: PendingCall) -> WaitingRequest {
        let pending_call = Arc::new(pending_call);
        let (client, asked) = (shared.clone(), pending_call.clone());
        let future = async move { client.client.decide(worker, &asked.call).await };
        WaitingRequest {
            shared,
            worker,
            pending_call,
            future: Some(Box::pin(future)),
            decided: false,
        }
    }

    async fn decide(mut self) -> SharedDecision {
        let reply = match &mut self.future {
            Some(future) => timeout(self.shared.settings.budget, future).await,
            None => Ok(Err(StoreError::NotConnected)),
        };
        if reply.is_ok() {
            self.future = None;
        }
        let reply = self
            .shared
            .record_outcome(reply.unwrap_or(Err(StoreError::Late)));
        self.decided = true;
        let now = self.shared.clock.now();
        let mut decision = self.shared.decider.finish(&self.pending_call, reply, now);
        self.shared.count(&decision, &self.shared.tally.asked);
        self.shared.send_followups(self.worker, &mut decision);
        decision
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        let (shared, pending_call) = (self.shared.clone(), self.pending_call.clone());
        if !self.decided {
            shared.decider.abandon(&pending_call, shared.clock.now());
        }
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(future), Ok(runtime)) = (self.future.take(), runtime) {
            runtime.spawn(async move { shared.await_late_reply(&pending_call, future).await });
        }
    }
}

impl Shared {
    /// A store for this many workers. Nothing is sent before [`Shared::start`].
    ///
    /// # Errors
    ///
    /// When the settings of memcached cannot be used.
    pub fn new(
        settings: Settings,
        memory: Arc<Memory>,
        workers: usize,
        clock: Clock,
    ) -> Result<Shared, memcached::Error> {
        let mut number = [0; 4];
        // Without randomness the process number tells gateways apart, mostly.
        if getrandom::fill(&mut number).is_err() {
            number = std::process::id().to_le_bytes();
        }
        Ok(Shared {
            decider: Decider {
                memory,
                ledger: Ledger::new(settings.ledger),
                breaker: Breaker::new(clock.now()),
                give_backs: GiveBacks::default(),
                gateway: (u32::from_le_bytes(number) & !ALONE).max(1),
            },
            tally: Tally::default(),
            // One more connection for threads that are no workers.
            client: BackendClient::new(&settings.backend, workers + 1, &clock)?,
            settings,
            workers,
            clock,
            secret: Mutex::new(None),
            mark: Mutex::new(None),
            trouble: Mutex::new(String::from(NOT_MET)),
            stop: Notify::new(),
            late_replies: AtomicUsize::new(0),
        })
    }

    /// The number of the connection for threads that are no workers.
    pub fn outsider(&self) -> usize {
        self.workers
    }

    /// Connects a worker where it has no connection. Each worker must call this ten times a second.
    pub fn tend(&self, worker: usize) {
        self.client.tend(worker);
    }

    /// Waits until a worker has its connection, while the store is shared; for one second at most.
    pub async fn connected(&self, worker: usize) {
        for _ in 0..100 {
            self.tend(worker);
            if self.client.ready(worker) || self.decider.breaker.status() != StoreStatus::Shared {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The secret with which all gateways of this store hash keys; `None` before the first contact.
    pub fn secret(&self) -> Option<[u8; 16]> {
        *self.secret.lock()
    }

    /// The store's status, the number of gateways that use it, and the last error.
    pub fn status(&self) -> (StoreStatus, u32, String) {
        let breaker = &self.decider.breaker;
        let status = breaker.status();
        let trouble = match status {
            StoreStatus::Shared => String::new(),
            StoreStatus::Away(_) | StoreStatus::Learning(_) => self.trouble.lock().clone(),
        };
        (status, breaker.gateways(), trouble)
    }

    /// The store's address without credentials.
    pub fn address(&self) -> String {
        self.settings.backend.to_string()
    }

    /// Begins a decision. Where the store must be asked, [`Shared::decide`] goes on.
    pub fn begin(
        self: &Arc<Self>,
        worker: usize,
        items: SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> FirstStep {
        match self.decider.begin(items, taking, now) {
            FirstStep::Decided(mut decision) => {
                self.count(&decision, &self.tally.saved);
                self.send_followups(worker, &mut decision);
                FirstStep::Decided(decision)
            }
            ask => ask,
        }
    }

    /// Asks the store, waits for at most [`Settings::budget`], and decides.
    pub fn decide(
        self: &Arc<Self>,
        worker: usize,
        pending_call: PendingCall,
    ) -> impl Future<Output = SharedDecision> + Send + use<> {
        WaitingRequest::new(self.clone(), worker, pending_call).decide()
    }

    fn count(&self, decision: &SharedDecision, otherwise: &AtomicU64) {
        let counter = if decision.alone {
            &self.tally.alone
        } else {
            otherwise
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) async fn call(
        &self,
        worker: usize,
        pending_call: &PendingCall,
        patience: Duration,
    ) -> Result<StoreReply, StoreError> {
        let future = self.client.decide(worker, &pending_call.call);
        self.record_outcome(
            timeout(patience, future)
                .await
                .unwrap_or(Err(StoreError::Late)),
        )
    }

    fn record_outcome(
        &self,
        reply: Result<StoreReply, StoreError>,
    ) -> Result<StoreReply, StoreError> {
        let counter = match &reply {
            Ok(_) => &self.tally.answered,
            Err(StoreError::Late) => &self.tally.late,
            Err(_) => &self.tally.failed,
        };
        if let Err(failure) = &reply {
            self.note_trouble(failure);
        }
        counter.fetch_add(1, Relaxed);
        reply
    }

    /// Keeps the last error. A missing connection is not kept, because the error that broke it says more.
    pub(super) fn note_trouble(&self, failure: &StoreError) {
        let trouble = match failure {
            StoreError::NotConnected => self.client.cause(self.outsider()),
            // No error: some gateway will initialise it soon.
            StoreError::Empty => None,
            failure => Some(failure.to_string()),
        };
        if let Some(trouble) = trouble {
            *self.trouble.lock() = trouble;
        }
    }

    /// Sends the calls that a decision leaves behind.
    fn send_followups(self: &Arc<Self>, worker: usize, decision: &mut SharedDecision) {
        for pending_call in decision.followups.drain(..) {
            self.send(worker, pending_call);
        }
    }

    /// Sends one call that no request waits for. Without a runtime it is dropped, and units that it would give back
    /// count until they leave their window.
    pub fn send(self: &Arc<Self>, worker: usize, pending_call: PendingCall) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let ready =
            self.decider.breaker.status() == StoreStatus::Shared && self.client.ready(worker);
        if pending_call.call.gives_back() && !ready {
            let life = self.decider.give_backs.life();
            return self.decider.give_backs.push(pending_call, life);
        }
        let shared = self.clone();
        runtime.spawn(async move {
            let mut future: ReplyFuture = {
                let (shared, call) = (shared.clone(), pending_call.call.clone());
                Box::pin(async move { shared.client.decide(worker, &call).await })
            };
            let reply = timeout(PATIENCE, &mut future).await;
            let late = reply.is_err();
            let reply = shared.record_outcome(reply.unwrap_or(Err(StoreError::Late)));
            shared
                .decider
                .finish(&pending_call, reply, shared.clock.now());
            if late && pending_call.refills() {
                shared.await_late_reply(&pending_call, future).await;
            }
        });
    }

    /// Waits for the reply to an abandoned call.
    async fn await_late_reply(&self, pending_call: &PendingCall, future: ReplyFuture) {
        let patience = match self.late_replies.fetch_add(1, Relaxed) {
            0..MOST_LATE_REPLIES => LATE_REPLIES_FOR,
            _ => PATIENCE,
        };
        let reply = timeout(patience, future).await;
        self.late_replies.fetch_sub(1, Relaxed);
        if let Ok(Ok(reply)) = reply {
            self.decider
                .take_late_reply(pending_call, &reply, self.clock.now());
        }
    }

    /// Forgets a counter in the store and here. Returns whether the store had it.
    pub async fn forget(&self, plan: &SharingPlan, key: Fingerprint) -> Result<bool, StoreError> {
        let part = plan.part(key, Scale::plan(1), 0);
        self.decider.ledger.forget(&part.name);
        let forgotten = self.client.forget(self.outsider(), &part);
        let forgotten = timeout(PATIENCE, forgotten).await;
        forgotten.unwrap_or(Err(StoreError::Late))
    }

    /// Ends the keeper, which tells the store that this gateway leaves.
    pub fn close(&self) {
        self.stop.notify_one();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("core", &self.decider)
            .finish_non_exhaustive()
    }
}
