//! [`Breaker`]: the circuit breaker that decides whether the store is called. A store that was away is trusted again once
//! every gateway has reported its ungranted units, or once those have left all windows. The breaker makes no calls.

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::base::clock::Nanos;

/// The store counts as away after this many failed calls in a row.
const MAX_CONSECUTIVE_FAILURES: u32 = 5;
/// The store counts as away when at least half of the calls within a [`CALL_WINDOW`] fail, if there are at least this many.
const MIN_CALLS_IN_WINDOW: u32 = 20;
/// The longest time in which calls are counted together.
const CALL_WINDOW: Nanos = Nanos::from_secs(1);

/// Whether the shared store is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreStatus {
    /// The store decides about all shared limits.
    Shared,
    /// Since this time the store is out of reach or lacks data, or was not yet identified. No request calls it; only the
    /// keeper does.
    Away(Nanos),
    /// The store replies, since this time, but does not know all units yet.
    Learning(Nanos),
}

/// What decides about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store, by its reply or a lease.
    Store,
    /// The store and this gateway's share, which must both have room.
    Both,
    /// The gateway's share of the limit.
    Share,
}

impl StoreStatus {
    /// The status as logs, headers and metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            StoreStatus::Shared => "shared",
            StoreStatus::Away(_) => "away",
            StoreStatus::Learning(_) => "learning",
        }
    }
}

/// One outage of the store.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// The outage's number, from 1; 0 before the first contact.
    number: u32,
    started_at: Nanos,
    /// Just before the outage the store decided about limits whose windows are all shorter than this.
    decided_below: Nanos,
}

/// The calls of one [`CALL_WINDOW`].
#[derive(Clone, Copy, Debug)]
struct RecentCalls {
    started_at: Nanos,
    call_count: u32,
    failure_count: u32,
}

impl RecentCalls {
    fn starting_at(started_at: Nanos) -> RecentCalls {
        RecentCalls {
            started_at,
            call_count: 0,
            failure_count: 0,
        }
    }

    /// Adds a call; to a new window if the current window is over.
    fn add(&mut self, now: Nanos, has_failed: bool) {
        if now.since(self.started_at) > CALL_WINDOW {
            *self = RecentCalls::starting_at(now);
        }
        self.call_count += 1;
        self.failure_count += u32::from(has_failed);
    }
}

#[derive(Debug)]
struct BreakerState {
    status: StoreStatus,
    /// Whether the store was ever shared.
    was_ever_shared: bool,
    /// The number behind [`Breaker::outage_count`].
    outage_count: u32,
    /// Outages since the store last decided about all limits, oldest first. Each concerns shorter windows only than the one
    /// before.
    outages: SmallVec<[Outage; 2]>,
    /// The number of gateways that shared the store when it was last shared, at least 1.
    sharing_gateway_count: u32,
    /// The number of gateways among which units are divided, at least `sharing_gateway_count`.
    gateway_count: u32,
    /// Failed calls since the last reply.
    consecutive_failures: u32,
    recent_calls: RecentCalls,
}

/// The circuit breaker of one gateway.
#[derive(Debug)]
pub struct Breaker(Mutex<BreakerState>);

impl Breaker {
    /// A breaker for which the store is away until it is identified.
    pub fn new(now: Nanos) -> Breaker {
        Breaker(Mutex::new(BreakerState {
            status: StoreStatus::Away(now),
            was_ever_shared: false,
            outage_count: 0,
            outages: smallvec::smallvec![Outage {
                number: 0,
                started_at: now,
                decided_below: Nanos(u64::MAX),
            }],
            sharing_gateway_count: 1,
            gateway_count: 1,
            consecutive_failures: 0,
            recent_calls: RecentCalls::starting_at(now),
        }))
    }

    /// The store's status by the last call or step of the keeper.
    pub fn status(&self) -> StoreStatus {
        self.0.lock().status
    }

    /// What decides about a limit with windows up to `longest_window`. A store that has learned for longer knows all units
    /// in them.
    pub fn decided_by(&self, longest_window: Nanos, now: Nanos) -> DecidedBy {
        match self.0.lock().status {
            StoreStatus::Shared => DecidedBy::Store,
            StoreStatus::Away(_) => DecidedBy::Share,
            StoreStatus::Learning(since) if now.since(since) > longest_window => DecidedBy::Store,
            StoreStatus::Learning(_) => DecidedBy::Both,
        }
    }

    /// How often the store has gone away, also while it was learning.
    pub fn outage_count(&self) -> u32 {
        self.0.lock().outage_count
    }

    /// Whether the store is not away, and was never away since a call that was made at this [`Breaker::outage_count`].
    pub fn is_current(&self, outage_count: u32) -> bool {
        let state = self.0.lock();
        state.outage_count == outage_count && !matches!(state.status, StoreStatus::Away(_))
    }

