//! A thread that keeps the store in sight: says ten times a second what is new, meets a store that came back,
//! tells it what was counted without it, and waits until all gateways have.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::time::timeout;

use super::breaker::StoreStatus;
use super::call::{LiveGateways, StoreError, StoreIdentity, StoreLoss};
use super::gateway::{PATIENCE, Shared, UNMET};
use super::recovery::{Recovery, RecoveryStep};
use crate::base::clock::Nanos;

const TICK: Duration = Duration::from_millis(100);
/// Ticks from one sign of life to the next.
const BEAT: u64 = 10;
/// And from one look at all servers to the next: gateways have to see at the same time that one is away.
const LOOK: u64 = 2;
/// How long a start waits until the store is met.
const START: Duration = Duration::from_secs(1);
/// Of so many questions one must be answered as soon as requests need it.
const PROBES: u32 = 3;
/// Between two lines of the log that say that the store is away, at first and at last.
const PAUSES: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(60));
/// Between two times that the connections of workers are made anew for a store that came back.
const RESET: Nanos = Nanos::from_secs(2);

/// The thread's end.
pub struct StoreKeeper(JoinHandle<()>);

impl StoreKeeper {
    /// Waits for its end, after [`Shared::close`].
    pub fn ended(self) {
        // What panicked has said so.
        let _ = self.0.join();
    }
}

impl Shared {
    /// Starts the thread that keeps the store in sight; waits for a second at most until it is met.
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
    // Later is as good as now: until then each gateway counts alone.
    let _ = first.recv_timeout(START);
    Ok(StoreKeeper(thread))
}

