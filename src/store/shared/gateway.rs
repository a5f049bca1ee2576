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
use super::ledger::Ledger;
use super::line::SharedItems;
use super::pending::{FirstStep, PendingCall, SharedDecision};
use super::plan::SharingPlan;
use crate::base::clock::{Clock, Nanos};
use crate::limit::{Fingerprint, Scale};
use crate::store::Taking;
use crate::store::memcached;
use crate::store::memory::Memory;

/// How long anything may take that no request waits for.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);
/// How long a reply is listened for that no request waits for. A server that hangs executes what lies in its
/// socket when it goes on, however late that is.
const LISTENS: Duration = Duration::from_secs(600);
/// Most calls whose replies are listened for so long.
const MOST_LISTENS: usize = 4_096;

/// What is wrong before anything was.
pub(super) const UNMET: &str = "not met yet";

/// Where the store is, and how long it is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where.
    pub place: Backend,
    /// How long a request waits for an answer before it is decided without.
    pub budget: Duration,
    /// Bytes for what is known of counters.
    pub ledger: usize,
}

impl Settings {
    /// How long a request waits when nothing else is said.
    pub const BUDGET: Duration = Duration::from_millis(5);
}

/// What happened since the start.
#[derive(Debug, Default)]
pub struct Tally {
    /// Calls that were answered.
    pub answered: AtomicU64,
    /// Calls without an answer in time.
    pub late: AtomicU64,
    /// Calls that failed otherwise.
    pub failed: AtomicU64,
    /// Requests that were decided without the store that should have been asked.
    pub alone: AtomicU64,
    /// Requests that were decided without a call: by units in hand, or by what was known.
    pub saved: AtomicU64,
    /// Requests that waited for a call.
    pub asked: AtomicU64,
}

/// A shared store as the workers of one gateway use it.
pub struct Shared {
    /// What is decided without waiting.
    pub core: Decider,
    /// What happened.
    pub tally: Tally,
    pub(super) settings: Settings,
    pub(super) client: BackendClient,
    pub(super) workers: usize,
    pub(super) clock: Clock,
    pub(super) secret: Mutex<Option<[u8; 16]>>,
    /// The life of the store that was met last.
    pub(super) mark: Mutex<Option<StoreMark>>,
    /// What went wrong last.
    pub(super) trouble: Mutex<String>,
    pub(super) stop: Notify,
    /// Calls whose replies are listened for, though no request waits.
    listens: AtomicUsize,
}

type ReplyFuture = Pin<Box<dyn Future<Output = Result<StoreReply, StoreError>> + Send>>;

/// A request that waits for the store. When it is given up, what it has in hand goes back, and so does what the
/// store takes for it later.
struct WaitingRequest {
    shared: Arc<Shared>,
    worker: usize,
    asking: Arc<PendingCall>,
    answer: Option<ReplyFuture>,
    decided: bool,
}

impl WaitingRequest {
    fn new(shared: Arc<Shared>, worker: usize, asking: PendingCall) -> WaitingRequest {
        let asking = Arc::new(asking);
        let (client, asked) = (shared.clone(), asking.clone());
        let answer = async move { client.client.decide(worker, &asked.call).await };
        WaitingRequest {
            shared,
            worker,
            asking,
            answer: Some(Box::pin(answer)),
            decided: false,
        }
    }

    async fn decide(mut self) -> SharedDecision {
        let said = match &mut self.answer {
            Some(answer) => timeout(self.shared.settings.budget, answer).await,
            None => Ok(Err(StoreError::NotConnected)),
        };
        if said.is_ok() {
            self.answer = None;
        }
        let said = self.shared.tallied(said.unwrap_or(Err(StoreError::Late)));
        self.decided = true;
        let now = self.shared.clock.now();
        let mut done = self.shared.core.finish(&self.asking, said, now);
        self.shared.count(&done, &self.shared.tally.asked);
        self.shared.besides(self.worker, &mut done);
        done
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        let (shared, asking) = (self.shared.clone(), self.asking.clone());
        if !self.decided {
            shared.core.abandon(&asking, shared.clock.now());
        }
        let runtime = tokio::runtime::Handle::try_current();
        if let (Some(answer), Ok(runtime)) = (self.answer.take(), runtime) {
            runtime.spawn(async move { shared.listen(&asking, answer).await });
        }
    }
}