    /// The number and the start of the outage because of which the gateway decides alone about a limit with windows up to
    /// `longest_window`. The start is `now` where the store decides.
    pub fn alone_since(&self, longest_window: Nanos, now: Nanos) -> (u32, Nanos) {
        let state = self.0.lock();
        match state.status {
            StoreStatus::Shared => return (state.outage_count, now),
            StoreStatus::Learning(since) if now.since(since) > longest_window => {
                return (state.outage_count, now);
            }
            StoreStatus::Learning(_) | StoreStatus::Away(_) => {}
        }
        let mut outages = state.outages.iter().rev();
        match outages.find(|outage| outage.decided_below > longest_window) {
            Some(outage) => (outage.number, outage.started_at),
            None => (state.outage_count, now),
        }
    }

    /// Whether the store has never been shared.
    pub fn was_never_shared(&self) -> bool {
        !self.0.lock().was_ever_shared
    }

    /// The number of gateways that share the store, by the last heartbeat; this one is included. While the store is not
    /// shared, the number only grows.
    pub fn gateway_count(&self) -> u32 {
        self.0.lock().gateway_count
    }

    /// The number of gateways that shared the store when it was last shared; 1 if it never was.
    pub fn sharing_gateway_count(&self) -> u32 {
        self.0.lock().sharing_gateway_count
    }

    /// Sets the number of gateways that share the store, at least 1.
    pub fn set_gateway_count(&self, gateway_count: usize) {
        let mut state = self.0.lock();
        state.gateway_count = u32::try_from(gateway_count.max(1)).unwrap_or(u32::MAX);
        state.sharing_gateway_count = state.gateway_count;
    }

    /// Raises the number of gateways among which units are divided to this one, if that is higher.
    pub fn raise_gateway_count(&self, gateway_count: usize) {
        let mut state = self.0.lock();
        let gateway_count = u32::try_from(gateway_count).unwrap_or(u32::MAX);
        state.gateway_count = state.gateway_count.max(gateway_count);
    }

    /// Records a call with a reply.
    pub fn record_reply(&self, now: Nanos) {
        let mut state = self.0.lock();
        state.consecutive_failures = 0;
        state.recent_calls.add(now, false);
    }

    /// Records a failed call. Returns whether this call is the one that made a shared store count as away.
    pub fn record_failure(&self, now: Nanos) -> bool {
        let mut state = self.0.lock();
        state.consecutive_failures += 1;
        state.recent_calls.add(now, true);
        let RecentCalls {
            call_count,
            failure_count,
            ..
        } = state.recent_calls;
        let many_failed = call_count >= MIN_CALLS_IN_WINDOW && failure_count * 2 >= call_count;
        let is_broken = many_failed || state.consecutive_failures >= MAX_CONSECUTIVE_FAILURES;
        let begins_outage = state.status == StoreStatus::Shared && is_broken;
        if begins_outage {
            state.begin_outage(now);
        }
        begins_outage
    }

    /// Records that the store lacks data, or is out of reach for the keeper. Returns whether it was shared until now; if
    /// not, nothing changes.
    pub fn record_outage(&self, now: Nanos) -> bool {
        let mut state = self.0.lock();
        let was_shared = state.status == StoreStatus::Shared;
        if was_shared {
            state.begin_outage(now);
        }
        was_shared
    }

    /// Records that the store replies again: gateways report to it from now on.
    pub fn start_learning(&self, now: Nanos) {
        self.0.lock().status = StoreStatus::Learning(now);
    }

    /// Records that the store has gone away before it knew all units. Does nothing unless the store is learning.
    pub fn stop_learning(&self, now: Nanos) {
        let mut state = self.0.lock();
        if matches!(state.status, StoreStatus::Learning(_)) {
            state.begin_outage(now);
        }
    }

    /// Records that the store knows all units: it is shared again.
    pub fn finish_learning(&self, now: Nanos) {
        let mut state = self.0.lock();
        state.status = StoreStatus::Shared;
        state.was_ever_shared = true;
        state.consecutive_failures = 0;
        state.recent_calls = RecentCalls::starting_at(now);
    }
}

impl BreakerState {
    /// Marks the store as away, and keeps the earlier outages that longer windows still depend on.
    fn begin_outage(&mut self, now: Nanos) {
        let decided_below = match self.status {
            StoreStatus::Shared => Nanos(u64::MAX),
            StoreStatus::Learning(since) => now.since(since),
            StoreStatus::Away(_) => Nanos::ZERO,
        };
        self.status = StoreStatus::Away(now);
        self.outage_count += 1;
        self.outages
            .retain(|outage| outage.decided_below > decided_below);
        self.outages.push(Outage {
            number: self.outage_count,
            started_at: now,
            decided_below,
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
            // Fewer than `MIN_CALLS_IN_WINDOW` within the second.
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
        assert!(breaker.record_outage(Nanos(5)));
        assert!(!breaker.record_outage(Nanos(6)), "once");
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

    /// A store that goes away while it learns begins a new outage for the shorter windows that it decided about.
    #[test]
    fn gone_again_while_it_learns() {
        let (breaker, second, minute) = (shared(), Nanos::from_secs(1), Nanos::from_secs(60));
        breaker.record_outage(Nanos(5));
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
        assert!(!breaker.record_outage(minute), "away already");
    }
}