async fn keep(shared: &Arc<Shared>, met: mpsc::Sender<()>) {
    let own = shared.outsider();
    let mut back = Recovery::default();
    let (mut told, mut reset) = (AwayLog::new(shared), Nanos::ZERO);
    let (mut known, mut late, mut made) = (true, 0, 0);
    for tick in 0_u64.. {
        shared.client.tend(own);
        let now = shared.clock.now();
        match shared.core.ladder.standing() {
            // A replica may have taken over while nobody asked.
            StoreStatus::Shared if shared.client.made(own) != made || strays(shared) => {
                shared.core.ladder.renewed(now);
            }
            StoreStatus::Shared => {
                for asking in shared.core.unused(false, now) {
                    shared.tell(own, asking);
                }
                if tick % BEAT == 0 {
                    shared.core.ledger.expire(now);
                    late = beat(shared, late).await;
                } else if tick % LOOK == 0 {
                    late = look(shared, late).await;
                }
            }
            StoreStatus::Away(_) | StoreStatus::Learning(_) => {
                told.say_away(shared, now);
                if known {
                    // Answers that nobody waits for any more are still on their way.
                    (0..shared.workers).for_each(|worker| shared.client.reset(worker));
                    reset = now.after(RESET);
                }
                if strays(shared) {
                    // Whoever is behind finds the one that leads now.
                    (0..=own).for_each(|number| shared.client.reset(number));
                }
                // What was told went over the connection before.
                let same = !back.begun() || shared.client.made(own) == made;
                if !back.begun() {
                    made = shared.client.made(own);
                }
                let came = match same {
                    true => come_back(shared, &mut back, &mut reset).await,
                    false => Err(StoreError::Renewed),
                };
                match came {
                    Ok(true) => told.say_shared(shared, now),
                    Ok(false) => {}
                    Err(failure) => {
                        shared.note(&failure);
                        back.failed(&shared.core, &failure, now);
                    }
                }
            }
        }
        let standing = shared.core.ladder.standing();
        known = standing == StoreStatus::Shared;
        if !matches!(standing, StoreStatus::Away(_)) {
            // Whoever started this waits for the first time only.
            let _ = met.send(());
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Whether workers ask another server than this thread does.
fn strays(shared: &Shared) -> bool {
    let own = shared.outsider();
    (0..shared.workers).any(|worker| shared.client.strays(worker, own))
}

/// What the log is told: that the store is away, why, and when it is back; of a store that comes and goes ever less
/// often.
struct AwayLog {
    trouble: String,
    /// Times that the store had gone away when the log was last told.
    round: u32,
    /// Not again before, and how long after that.
    next: (Nanos, Nanos),
    away: bool,
}

impl AwayLog {
    /// The first meeting is no return.
    fn new(shared: &Shared) -> AwayLog {
        AwayLog {
            trouble: String::from(UNMET),
            round: shared.core.ladder.round(),
            next: (Nanos::ZERO, PAUSES.0),
            away: true,
        }
    }

    fn say_away(&mut self, shared: &Shared, now: Nanos) {
        let (standing, gateways, trouble) = shared.status();
        if !matches!(standing, StoreStatus::Away(_)) {
            return;
        }
        let round = shared.core.ladder.round();
        let news = trouble != UNMET && (round != self.round || trouble != self.trouble);
        if !news || now < self.next.0 {
            return;
        }
        let (store, times) = (shared.place(), round.wrapping_sub(self.round).max(1));
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
        // Who was not told that it is away need not be told that it is back.
        if !std::mem::take(&mut self.away) {
            return;
        }
        tracing::info!(
            store = shared.place(),
            gateways = shared.core.ladder.gateways(),
            "limits are shared"
        );
        if now > self.next.0.after(self.next.1) {
            self.next.1 = PAUSES.0;
        }
    }
}

/// Says that this gateway is there, and learns who else is. One late answer may be this machine's fault.
async fn beat(shared: &Shared, late: u32) -> u32 {
    let gateway = Some(shared.core.gateway);
    let answer = timeout(PATIENCE, shared.client.beat(shared.outsider(), gateway)).await;
    let answer = answer.unwrap_or(Err(StoreError::Late));
    let count = |beats: LiveGateways| shared.core.ladder.count(beats.gateways.len());
    answered(shared, answer.map(count), late)
}

async fn look(shared: &Shared, late: u32) -> u32 {
    let answer = timeout(PATIENCE, shared.client.look(shared.outsider())).await;
    answered(shared, answer.unwrap_or(Err(StoreError::Late)), late)
}

fn answered(shared: &Shared, answer: Result<(), StoreError>, late: u32) -> u32 {
    match answer {
        Ok(()) => {}
        Err(StoreError::Late) if late == 0 => return 1,
        Err(failure) => {
            shared.note(&failure);
            shared.core.ladder.renewed(shared.clock.now());
        }
    }
    0
}

/// The steps back that can be made now; whether the store is shared again.
async fn come_back(
    shared: &Arc<Shared>,
    back: &mut Recovery,
    reset: &mut Nanos,
) -> Result<bool, StoreError> {
    let (own, core) = (shared.outsider(), &shared.core);
    let late = || Err(StoreError::Late);
    let told = loop {
        match back.next(core, shared.clock.now()) {
            RecoveryStep::Meet => {
                quick(shared).await?;
                let (known, begins) = (shared.secret(), back.begins(shared.clock.now()));
                let met = timeout(PATIENCE, shared.client.meet(own, known, begins)).await;
                let met: StoreIdentity = met.unwrap_or_else(|_| late())?;
                if shared.clock.now() >= *reset {
                    // What connected while the store was going may lead nowhere.
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
                back.met(core, lost, shared.clock.now());
            }
            RecoveryStep::Look => {
                let seen = timeout(PATIENCE, shared.client.beat(own, None)).await;
                back.saw(core, seen.unwrap_or(Err(StoreError::Late))?);
            }
            RecoveryStep::Compare(asking) => {
                let said = shared.ask(own, &asking, PATIENCE).await?;
                core.note_copied(&asking, &said);
            }
            RecoveryStep::Tell(asking) => {
                shared.ask(own, &asking, PATIENCE).await?;
                core.acknowledged(&asking);
            }
            RecoveryStep::Beat(told) => break told,
        }
    };
    (0..shared.workers).for_each(|worker| shared.client.hurry(worker));
    let answer = timeout(
        PATIENCE,
        shared.client.beat(own, told.then_some(core.gateway)),
    );
    let beats = answer.await.unwrap_or(Err(StoreError::Late))?;
    quick(shared).await?;
    let ready = (0..shared.workers).all(|worker| shared.client.ready(worker));
    let beaten = back.beaten(core, &beats, ready, shared.clock.now());
    if let Err((told, gateways)) = beaten {
        let told = format!("{told} of {gateways} gateways have told what they counted meanwhile");
        *shared.trouble.lock() = told;
    }
    Ok(beaten.is_ok())
}

/// A store that answers later than requests wait is as good as none. One late answer may be this machine's fault.
async fn quick(shared: &Shared) -> Result<(), StoreError> {
    for _ in 0..PROBES {
        let look = shared.client.look(shared.outsider());
        // What it says is for who asks.
        if timeout(shared.settings.budget, look).await.is_ok() {
            return Ok(());
        }
    }
    Err(StoreError::Late)
}

/// Gives back what is in hand, and is no gateway any more.
async fn leave(shared: &Arc<Shared>) {
    if shared.core.ladder.standing() != StoreStatus::Shared {
        return;
    }
    let own = shared.outsider();
    let all = async {
        for asking in shared.core.unused(true, shared.clock.now()) {
            if shared.ask(own, &asking, PATIENCE).await.is_err() {
                return;
            }
        }
        // Others count it for ten seconds more when this fails.
        let _ = shared.client.leave(own, shared.core.gateway).await;
    };
    let _ = timeout(PATIENCE, all).await;
}