impl Shared {
    /// For so many workers. Nothing is asked before [`Shared::start`].
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
            core: Decider {
                memory,
                ledger: Ledger::new(settings.ledger),
                ladder: Breaker::new(clock.now()),
                backs: GiveBacks::default(),
                gateway: (u32::from_le_bytes(number) & !ALONE).max(1),
            },
            tally: Tally::default(),
            // One more for whoever is no worker.
            client: BackendClient::new(&settings.place, workers + 1, &clock)?,
            settings,
            workers,
            clock,
            secret: Mutex::new(None),
            mark: Mutex::new(None),
            trouble: Mutex::new(String::from(UNMET)),
            stop: Notify::new(),
            listens: AtomicUsize::new(0),
        })
    }

    /// The number of the connection of who is no worker.
    pub fn outsider(&self) -> usize {
        self.workers
    }

    /// Connects where there is no connection: to be called ten times a second by each worker.
    pub fn tend(&self, worker: usize) {
        self.client.tend(worker);
    }

    /// Waits until a worker has its connection, if the store is there, for a second at most.
    pub async fn connected(&self, worker: usize) {
        for _ in 0..100 {
            self.tend(worker);
            if self.client.ready(worker) || self.core.ladder.standing() != StoreStatus::Shared {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Under what all gateways of this store hash whom they count, once it is known.
    pub fn secret(&self) -> Option<[u8; 16]> {
        *self.secret.lock()
    }

    /// How the store stands, gateways that use it, and what went wrong last.
    pub fn status(&self) -> (StoreStatus, u32, String) {
        let ladder = &self.core.ladder;
        let standing = ladder.standing();
        let trouble = match standing {
            StoreStatus::Shared => String::new(),
            StoreStatus::Away(_) | StoreStatus::Learning(_) => self.trouble.lock().clone(),
        };
        (standing, ladder.gateways(), trouble)
    }

    /// Where the store is, without what proves who asks.
    pub fn place(&self) -> String {
        self.settings.place.to_string()
    }

    /// Begins to decide; what is not decided is for [`Shared::decide`].
    pub fn begin(
        self: &Arc<Self>,
        worker: usize,
        lines: SharedItems,
        taking: Taking,
        now: Nanos,
    ) -> FirstStep {
        match self.core.begin(lines, taking, now) {
            FirstStep::Decided(mut done) => {
                self.count(&done, &self.tally.saved);
                self.besides(worker, &mut done);
                FirstStep::Decided(done)
            }
            ask => ask,
        }
    }

    /// Asks the store, for as long as a request may wait.
    pub fn decide(
        self: &Arc<Self>,
        worker: usize,
        asking: PendingCall,
    ) -> impl Future<Output = SharedDecision> + Send + use<> {
        WaitingRequest::new(self.clone(), worker, asking).decide()
    }

    fn count(&self, done: &SharedDecision, otherwise: &AtomicU64) {
        let counter = if done.alone {
            &self.tally.alone
        } else {
            otherwise
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) async fn ask(
        &self,
        worker: usize,
        asking: &PendingCall,
        patience: Duration,
    ) -> Result<StoreReply, StoreError> {
        let answer = self.client.decide(worker, &asking.call);
        self.tallied(
            timeout(patience, answer)
                .await
                .unwrap_or(Err(StoreError::Late)),
        )
    }

    fn tallied(&self, said: Result<StoreReply, StoreError>) -> Result<StoreReply, StoreError> {
        let counter = match &said {
            Ok(_) => &self.tally.answered,
            Err(StoreError::Late) => &self.tally.late,
            Err(_) => &self.tally.failed,
        };
        if let Err(failure) = &said {
            self.note(failure);
        }
        counter.fetch_add(1, Relaxed);
        said
    }

    /// What went wrong last. That there is no connection yet says less than what was there before.
    pub(super) fn note(&self, failure: &StoreError) {
        let said = match failure {
            StoreError::NotConnected => self.client.cause(self.outsider()),
            // Nothing is wrong: it is begun in soon.
            StoreError::Empty => None,
            failure => Some(failure.to_string()),
        };
        if let Some(said) = said {
            *self.trouble.lock() = said;
        }
    }

    /// Asks what nobody waits for.
    fn besides(self: &Arc<Self>, worker: usize, done: &mut SharedDecision) {
        for asking in done.besides.drain(..) {
            self.tell(worker, asking);
        }
    }

    /// The same for one question. Without a runtime it is not asked: what is not given back counts for a while.
    pub fn tell(self: &Arc<Self>, worker: usize, asking: PendingCall) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let ready = self.core.ladder.standing() == StoreStatus::Shared && self.client.ready(worker);
        if asking.call.gives_back() && !ready {
            let life = self.core.backs.life();
            return self.core.backs.push(asking, life);
        }
        let shared = self.clone();
        runtime.spawn(async move {
            let mut answer: ReplyFuture = {
                let (shared, call) = (shared.clone(), asking.call.clone());
                Box::pin(async move { shared.client.decide(worker, &call).await })
            };
            let said = timeout(PATIENCE, &mut answer).await;
            let late = said.is_err();
            let said = shared.tallied(said.unwrap_or(Err(StoreError::Late)));
            shared.core.finish(&asking, said, shared.clock.now());
            if late && asking.refills() {
                shared.listen(&asking, answer).await;
            }
        });
    }

    /// Waits for the reply to a call that is given up.
    async fn listen(&self, asking: &PendingCall, answer: ReplyFuture) {
        let patience = match self.listens.fetch_add(1, Relaxed) {
            0..MOST_LISTENS => LISTENS,
            _ => PATIENCE,
        };
        let said = timeout(patience, answer).await;
        self.listens.fetch_sub(1, Relaxed);
        if let Ok(Ok(said)) = said {
            self.core.late(asking, &said, self.clock.now());
        }
    }

    /// Forgets a counter, in the store and here; whether the store had it.
    pub async fn forget(&self, plan: &SharingPlan, key: Fingerprint) -> Result<bool, StoreError> {
        let part = plan.part(key, Scale::plan(1), 0);
        self.core.ledger.forget(&part.name);
        let forgotten = self.client.forget(self.outsider(), &part);
        let forgotten = timeout(PATIENCE, forgotten).await;
        forgotten.unwrap_or(Err(StoreError::Late))
    }

    /// Says good-bye; the keeper ends.
    pub fn close(&self) {
        self.stop.notify_one();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}
