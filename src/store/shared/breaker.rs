//! A circuit breaker: whether the store is asked. A store that was away is trusted again when every gateway has
//! reported what it counted meanwhile, or when those units have left all windows.

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::base::clock::Nanos;

/// Failures in a row that make the store count as away.
const FAILURES_IN_A_ROW: u32 = 5;
/// From this number of calls within [`CALL_WINDOW`] on, the store counts as away when half of them fail.
const ENOUGH_CALLS: u32 = 20;
const CALL_WINDOW: Nanos = Nanos::from_secs(1);

/// What this gateway knows of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreStatus {
    /// The store is asked.
    Shared,
    /// The store is not asked, since this time.
    Away(Nanos),
    /// The store replies, since this time, but does not know all units yet.
    Learning(Nanos),
}

/// What decides about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store.
    Store,
    /// The store and this gateway's share, which both must have room.
    Both,
    /// The gateway's share.
    Share,
}

impl StoreStatus {
    /// The word for it in logs, headers and metrics.
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
    /// By then the store had been asked about windows shorter than this.
    asked_below: Nanos,
}

#[derive(Debug)]
struct BreakerState {
    status: StoreStatus,
    shared_once: bool,
    /// Times that the store went away.
    round: u32,
    /// Outages since the store last knew all units. A later one concerns shorter windows only.
    outages: SmallVec<[Outage; 2]>,
    gateways: u32,
    in_a_row: u32,
    /// When the current [`CALL_WINDOW`] began, its calls, and how many of them failed.
    window: (Nanos, u32, u32),
}

/// See the module.
#[derive(Debug)]
pub struct Breaker(Mutex<BreakerState>);

impl Breaker {
    /// A breaker that counts the store as away until it is met.
    pub fn new(now: Nanos) -> Breaker {
        Breaker(Mutex::new(BreakerState {
            status: StoreStatus::Away(now),
            shared_once: false,
            round: 0,
            outages: smallvec::smallvec![Outage {
                round: 0,
                at: now,
                asked_below: Nanos(u64::MAX),
            }],
            gateways: 1,
            in_a_row: 0,
            window: (now, 0, 0),
        }))
    }

    /// The store's status.
    pub fn status(&self) -> StoreStatus {
        self.0.lock().status
    }

    /// What decides about a limit with windows up to `longest`. A store that has learned for that long knows all
    /// units in them.
    pub fn decided_by(&self, longest: Nanos, now: Nanos) -> DecidedBy {
        match self.0.lock().status {
            StoreStatus::Shared => DecidedBy::Store,
            StoreStatus::Away(_) => DecidedBy::Share,
            StoreStatus::Learning(since) if now.since(since) > longest => DecidedBy::Store,
            StoreStatus::Learning(_) => DecidedBy::Both,
        }
    }

    /// How often the store has gone away.
    pub fn round(&self) -> u32 {
        self.0.lock().round
    }

    /// Whether a call of this round is still current: the store has not gone away since.
    pub fn is_current(&self, round: u32) -> bool {
        let state = self.0.lock();
        state.round == round && !matches!(state.status, StoreStatus::Away(_))
    }

    /// The outage because of which the gateway decides alone about a limit with windows up to `longest`: its round and
    /// its start. `now` where it does not.
    pub fn alone_since(&self, longest: Nanos, now: Nanos) -> (u32, Nanos) {
        let state = self.0.lock();
        match state.status {
            StoreStatus::Shared => return (state.round, now),
            StoreStatus::Learning(since) if now.since(since) > longest => {
                return (state.round, now);
            }
            StoreStatus::Learning(_) | StoreStatus::Away(_) => {}
        }
        let outages = state.outages.iter().rev();
        let outage = outages
            .into_iter()
            .find(|outage| outage.asked_below > longest);
        outage.map_or((state.round, now), |outage| (outage.round, outage.at))
    }

    /// Whether the store has never been shared.
    pub fn is_new(&self) -> bool {
        !self.0.lock().shared_once
    }

    /// The known number of gateways that share the store, this one included.
    pub fn gateways(&self) -> u32 {
        self.0.lock().gateways
    }

    /// Sets the number of gateways, at least 1.
    pub fn set_gateways(&self, gateways: usize) {
        self.0.lock().gateways = u32::try_from(gateways.max(1)).unwrap_or(u32::MAX);
    }

    /// Records a call with a reply.
    pub fn record_reply(&self, now: Nanos) {
        let mut state = self.0.lock();
        state.in_a_row = 0;
        state.count_call(now, 0);
    }

    /// Records a failed call. Returns whether the store is away because of it.
    pub fn record_failure(&self, now: Nanos) -> bool {
        let mut state = self.0.lock();
        state.in_a_row += 1;
        let (calls, failed) = state.count_call(now, 1);
        let mostly = calls >= ENOUGH_CALLS && failed * 2 >= calls;
        let away =
            state.status == StoreStatus::Shared && (state.in_a_row >= FAILURES_IN_A_ROW || mostly);
        if away {
            state.go_away(now);
        }
        away
    }

