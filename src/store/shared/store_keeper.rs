//! [`StoreKeeper`]: the thread that watches the store. At most ten times a second, it sends heartbeats and unused units to
//! a shared store, or recovers a store that was away. It also logs outages, and removes the gateway from the store at the
//! end. No request waits for it.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::time::timeout;

use super::breaker::StoreStatus;
use super::call::{HeartbeatSender, StoreError, StoreIdentity, StoreLoss};
use super::decider::GrantsToReturn;
use super::entry_exchange::EntryExchange;
use super::pending_call::PendingCall;
use super::permit_calls::{LeaseKeeper, watch_lease};
use super::recovery::{MissingReports, Recovery, RecoveryStep};
use super::shared_store::{BACKGROUND_TIMEOUT, NO_CONTACT_YET, SharedStore, SharedStoreStatus};
use crate::base::clock::Nanos;

/// The pause between two ticks of the keeper.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// The number of ticks from one heartbeat to the next.
const TICKS_PER_HEARTBEAT: u64 = 10;
/// The number of ticks from one check of all servers to the next. It is small, so that all gateways notice at nearly the
/// same time that a server is away. A heartbeat takes the place of every fifth check.
const TICKS_PER_CHECK: u64 = 2;
/// How long [`SharedStore::start`] waits for the first contact.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// The most probes of the store's speed in a row. One of them must be in time.
const MAX_PROBES: u32 = 3;
/// The shortest pause between two log lines about an outage; it doubles with each line.
const MIN_LOG_PAUSE: Nanos = Nanos::from_secs(1);
/// The longest pause between two log lines about an outage.
const MAX_LOG_PAUSE: Nanos = Nanos::from_secs(60);
/// For this long after all workers were made to reconnect, [`Keeper::identify_store`] does not make them reconnect again.
const RECONNECT_INTERVAL: Nanos = Nanos::from_secs(2);

/// The running keeper thread.
pub struct StoreKeeper(JoinHandle<()>);

impl StoreKeeper {
    /// Waits until the thread has ended; call [`SharedStore::stop_keeper`] first.
    pub fn join(self) {
        // A panic has been logged by its hook.
        let _ = self.0.join();
    }
}

impl SharedStore {
    /// Starts the keeper, and blocks the thread until the first contact with the store, for one second at most.
    ///
    /// # Errors
    ///
    /// When the system gives no thread, or no event queue for the thread's runtime.
    pub fn start(self: &Arc<Self>) -> std::io::Result<StoreKeeper> {
        let shared = self.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (contact_sender, contact) = mpsc::channel();
        let thread = thread::Builder::new().name("store".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = Keeper::new(&shared).run(contact_sender) => {}
                    () = watch_lease(&shared) => {}
                    () = shared.stop.notified() => {}
                }
                leave_store(&shared).await;
            });
        })?;
        // Without a contact the gateway starts too, and decides alone until the first one.
        let _ = contact.recv_timeout(START_TIMEOUT);
        Ok(StoreKeeper(thread))
    }
}

/// Whether the late reply to the last check or heartbeat was forgiven. A single late reply is, because this machine may be
/// the cause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forgiveness {
    Unused,
    Used,
}

/// The state of the keeper's task.
struct Keeper<'a> {
    shared: &'a Arc<SharedStore>,
    /// The index of the keeper's connection.
    connection_index: usize,
    recovery: Recovery,
    entries: EntryExchange,
    lease: LeaseKeeper,
    log: StoreOutageLog,
    forgiveness: Forgiveness,
    /// Whether the store was shared at the end of the last tick; true before the first one.
    was_shared: bool,
    /// How often the keeper's connection had been made when the last recovery began.
    connection_count: u32,
    /// The time before which [`Keeper::identify_store`] does not make the workers reconnect.
    next_reconnect_at: Nanos,
}

