//! [`PreparedDecision`]: what is prepared for the next request of a client with the same header fields. It holds the
//! keys that the client's limits count, where the store keeps their counts, and the last refusal if that still stands.
//!
//! A processor takes longer to fetch counts from memory than to decide, and most clients that are refused try again at
//! once. A refusal is repeated only while no count that it depends on has changed, and no limit that refuses may admit. A
//! wall clock that is set ends it too.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::counters::Admission;
use super::demand::{Demand, RequestKeys};
use super::request::AdmissionRequest;
use super::verdict::Verdict;
use crate::base::clock::{Nanos, WallOffset};
use crate::limit::{Disclose, LimitStanding};
use crate::store::{LimitItem, MemoryStore};

/// What is prepared for the next request of one client, under one set of rules.
#[derive(Debug)]
pub struct PreparedDecision {
    store: Arc<MemoryStore>,
    pub(crate) keys: RequestKeys,
    last_decision: RefCell<LastDecision>,
}

/// The decision about the previous request.
#[derive(Debug, Default)]
enum LastDecision {
    /// The request was admitted, or there was none.
    #[default]
    Admitted,
    /// A refusal that may not be repeated.
    Refused,
    /// A refusal that may be repeated.
    Standing(Box<StandingRefusal>),
}

/// A refusal that only a change of its counts or of the wall clock can end before `stands_until`.
#[derive(Debug)]
struct StandingRefusal {
    verdict: Verdict,
    /// The time at which the limits decided.
    decided_at: Nanos,
    /// The time at which the first limit that refuses may admit.
    stands_until: Nanos,
    /// The versions of the counts before the decision.
    versions: CountVersions,
}

/// What a decision reads from the store: as long as it is the same, no count has changed.
#[derive(Debug)]
pub(crate) struct CountVersions {
    /// The version of each bucket; see `MemoryStore::bucket_version`.
    buckets: SmallVec<[u64; 4]>,
    /// A wall clock that is set moves windows of the clock and of the calendar.
    wall: WallOffset,
}

impl PreparedDecision {
    /// Starts to load the counts into the processor's cache, without waiting for them.
    #[inline]
    pub fn prefetch(&self) {
        for place in self.keys.cell_places.iter() {
            self.store.prefetch(place);
        }
    }

    /// If the last refusal still stands, writes it to `verdict` as of `now` and returns true. `verdict` must be empty.
    #[inline]
    pub(crate) fn repeat_refusal(&self, now: Nanos, verdict: &mut Verdict) -> bool {
        let LastDecision::Standing(refusal) = &*self.last_decision.borrow() else {
            return false;
        };
        if now >= refusal.stands_until || !self.are_unchanged(&refusal.versions) {
            return false;
        }
        let elapsed = now.since(refusal.decided_at);
        for rule_finding in &refusal.verdict.findings {
            let mut rule_finding = *rule_finding;
            rule_finding.finding.wait = rule_finding.finding.wait.since(elapsed);
            rule_finding.finding.reset = rule_finding.finding.reset.since(elapsed);
            verdict.findings.push(rule_finding);
        }
        verdict.deciding = refusal.verdict.deciding;
        verdict.is_repeated = true;
        true
    }

    /// Reads the versions before a decision, for [`PreparedDecision::record_refusal`]. `None` while a bucket is locked.
    /// Also `None` if the last request was admitted, because the first refusal may be the only one.
    #[inline]
    pub(crate) fn current_versions(&self) -> Option<CountVersions> {
        if matches!(*self.last_decision.borrow(), LastDecision::Admitted) {
            return None;
        }
        let wall = self.store.wall();
        let places = self.keys.cell_places.iter();
        let buckets: Option<_> = places
            .map(|place| self.store.bucket_version(place))
            .collect();
        buckets.map(|buckets| CountVersions { buckets, wall })
    }

    fn are_unchanged(&self, former_versions: &CountVersions) -> bool {
        let mut versions = self.keys.cell_places.iter().zip(&former_versions.buckets);
        self.store.wall() == former_versions.wall
            && versions.all(|(place, former)| self.store.bucket_version(place) == Some(*former))
    }

    /// Records whether the last request was admitted. A standing refusal ends here; [`PreparedDecision::record_refusal`]
    /// may keep the next one.
    #[inline]
    pub(crate) fn record_outcome(&self, is_admitted: bool) {
        let mut last_decision = self.last_decision.borrow_mut();
        match (&*last_decision, is_admitted) {
            (LastDecision::Admitted, true) | (LastDecision::Refused, false) => {}
            (_, true) => *last_decision = LastDecision::Admitted,
            (_, false) => *last_decision = LastDecision::Refused,
        }
    }

    /// Keeps a refusal for the requests that follow, if it can stand. `former_versions` are those before the decision.
    #[cold]
    pub(crate) fn record_refusal(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        verdict: &Verdict,
        former_versions: CountVersions,
    ) {
        // If the versions differ, the decision itself or another request has changed a count.
        if self.are_unchanged(&former_versions)
            && let Some(stands_until) = self.refusal_end(request, demand, verdict)
        {
            *self.last_decision.borrow_mut() = LastDecision::Standing(Box::new(StandingRefusal {
                verdict: verdict.clone(),
                decided_at: request.now,
                stands_until,
                versions: former_versions,
            }));
        }
    }