    /// Records that the store lacks data, or is out of reach for the keeper. Returns whether it was shared until now.
    pub fn record_renewal(&self, now: Nanos) -> bool {
        let mut state = self.0.lock();
        let news = state.status == StoreStatus::Shared;
        if news {
            state.go_away(now);
        }
        news
    }

    /// The store replies: gateways report to it from now on.
    pub fn start_learning(&self, now: Nanos) {
        self.0.lock().status = StoreStatus::Learning(now);
    }

    /// The store is gone again before it knew all units.
    pub fn stop_learning(&self, now: Nanos) {
        let mut state = self.0.lock();
        if matches!(state.status, StoreStatus::Learning(_)) {
            state.go_away(now);
        }
    }

    /// The store knows all units: it is shared again.
    pub fn finish_learning(&self, now: Nanos) {
        let mut state = self.0.lock();
        state.status = StoreStatus::Shared;
        state.shared_once = true;
        state.in_a_row = 0;
        state.window = (now, 0, 0);
    }
}

impl BreakerState {
    fn count_call(&mut self, now: Nanos, failed: u32) -> (u32, u32) {
        let (start, ..) = self.window;
        if now.since(start) > CALL_WINDOW {
            self.window = (now, 0, 0);
        }
        self.window.1 += 1;
        self.window.2 += failed;
        (self.window.1, self.window.2)
    }

    fn go_away(&mut self, now: Nanos) {
        let asked_below = match self.status {
            StoreStatus::Shared => Nanos(u64::MAX),
            StoreStatus::Learning(since) => now.since(since),
            StoreStatus::Away(_) => Nanos::ZERO,
        };
        self.status = StoreStatus::Away(now);
        self.round += 1;
        self.outages
            .retain(|outage| outage.asked_below > asked_below);
        self.outages.push(Outage {
            round: self.round,
            at: now,
            asked_below,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Breaker {
        let breaker = Breaker::new(Nanos::ZERO);
        breaker.start_learning(Nanos::ZERO);
        breaker.finish_learning(Nanos::ZERO);
        breaker
    }

    #[test]
    fn failures_in_a_row_and_a_share_of_many() {
        let breaker = shared();
        for _ in 0..3 {
            for _ in 0..4 {
                assert!(!breaker.record_failure(Nanos(1)));
            }
            // Fewer than MANY within the second.
            breaker.record_reply(Nanos(1));
        }
        let breaker = shared();
        assert_eq!(
            (0..5).filter(|_| breaker.record_failure(Nanos(1))).count(),
            1
        );
        assert_eq!(breaker.status(), StoreStatus::Away(Nanos(1)));
        let breaker = shared();
        let away = (0..40).position(|call| {
            if call % 2 == 0 {
                breaker.record_reply(Nanos(1));
                return false;
            }
            breaker.record_failure(Nanos(1))
        });
        assert_eq!(away, Some(19));
    }

    #[test]
    fn the_way_back() {
        let (breaker, minute) = (shared(), Nanos::from_secs(60));
        assert!(breaker.record_renewal(Nanos(5)));
        assert!(!breaker.record_renewal(Nanos(6)), "once");
        assert_eq!(breaker.decided_by(minute, Nanos(7)), DecidedBy::Share);
        breaker.start_learning(Nanos(8));
        assert_eq!(breaker.decided_by(minute, Nanos(9)), DecidedBy::Both);
        let later = Nanos(9 + minute.0);
        assert_eq!(
            breaker.decided_by(minute, later),
            DecidedBy::Store,
            "what was counted has left"
        );
        breaker.stop_learning(Nanos(10));
        assert_eq!(breaker.status(), StoreStatus::Away(Nanos(10)));
        breaker.start_learning(Nanos(11));
        breaker.finish_learning(Nanos(12));
        assert_eq!(breaker.decided_by(minute, Nanos(12)), DecidedBy::Store);
    }

    /// What was asked of a store that still learnt of longer windows begins anew when it goes again.
    #[test]
    fn gone_again_while_it_learns() {
        let (breaker, second, minute) = (shared(), Nanos::from_secs(1), Nanos::from_secs(60));
        breaker.record_renewal(Nanos(5));
        breaker.start_learning(Nanos(6));
        let ten = Nanos::from_secs(10);
        assert_eq!(breaker.decided_by(second, ten), DecidedBy::Store);
        assert_eq!(breaker.alone_since(second, ten), (1, ten));
        breaker.stop_learning(ten);
        assert_eq!(breaker.alone_since(second, minute), (2, ten));
        assert_eq!(breaker.alone_since(minute, minute), (1, Nanos(5)));
        breaker.start_learning(minute);
        breaker.stop_learning(minute.after(Nanos(1)));
        assert_eq!(
            breaker.alone_since(second, minute),
            (2, ten),
            "not asked since"
        );
        assert!(!breaker.record_renewal(minute), "away already");
    }
}