impl Keeper<'_> {
    fn new(shared: &Arc<SharedStore>) -> Keeper<'_> {
        Keeper {
            shared,
            connection_index: shared.background_connection(),
            recovery: Recovery::default(),
            entries: EntryExchange::default(),
            lease: LeaseKeeper::default(),
            log: StoreOutageLog::new(shared),
            forgiveness: Forgiveness::Unused,
            was_shared: true,
            connection_count: 0,
            next_reconnect_at: Nanos::ZERO,
        }
    }

    /// Watches or recovers the store in each tick, and never returns. Sends to `first_contact` after each tick at whose end
    /// the store is not away.
    async fn run(mut self, first_contact: mpsc::Sender<()>) {
        for tick in 0_u64.. {
            self.shared.client.keep_connected(self.connection_index);
            match self.shared.decider.breaker.status() {
                StoreStatus::Shared => self.watch_store(tick).await,
                StoreStatus::Away(_) | StoreStatus::Learning(_) => self.recover_store().await,
            }
            let status = self.shared.decider.breaker.status();
            self.was_shared = status == StoreStatus::Shared;
            self.lease
                .tick(self.shared, self.connection_index, tick)
                .await;
            if !matches!(status, StoreStatus::Away(_)) {
                // The receiver is dropped after the first contact.
                let _ = first_contact.send(());
                self.entries
                    .exchange(self.shared, self.connection_index, tick)
                    .await;
            }
            tokio::time::sleep(TICK_INTERVAL).await;
        }
    }

    /// Sends heartbeats and unused units to a shared store, and checks that the store still has its data. Records an outage
    /// if it may not have them.
    async fn watch_store(&mut self, tick: u64) {
        let (shared, now) = (self.shared, self.shared.clock.now());
        if self.has_reconnected() || self.workers_lead_elsewhere() {
            // A replica may have taken over meanwhile.
            shared.decider.breaker.record_outage(now);
            return;
        }
        for pending_call in shared.decider.take_unused_units(GrantsToReturn::Ended, now) {
            shared.send_in_background(self.connection_index, pending_call);
        }
        if tick.is_multiple_of(TICKS_PER_HEARTBEAT) {
            shared.decider.ledger.remove_idle_entries(now);
            self.send_heartbeat().await;
        } else if tick.is_multiple_of(TICKS_PER_CHECK) {
            self.check_marks().await;
        }
    }

    /// Takes the steps of the recovery that are possible now, and logs an outage or its end.
    async fn recover_store(&mut self) {
        let (shared, now) = (self.shared, self.shared.clock.now());
        self.log.log_outage(shared, now);
        if self.was_shared {
            // The former connections still wait for replies to abandoned calls. New calls would queue behind these.
            self.reconnect_workers(now);
        }
        if self.workers_lead_elsewhere() {
            // Connections to the former master must find the new one.
            (0..=self.connection_index).for_each(|index| shared.client.reconnect(index));
        }
        if !self.recovery.is_started() {
            self.lease.on_outage();
            self.connection_count = shared.client.connection_count(self.connection_index);
        }
        // Earlier reports went over the former connection, perhaps to another server. So the recovery begins anew.
        let recovered = match self.has_reconnected() {
            true => Err(StoreError::MarkMismatch),
            false => self.take_recovery_steps().await,
        };
        match recovered {
            Ok(true) => self.log.log_return(shared, now),
            Ok(false) => {}
            Err(error) => {
                shared.record_error(&error);
                self.recovery.on_failure(&shared.decider, &error, now);
            }
        }
    }

    /// Whether the keeper's connection is another one than when the last recovery began.
    fn has_reconnected(&self) -> bool {
        self.shared.client.connection_count(self.connection_index) != self.connection_count
    }

    /// Whether a worker's connection leads to another server than the keeper's.
    fn workers_lead_elsewhere(&self) -> bool {
        let client = &self.shared.client;
        (0..self.shared.worker_count)
            .any(|worker_index| client.leads_elsewhere(worker_index, self.connection_index))
    }

    /// Makes all workers connect anew.
    fn reconnect_workers(&mut self, now: Nanos) {
        (0..self.shared.worker_count)
            .for_each(|worker_index| self.shared.client.reconnect(worker_index));
        self.next_reconnect_at = now.after(RECONNECT_INTERVAL);
    }

    /// Sends the heartbeat of this gateway, and takes the number of gateways from the reply.
    async fn send_heartbeat(&mut self) {
        let shared = self.shared;
        let sender = HeartbeatSender {
            gateway: shared.decider.gateway,
            has_reported: true,
        };
        let live_gateways = shared
            .client
            .send_heartbeat(self.connection_index, Some(sender));
        let live_gateways = timeout(BACKGROUND_TIMEOUT, live_gateways).await;
        let live_gateways = live_gateways.unwrap_or(Err(StoreError::Late));
        let breaker = &shared.decider.breaker;
        self.record_check(
            live_gateways.map(|live| breaker.set_gateway_count(live.heartbeats.len())),
        );
    }

    /// Checks that all servers reply and have their data.
    async fn check_marks(&mut self) {
        let checked = self.shared.client.check_marks(self.connection_index);
        let checked = timeout(BACKGROUND_TIMEOUT, checked).await;
        self.record_check(checked.unwrap_or(Err(StoreError::Late)));
    }

    /// Records an outage if a check or heartbeat has failed. The first of several late replies in a row is forgiven.
    fn record_check(&mut self, outcome: Result<(), StoreError>) {
        let forgiveness = std::mem::replace(&mut self.forgiveness, Forgiveness::Unused);
        match outcome {
            Ok(()) => {}
            Err(StoreError::Late) if forgiveness == Forgiveness::Unused => {
                self.forgiveness = Forgiveness::Used;
            }
            Err(error) => {
                self.shared.record_error(&error);
                let now = self.shared.clock.now();
                self.shared.decider.breaker.record_outage(now);
            }
        }
    }

    /// Takes all steps up to the next heartbeat. Returns whether the store is shared again.
    async fn take_recovery_steps(&mut self) -> Result<bool, StoreError> {
        let (shared, connection_index) = (self.shared, self.connection_index);
        let decider = &shared.decider;
        let has_reported = loop {
            match self.recovery.next_step(decider, shared.clock.now()) {
                RecoveryStep::Identify => {
                    let loss = self.identify_store().await?;
                    self.recovery
                        .on_identified(decider, loss, shared.clock.now());
                }
                RecoveryStep::ListGateways => {
                    // Without a sender the heartbeat only lists the gateways.
                    let live_gateways = shared.client.send_heartbeat(connection_index, None);
                    let live_gateways = timeout(BACKGROUND_TIMEOUT, live_gateways).await;
                    let live_gateways = live_gateways.unwrap_or(Err(StoreError::Late))?;
                    self.recovery.on_listed(decider, live_gateways);
                }
                RecoveryStep::Compare(pending_call) => {
                    let reply = shared
                        .call_in_background(connection_index, &pending_call)
                        .await?;
                    decider.record_copied(&pending_call, &reply);
                }
                RecoveryStep::Report(pending_call) => {
                    let reply = shared
                        .call_in_background(connection_index, &pending_call)
                        .await;
                    if reply.is_err() {
                        decider.retry_give_back_of_credits(&pending_call);
                    }
                    reply?;
                    decider.record_report(&pending_call, shared.clock.now());
                }
                RecoveryStep::Heartbeat { has_reported } => break has_reported,
            }
        };
        self.finish_recovery(has_reported).await
    }

    /// Identifies the store, and keeps its secret and its mark. Returns the data that it may have lost since it was last
    /// identified. Fails if the store is too slow for requests.
    async fn identify_store(&mut self) -> Result<StoreLoss, StoreError> {
        let shared = self.shared;
        probe_speed(shared).await?;
        let may_initialize = self.recovery.may_initialize(shared.clock.now());
        let identity =
            shared
                .client
                .identify(self.connection_index, shared.secret(), may_initialize);
        let identity = timeout(BACKGROUND_TIMEOUT, identity).await;
        let identity: StoreIdentity = identity.unwrap_or(Err(StoreError::Late))?;
        let now = shared.clock.now();
        if now >= self.next_reconnect_at {
            // Connections made while the store went away may lead nowhere.
            self.reconnect_workers(now);
        }
        *shared.secret.lock() = Some(identity.secret);
        let former_mark = shared.mark.lock().replace(identity.mark);
        let has_data = former_mark == Some(identity.mark);
        Ok(match (has_data, identity.has_new_master) {
            (false, _) => StoreLoss::All,
            (true, true) => StoreLoss::NewMaster,
            (true, false) => shared.client.possible_loss(),
        })
    }

    /// Sends the heartbeat that ends the steps, and that says whether all units of this gateway are reported. Returns whether
    /// the store is shared again.
    async fn finish_recovery(&mut self, has_reported: bool) -> Result<bool, StoreError> {
        let shared = self.shared;
        self.lease.recover(shared, self.connection_index).await?;
        // The store is shared again only once all workers are connected.
        (0..shared.worker_count).for_each(|worker_index| shared.client.skip_delay(worker_index));
        let sender = HeartbeatSender {
            gateway: shared.decider.gateway,
            has_reported,
        };
        let live_gateways = shared
            .client
            .send_heartbeat(self.connection_index, Some(sender));
        let live_gateways = timeout(BACKGROUND_TIMEOUT, live_gateways).await;
        let live_gateways = live_gateways.unwrap_or(Err(StoreError::Late))?;
        probe_speed(shared).await?;
        let is_ready =
            (0..shared.worker_count).all(|worker_index| shared.client.is_ready(worker_index));
        let now = shared.clock.now();
        let outcome = self
            .recovery
            .on_heartbeat(&shared.decider, &live_gateways, is_ready, now);
        if let Err(MissingReports {
            reported_count,
            gateway_count,
        }) = outcome
        {
            *shared.last_error.lock() = format!(
                "{reported_count} of {gateway_count} gateways have reported what they counted meanwhile"
            );
        }
        Ok(outcome.is_ok())
    }
}