    /// The time until which a refusal stands; `None` if it must be decided anew each time. That is so if anything but
    /// the counts of plain limits on rates may change the next decision. Where a limit with several windows admits, its
    /// remaining units grow with time, and another window may be reported then.
    fn refusal_end(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        verdict: &Verdict,
    ) -> Option<Nanos> {
        let (decider, _) = verdict.decider(request.rules)?;
        let is_sketch_active =
            |item: &LimitItem<'_>| self.store.is_sketch_active(item.limit, request.now);
        // The versions do not show counts of networks, and shadow limits take units of refused requests.
        let is_plain = |item: &LimitItem<'_>| {
            item.parents.is_empty() && !item.is_shadow && !is_sketch_active(item)
        };
        // If the decider is not disclosed, responses may show a limit that admits, whose remaining units grow with time.
        // Under pressure, what elastic limits lend changes.
        let is_plainly_disclosed = decider.disclose == Disclose::All && request.pressure.is_none();
        // The next request may state another cost.
        let has_equal_costs = request.rules.iter().all(|rule| rule.reserve.is_none());
        // The end of a reservation is not known in advance.
        if !is_plainly_disclosed
            || !has_equal_costs
            || demand.has_reservations
            || !demand.items.iter().all(is_plain)
        {
            return None;
        }
        let mut shortest_wait = Nanos(u64::MAX);
        for rule_finding in &verdict.findings {
            let rule = rule_finding.rule.resolve(request.rules);
            let window_count = rule.limit.rate()?.windows.len();
            match rule_finding.finding.standing {
                // Sketched waits may be guesses.
                _ if rule_finding.finding.sketched => return None,
                LimitStanding::Refused => {
                    shortest_wait = shortest_wait.min(rule_finding.finding.wait);
                }
                LimitStanding::Within if window_count == 1 => {}
                LimitStanding::Within | LimitStanding::Over => return None,
                LimitStanding::Unsatisfiable => {}
            }
        }
        Some(request.now.after(shortest_wait))
    }
}

impl Admission {
    /// Prepares the decisions about further requests of the same client with the same rules. `now`, `pressure` and
    /// `reserved_units` of `request` do not matter.
    pub fn prepare(&self, request: &AdmissionRequest<'_>) -> PreparedDecision {
        let mut keys = RequestKeys::default();
        self.find_keys(request, &mut keys);
        PreparedDecision {
            store: self.store.clone(),
            keys,
            last_decision: RefCell::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::super::outcome::AdmissionOutcome;
    use super::*;
    use crate::base::clock::Clock;
    use crate::identity::{self, ClientIdentity, Identifier, Keyer};
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::{
        Algorithm, Identity, LimitName, Rate, RateLimit, Rule, Rules, ThrottleMode,
    };
    use crate::store::Settings;

    const DAY: Nanos = Nanos::from_secs(86_400);

    #[test]
    fn a_wall_clock_that_is_set_ends_a_refusal_by_a_quota() {
        let calendar = Calendar::new(Period::Day, "UTC").unwrap();
        let limit = RateLimit {
            windows: vec![Rate::of_calendar(1, calendar).unwrap()],
            algorithm: Algorithm::FixedWindow,
            throttle: ThrottleMode::Hard,
            reserves: false,
            max_plan_factor: 1,
        };
        let name = LimitName::new("daily").unwrap();
        let rules: Rules = [Arc::new(Rule::new(name, 0, &[Identity::Ip], limit))]
            .into_iter()
            .collect();
        let store = MemoryStore::new(Settings {
            budget_bytes: 1 << 20,
        });
        let store = Arc::new(store.unwrap());
        let admission = Admission::new(&rules, store.clone(), Clock::manual(Nanos::ZERO)).unwrap();
        let identifier = Identifier::new(identity::Settings::default(), Keyer::new([7; 16]));
        let client = ClientIdentity::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let request = AdmissionRequest {
            rules: &rules,
            client: &client,
            identifier: &identifier,
            now: Nanos(DAY.0 * 5 / 2),
            pressure: None,
            reserved_units: &[],
        };
        let prepared = admission.prepare(&request);
        let decide = || {
            let mut outcome = AdmissionOutcome::default();
            let wait = admission.decide(&request, Some(&prepared), &mut outcome);
            assert!(wait.is_none());
            (outcome.verdict.is_admitted, outcome.verdict.is_repeated)
        };
        assert_eq!(decide(), (true, false));
        for is_repeated in [false, false, true, true] {
            assert_eq!(decide(), (false, is_repeated));
        }
        // The next day begins by the wall clock, though no time has passed.
        store.set_wall(WallOffset(DAY.0.cast_signed()));
        assert_eq!(decide(), (true, false));
        assert_eq!(decide(), (false, false));
    }
}
