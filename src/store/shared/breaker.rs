//! Whether the store is asked: a circuit breaker, and the way back. A store that was away is trusted again when
//! every gateway has told it what it counted meanwhile, or what it may not know has left all windows.

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::base::clock::Nanos;

/// Failures in a row after which the store is away.
const IN_A_ROW: u32 = 5;
/// Calls within [`SPAN`] from which on half of them may not fail.
const MANY: u32 = 20;
const SPAN: Nanos = Nanos::from_secs(1);

/// How the store stands to this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreStatus {
    /// It is asked.
    Shared,
    /// It is not asked; since when.
    Away(Nanos),
    /// It answers, but does not know all that was counted; since when.
    Learning(Nanos),
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store.
    Store,
    /// The store and this gateway's share, which both must have room.
    Both,
    /// The share.
    LocalShare,
}

impl StoreStatus {
    /// As logs, headers and metrics write it.
    pub fn as_str(self) -> &'static str {
        match self {
            StoreStatus::Shared => "shared",
            StoreStatus::Away(_) => "away",
            StoreStatus::Learning(_) => "learning",
        }
    }
}

/// A time that the store went away.
#[derive(Clone, Copy, Debug)]
struct Outage {
    round: u32,
    at: Nanos,
    /// It had been asked by then about windows shorter than this.
    asked: Nanos,
}

#[derive(Debug)]
struct BreakerState {
    standing: StoreStatus,
    shared_once: bool,
    /// Times that the store went away.
    round: u32,
    /// Those since it last knew all. A later one is for shorter windows.
    leaves: SmallVec<[Outage; 2]>,
    gateways: u32,
    in_a_row: u32,
    /// When the calls that are counted began, how many, how many failed.
    window: (Nanos, u32, u32),
}

/// See the module.
#[derive(Debug)]
pub struct Breaker(Mutex<BreakerState>);

impl Breaker {
    /// Away, until the store is met.
    pub fn new(now: Nanos) -> Breaker {
        Breaker(Mutex::new(BreakerState {
            standing: StoreStatus::Away(now),
            shared_once: false,
            round: 0,
            leaves: smallvec::smallvec![Outage {
                round: 0,
                at: now,
                asked: Nanos(u64::MAX),
            }],
            gateways: 1,
            in_a_row: 0,
            window: (now, 0, 0),
        }))
    }

    /// How the store stands.
    pub fn standing(&self) -> StoreStatus {
        self.0.lock().standing
    }

    /// How a limit with windows up to `longest` is decided. What was counted before a store learns has left them
    /// after that long.
    pub fn way(&self, longest: Nanos, now: Nanos) -> DecidedBy {
        match self.0.lock().standing {
            StoreStatus::Shared => DecidedBy::Store,
            StoreStatus::Away(_) => DecidedBy::LocalShare,
            StoreStatus::Learning(since) if now.since(since) > longest => DecidedBy::Store,
            StoreStatus::Learning(_) => DecidedBy::Both,
        }
    }

    /// How often the store has gone away.
    pub fn round(&self) -> u32 {
        self.0.lock().round
    }

    /// Whether what was asked in this round is news: the store has not gone away since.
    pub fn hears(&self, round: u32) -> bool {
        let state = self.0.lock();
        state.round == round && !matches!(state.standing, StoreStatus::Away(_))
    }

    /// Since when a gateway decides alone at `now` about a limit with windows up to `longest`, and how often the
    /// store had gone away by then.
    pub fn alone(&self, longest: Nanos, now: Nanos) -> (u32, Nanos) {
        let state = self.0.lock();
        match state.standing {
            StoreStatus::Shared => return (state.round, now),
            StoreStatus::Learning(since) if now.since(since) > longest => {
                return (state.round, now);
            }
            StoreStatus::Learning(_) | StoreStatus::Away(_) => {}
        }
        let leaves = state.leaves.iter().rev();
        let leave = leaves.into_iter().find(|leave| leave.asked > longest);
        leave.map_or((state.round, now), |leave| (leave.round, leave.at))
    }

    /// Whether the store was never shared.
    pub fn is_new(&self) -> bool {
        !self.0.lock().shared_once
    }

    /// Gateways that share the store, this one included, as far as is known.
    pub fn gateways(&self) -> u32 {
        self.0.lock().gateways
    }

    /// So many gateways are there.
    pub fn count(&self, gateways: usize) {
        self.0.lock().gateways = u32::try_from(gateways.max(1)).unwrap_or(u32::MAX);
    }

    /// A call was answered.
    pub fn answered(&self, now: Nanos) {
        let mut state = self.0.lock();
        state.in_a_row = 0;
        state.step(now, 0);
    }

