//! A thread that keeps in touch with the store: ten times a second it sends what is due. It meets a store that came
//! back, reports what was counted without it, and waits for all gateways' reports.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::time::timeout;

use super::breaker::StoreStatus;
use super::call::{LiveGateways, StoreError, StoreIdentity, StoreLoss};
use super::gateway::{NOT_MET, PATIENCE, Shared};
use super::recovery::{Recovery, RecoveryStep};
use crate::base::clock::Nanos;

const TICK: Duration = Duration::from_millis(100);
/// Ticks between two beats.
const BEAT: u64 = 10;
/// Ticks between two looks at all servers: all gateways must notice at the same time that one is away.
const LOOK: u64 = 2;
/// How long a start waits until the store is met.
const START: Duration = Duration::from_secs(1);
/// Of this many probes one must be answered within the budget of requests.
const PROBES: u32 = 3;
/// Shortest pause between two log lines that say that the store is away: at first, and after many.
const PAUSES: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(60));
/// Shortest pause between two resets of the workers' connections to a store that came back.
const RESET: Nanos = Nanos::from_secs(2);

/// The running keeper thread.
pub struct StoreKeeper(JoinHandle<()>);

impl StoreKeeper {
    /// Waits until the thread has ended; call [`Shared::close`] first.
    pub fn ended(self) {
        // A panic has been logged by its hook.
        let _ = self.0.join();
    }
}

impl Shared {
    /// Starts the keeper, and waits for the first contact with the store, for one second at most.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn start(self: &Arc<Self>) -> std::io::Result<StoreKeeper> {
        start(self.clone())
    }
}

fn start(shared: Arc<Shared>) -> io::Result<StoreKeeper> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (met, first) = mpsc::channel();
    let thread = thread::Builder::new().name("store".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = keep(&shared, met) => {}
                () = shared.stop.notified() => {}
            }
            leave(&shared).await;
        });
    })?;
    // A later contact is as good: until then each gateway counts alone.
    let _ = first.recv_timeout(START);
    Ok(StoreKeeper(thread))
}