/// Logs when the store goes away, why, and when it is back. A store that comes and goes is logged less and less
/// often.
struct StoreOutageLog {
    /// The error of the last line.
    last_error: String,
    /// The [`Breaker::outage_count`](super::breaker::Breaker::outage_count) of the last line.
    outage_count: u32,
    /// The time before which no further line about an outage is written.
    next_line_at: Nanos,
    /// The pause after the next line about an outage.
    pause: Nanos,
    /// Whether the last line said that the store is away.
    is_away: bool,
}

impl StoreOutageLog {
    /// Starts as if the log had said that the store is away.
    fn new(shared: &SharedStore) -> StoreOutageLog {
        StoreOutageLog {
            last_error: String::from(NO_CONTACT_YET),
            outage_count: shared.decider.breaker.outage_count(),
            next_line_at: Nanos::ZERO,
            pause: MIN_LOG_PAUSE,
            is_away: true,
        }
    }

    /// Logs an outage that is new or has another cause. Does nothing during the pause after a line, before the first
    /// contact, and unless the store is away.
    fn log_outage(&mut self, shared: &SharedStore, now: Nanos) {
        let SharedStoreStatus {
            status,
            gateway_count: gateways,
            last_error: trouble,
        } = shared.status();
        if !matches!(status, StoreStatus::Away(_)) {
            return;
        }
        let outage_count = shared.decider.breaker.outage_count();
        let is_same = outage_count == self.outage_count && trouble == self.last_error;
        if trouble == NO_CONTACT_YET || is_same || now < self.next_line_at {
            return;
        }
        let store = shared.address();
        let times = outage_count.wrapping_sub(self.outage_count).max(1);
        tracing::warn!(
            store,
            gateways,
            trouble,
            times,
            "the store is away: limits hold by what `on_store_error` says"
        );
        self.last_error = trouble;
        self.outage_count = outage_count;
        self.is_away = true;
        self.next_line_at = now.after(self.pause);
        self.pause = Nanos(self.pause.0 * 2).min(MAX_LOG_PAUSE);
    }