    /// A call failed; whether the store is away by that.
    pub fn failed(&self, now: Nanos) -> bool {
        let mut state = self.0.lock();
        state.in_a_row += 1;
        let (calls, failed) = state.step(now, 1);
        let mostly = calls >= MANY && failed * 2 >= calls;
        let away = state.standing == StoreStatus::Shared && (state.in_a_row >= IN_A_ROW || mostly);
        if away {
            state.leave(now);
        }
        away
    }

    /// What the store knows is not what this gateway took it for; whether that is news.
    pub fn renewed(&self, now: Nanos) -> bool {
        let mut state = self.0.lock();
        let news = state.standing == StoreStatus::Shared;
        if news {
            state.leave(now);
        }
        news
    }

    /// The store answers: it learns from now on.
    pub fn met(&self, now: Nanos) {
        self.0.lock().standing = StoreStatus::Learning(now);
    }

    /// It is gone again before it has learnt.
    pub fn lost(&self, now: Nanos) {
        let mut state = self.0.lock();
        if matches!(state.standing, StoreStatus::Learning(_)) {
            state.leave(now);
        }
    }

    /// It knows all.
    pub fn learnt(&self, now: Nanos) {
        let mut state = self.0.lock();
        state.standing = StoreStatus::Shared;
        state.shared_once = true;
        state.in_a_row = 0;
        state.window = (now, 0, 0);
    }
}

impl BreakerState {
    fn step(&mut self, now: Nanos, failed: u32) -> (u32, u32) {
        let (start, ..) = self.window;
        if now.since(start) > SPAN {
            self.window = (now, 0, 0);
        }
        self.window.1 += 1;
        self.window.2 += failed;
        (self.window.1, self.window.2)
    }

    fn leave(&mut self, now: Nanos) {
        let asked = match self.standing {
            StoreStatus::Shared => Nanos(u64::MAX),
            StoreStatus::Learning(since) => now.since(since),
            StoreStatus::Away(_) => Nanos::ZERO,
        };
        self.standing = StoreStatus::Away(now);
        self.round += 1;
        self.leaves.retain(|leave| leave.asked > asked);
        self.leaves.push(Outage {
            round: self.round,
            at: now,
            asked,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Breaker {
        let ladder = Breaker::new(Nanos::ZERO);
        ladder.met(Nanos::ZERO);
        ladder.learnt(Nanos::ZERO);
        ladder
    }

    #[test]
    fn failures_in_a_row_and_a_share_of_many() {
        let ladder = shared();
        for _ in 0..3 {
            for _ in 0..4 {
                assert!(!ladder.failed(Nanos(1)));
            }
            // Fewer than MANY within the second.
            ladder.answered(Nanos(1));
        }
        let ladder = shared();
        assert_eq!((0..5).filter(|_| ladder.failed(Nanos(1))).count(), 1);
        assert_eq!(ladder.standing(), StoreStatus::Away(Nanos(1)));
        let ladder = shared();
        let away = (0..40).position(|call| {
            if call % 2 == 0 {
                ladder.answered(Nanos(1));
                return false;
            }
            ladder.failed(Nanos(1))
        });
        assert_eq!(away, Some(19));
    }

    #[test]
    fn the_way_back() {
        let (ladder, minute) = (shared(), Nanos::from_secs(60));
        assert!(ladder.renewed(Nanos(5)));
        assert!(!ladder.renewed(Nanos(6)), "once");
        assert_eq!(ladder.way(minute, Nanos(7)), DecidedBy::LocalShare);
        ladder.met(Nanos(8));
        assert_eq!(ladder.way(minute, Nanos(9)), DecidedBy::Both);
        let later = Nanos(9 + minute.0);
        assert_eq!(
            ladder.way(minute, later),
            DecidedBy::Store,
            "what was counted has left"
        );
        ladder.lost(Nanos(10));
        assert_eq!(ladder.standing(), StoreStatus::Away(Nanos(10)));
        ladder.met(Nanos(11));
        ladder.learnt(Nanos(12));
        assert_eq!(ladder.way(minute, Nanos(12)), DecidedBy::Store);
    }

    /// What was asked of a store that still learnt of longer windows begins anew when it goes again.
    #[test]
    fn gone_again_while_it_learns() {
        let (ladder, second, minute) = (shared(), Nanos::from_secs(1), Nanos::from_secs(60));
        ladder.renewed(Nanos(5));
        ladder.met(Nanos(6));
        let ten = Nanos::from_secs(10);
        assert_eq!(ladder.way(second, ten), DecidedBy::Store);
        assert_eq!(ladder.alone(second, ten), (1, ten));
        ladder.lost(ten);
        assert_eq!(ladder.alone(second, minute), (2, ten));
        assert_eq!(ladder.alone(minute, minute), (1, Nanos(5)));
        ladder.met(minute);
        ladder.lost(minute.after(Nanos(1)));
        assert_eq!(ladder.alone(second, minute), (2, ten), "not asked since");
        assert!(!ladder.renewed(minute), "away already");
    }
}