async fn keep(shared: &Arc<Shared>, met: mpsc::Sender<()>) {
    let own = shared.outsider();
    let mut back = Recovery::default();
    let (mut log, mut reset) = (AwayLog::new(shared), Nanos::ZERO);
    let (mut known, mut late, mut made) = (true, 0, 0);
    for tick in 0_u64.. {
        shared.client.tend(own);
        let now = shared.clock.now();
        match shared.decider.breaker.status() {
            // A replica may have taken over meanwhile.
            StoreStatus::Shared if shared.client.made(own) != made || strays(shared) => {
                shared.decider.breaker.record_renewal(now);
            }
            StoreStatus::Shared => {
                for pending_call in shared.decider.take_unused(false, now) {
                    shared.send(own, pending_call);
                }
                if tick % BEAT == 0 {
                    shared.decider.ledger.expire(now);
                    late = beat(shared, late).await;
                } else if tick % LOOK == 0 {
                    late = look(shared, late).await;
                }
            }
            StoreStatus::Away(_) | StoreStatus::Learning(_) => {
                log.say_away(shared, now);
                if known {
                    // Replies to abandoned calls are still on their way.
                    (0..shared.workers).for_each(|worker| shared.client.reset(worker));
                    reset = now.after(RESET);
                }
                if strays(shared) {
                    // Connections to the former master must find the new one.
                    (0..=own).for_each(|number| shared.client.reset(number));
                }
                // Reports went over the former connection, perhaps to another server.
                let same = !back.is_started() || shared.client.made(own) == made;
                if !back.is_started() {
                    made = shared.client.made(own);
                }
                let came = match same {
                    true => come_back(shared, &mut back, &mut reset).await,
                    false => Err(StoreError::Renewed),
                };
                match came {
                    Ok(true) => log.say_shared(shared, now),
                    Ok(false) => {}
                    Err(failure) => {
                        shared.note_trouble(&failure);
                        back.on_failure(&shared.decider, &failure, now);
                    }
                }
            }
        }
        let standing = shared.decider.breaker.status();
        known = standing == StoreStatus::Shared;
        if !matches!(standing, StoreStatus::Away(_)) {
            // The starter waits for the first contact only.
            let _ = met.send(());
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Whether a worker's connection leads to another server than this thread's.
fn strays(shared: &Shared) -> bool {
    let own = shared.outsider();
    (0..shared.workers).any(|worker| shared.client.strays(worker, own))
}

/// Logs when the store goes away, why, and when it is back. A store that comes and goes is logged less and less
/// often.
struct AwayLog {
    trouble: String,
    /// [`Breaker::round`](super::breaker::Breaker::round) at the last line.
    round: u32,
    /// The time before which no further line is written, and the pause after that.
    next: (Nanos, Nanos),
    away: bool,
}

impl AwayLog {
    /// Starts as if the log knew that the store is away.
    fn new(shared: &Shared) -> AwayLog {
        AwayLog {
            trouble: String::from(NOT_MET),
            round: shared.decider.breaker.round(),
            next: (Nanos::ZERO, PAUSES.0),
            away: true,
        }
    }

    fn say_away(&mut self, shared: &Shared, now: Nanos) {
        let (standing, gateways, trouble) = shared.status();
        if !matches!(standing, StoreStatus::Away(_)) {
            return;
        }
        let round = shared.decider.breaker.round();
        let news = trouble != NOT_MET && (round != self.round || trouble != self.trouble);
        if !news || now < self.next.0 {
            return;
        }
        let (store, times) = (shared.address(), round.wrapping_sub(self.round).max(1));
        tracing::warn!(
            store,
            gateways,
            trouble,
            times,
            "the store is away: limits hold by what `on_store_error` says"
        );
        (self.trouble, self.round, self.away) = (trouble, round, true);
        let pause = self.next.1;
        self.next = (now.after(pause), Nanos(pause.0 * 2).min(PAUSES.1));
    }

    fn say_shared(&mut self, shared: &Shared, now: Nanos) {
        // The log says that the store is back only where it said that it was away.
        if !std::mem::take(&mut self.away) {
            return;
        }
        tracing::info!(
            store = shared.address(),
            gateways = shared.decider.breaker.gateways(),
            "limits are shared"
        );
        if now > self.next.0.after(self.next.1) {
            self.next.1 = PAUSES.0;
        }
    }
}

/// Says that this gateway is alive, and counts the others. A single late reply is forgiven: this machine may be the
/// cause.
async fn beat(shared: &Shared, late: u32) -> u32 {
    let gateway = Some(shared.decider.gateway);
    let outcome = timeout(PATIENCE, shared.client.beat(shared.outsider(), gateway)).await;
    let outcome = outcome.unwrap_or(Err(StoreError::Late));
    let count = |beats: LiveGateways| shared.decider.breaker.set_gateways(beats.gateways.len());
    answered(shared, outcome.map(count), late)
}

async fn look(shared: &Shared, late: u32) -> u32 {
    let outcome = timeout(PATIENCE, shared.client.look(shared.outsider())).await;
    answered(shared, outcome.unwrap_or(Err(StoreError::Late)), late)
}

fn answered(shared: &Shared, outcome: Result<(), StoreError>, late: u32) -> u32 {
    match outcome {
        Ok(()) => {}
        Err(StoreError::Late) if late == 0 => return 1,
        Err(failure) => {
            shared.note_trouble(&failure);
            shared.decider.breaker.record_renewal(shared.clock.now());
        }
    }
    0
}

/// Takes all steps of the recovery that are possible now. Returns whether the store is shared again.
async fn come_back(
    shared: &Arc<Shared>,
    back: &mut Recovery,
    reset: &mut Nanos,
) -> Result<bool, StoreError> {
    let (own, decider) = (shared.outsider(), &shared.decider);
    let late = || Err(StoreError::Late);
    let told = loop {
        match back.next_step(decider, shared.clock.now()) {
            RecoveryStep::Meet => {
                quick(shared).await?;
                let (known, begins) = (shared.secret(), back.may_initialize(shared.clock.now()));
                let met = timeout(PATIENCE, shared.client.meet(own, known, begins)).await;
                let met: StoreIdentity = met.unwrap_or_else(|_| late())?;
                if shared.clock.now() >= *reset {
                    // Connections made while the store went away may lead nowhere.
                    (0..shared.workers).for_each(|worker| shared.client.reset(worker));
                    *reset = shared.clock.now().after(RESET);
                }
                *shared.secret.lock() = Some(met.secret);
                let before = shared.mark.lock().replace(met.mark);
                let lost = match (before == Some(met.mark), met.moved) {
                    (false, _) => StoreLoss::All,
                    (true, true) => StoreLoss::Moved,
                    (true, false) => shared.client.loses(),
                };
                back.on_met(decider, lost, shared.clock.now());
            }
            RecoveryStep::Look => {
                let seen = timeout(PATIENCE, shared.client.beat(own, None)).await;
                back.on_listed(decider, seen.unwrap_or(Err(StoreError::Late))?);
            }
            RecoveryStep::Compare(pending_call) => {
                let reply = shared.call(own, &pending_call, PATIENCE).await?;
                decider.record_copied(&pending_call, &reply);
            }
            RecoveryStep::Report(pending_call) => {
                shared.call(own, &pending_call, PATIENCE).await?;
                decider.record_report(&pending_call);
            }
            RecoveryStep::Beat(told) => break told,
        }
    };
    (0..shared.workers).for_each(|worker| shared.client.hurry(worker));
    let outcome = timeout(
        PATIENCE,
        shared.client.beat(own, told.then_some(decider.gateway)),
    );
    let beats = outcome.await.unwrap_or(Err(StoreError::Late))?;
    quick(shared).await?;
    let ready = (0..shared.workers).all(|worker| shared.client.ready(worker));
    let beaten = back.on_beat(decider, &beats, ready, shared.clock.now());
    if let Err((told, gateways)) = beaten {
        let told =
            format!("{told} of {gateways} gateways have reported what they counted meanwhile");
        *shared.trouble.lock() = told;
    }
    Ok(beaten.is_ok())
}

/// Whether the store replies within the budget of requests; a slower one is of no use. Late probes are forgiven, up to
/// [`PROBES`].
async fn quick(shared: &Shared) -> Result<(), StoreError> {
    for _ in 0..PROBES {
        let look = shared.client.look(shared.outsider());
        // Only the time matters here: the caller's own call sees the errors.
        if timeout(shared.settings.budget, look).await.is_ok() {
            return Ok(());
        }
    }
    Err(StoreError::Late)
}

/// Gives back the units in hand, and removes this gateway from the store's list.
async fn leave(shared: &Arc<Shared>) {
    if shared.decider.breaker.status() != StoreStatus::Shared {
        return;
    }
    let own = shared.outsider();
    let all = async {
        for pending_call in shared.decider.take_unused(true, shared.clock.now()) {
            if shared.call(own, &pending_call, PATIENCE).await.is_err() {
                return;
            }
        }
        // When this fails, the others count this gateway for ten more seconds.
        let _ = shared.client.leave(own, shared.decider.gateway).await;
    };
    let _ = timeout(PATIENCE, all).await;
}