    /// Logs that the store is back, if the log has said that it was away. Pauses start short again after a quiet time.
    fn log_return(&mut self, shared: &SharedStore, now: Nanos) {
        if !std::mem::take(&mut self.is_away) {
            return;
        }
        tracing::info!(
            store = shared.address(),
            gateways = shared.decider.breaker.gateway_count(),
            "limits are shared"
        );
        if now > self.next_line_at.after(self.pause) {
            self.pause = MIN_LOG_PAUSE;
        }
    }
}

/// Checks that the store replies within the budget of requests, because a slower one is of no use. A late probe is
/// repeated, up to [`MAX_PROBES`] in all.
async fn probe_speed(shared: &SharedStore) -> Result<(), StoreError> {
    for _ in 0..MAX_PROBES {
        let probe = shared.client.check_marks(shared.background_connection());
        // Only the time matters here: the caller's own call sees the errors.
        if timeout(shared.settings.budget, probe).await.is_ok() {
            return Ok(());
        }
    }
    Err(StoreError::Late)
}

/// Gives back the units in hand, removes this gateway from the store's list, and writes the last orders of operators. Does
/// nothing unless the store is shared. Units and orders have [`BACKGROUND_TIMEOUT`] each, and units end at the first call
/// that fails.
async fn leave_store(shared: &Arc<SharedStore>) {
    if shared.decider.breaker.status() != StoreStatus::Shared {
        return;
    }
    let connection_index = shared.background_connection();
    let leaving = async {
        let unused = shared
            .decider
            .take_unused_units(GrantsToReturn::All, shared.clock.now());
        for pending_call in unused.into_iter().map(PendingCall::numbered) {
            let reply = shared.call_in_background(connection_index, &pending_call);
            if reply.await.is_err() {
                return;
            }
        }
        LeaseKeeper::leave(shared, connection_index).await;
        // If this fails, the other gateways count this one for ten more seconds.
        let gateway = shared.decider.gateway;
        let _ = shared
            .client
            .remove_gateway(connection_index, gateway)
            .await;
    };
    let _ = timeout(BACKGROUND_TIMEOUT, leaving).await;
    let writing = EntryExchange::finish(shared, connection_index);
    let _ = timeout(BACKGROUND_TIMEOUT, writing).await;
}
