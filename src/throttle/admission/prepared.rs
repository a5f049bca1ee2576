//! What earlier requests of a client leave ready for the next one with the same fields: the keys that its limits
//! count, where the store keeps those counts, and the last refusal if it still stands.
//!
//! A processor takes longer to fetch counts from memory than to decide, and most clients that are refused try again
//! at once.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::counters::Admission;
use super::demand::{Demand, Subjects};
use super::request::AdmissionRequest;
use super::verdict::Verdict;
use crate::base::clock::Nanos;
use crate::limit::{Disclose, LimitStanding};
use crate::store::{Item, Memory};

/// The decision about the next request of one client, under one set of rules.
#[derive(Debug)]
pub struct PreparedDecision {
    store: Arc<Memory>,
    pub(crate) subjects: Subjects,
    last: RefCell<LastDecision>,
}

/// The decision about the previous request.
#[derive(Debug, Default)]
enum LastDecision {
    #[default]
    Admitted,
    Refused,
    Standing(Box<StandingRefusal>),
}

/// A refusal that only a change of its counts can end before `until`.
#[derive(Debug)]
struct StandingRefusal {
    verdict: Verdict,
    /// When it was decided.
    at: Nanos,
    until: Nanos,
    versions: Versions,
}

/// The version of each bucket of the store that the decision read; see `Memory::version`.
type Versions = SmallVec<[u64; 4]>;

impl PreparedDecision {
    /// Starts to load the counts into the processor's cache. Waits for nothing.
    #[inline]
    pub fn prefetch(&self) {
        for place in self.subjects.places.iter() {
            self.store.prefetch(place);
        }
    }

    /// If the last refusal still stands, writes it to `verdict` as of `now` and returns true.
    #[inline]
    pub(crate) fn repeat_refusal(&self, now: Nanos, verdict: &mut Verdict) -> bool {
        let LastDecision::Standing(refusal) = &*self.last.borrow() else {
            return false;
        };
        if now >= refusal.until || !self.unchanged(&refusal.versions) {
            return false;
        }
        let passed = now.since(refusal.at);
        for finding in &refusal.verdict.findings {
            let mut finding = *finding;
            finding.reading.wait = finding.reading.wait.since(passed);
            finding.reading.reset = finding.reading.reset.since(passed);
            verdict.findings.push(finding);
        }
        verdict.deciding = refusal.verdict.deciding;
        verdict.repeated = true;
        true
    }

    /// Read before a decision, for [`PreparedDecision::record_refusal`]. None after an admitted request: the first refusal
    /// is not kept, for it may be the only one.
    #[inline]
    pub(crate) fn versions(&self) -> Option<Versions> {
        if matches!(*self.last.borrow(), LastDecision::Admitted) {
            return None;
        }
        let each = self.subjects.places.iter();
        each.map(|place| self.store.version(place)).collect()
    }

    fn unchanged(&self, was: &Versions) -> bool {
        let mut each = self.subjects.places.iter().zip(was);
        each.all(|(place, was)| self.store.version(place) == Some(*was))
    }

    /// Records a decision.
    #[inline]
    pub(crate) fn record(&self, admitted: bool) {
        let mut last = self.last.borrow_mut();
        match (&*last, admitted) {
            (LastDecision::Admitted, true) | (LastDecision::Refused, false) => {}
            (_, true) => *last = LastDecision::Admitted,
            (_, false) => *last = LastDecision::Refused,
        }
    }

    /// Keeps a refusal for the requests that follow, if it can stand. `was` are the versions before the decision.
    #[cold]
    pub(crate) fn record_refusal(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        verdict: &Verdict,
        was: Versions,
    ) {
        // If they differ, the decision itself or another request has changed a count.
        if self.unchanged(&was)
            && let Some(until) = self.refusal_ends(request, demand, verdict)
        {
            *self.last.borrow_mut() = LastDecision::Standing(Box::new(StandingRefusal {
                verdict: verdict.clone(),
                at: request.now,
                until,
                versions: was,
            }));
        }
    }

    /// Until when a refusal stands, unless it cannot. It cannot where a limit with several windows admits: its remaining
    /// units grow with time, and another window may become the one that is reported.
    fn refusal_ends(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        verdict: &Verdict,
    ) -> Option<Nanos> {
        let (decider, _) = verdict.decider(request.rules)?;
        let hedged = |item: &Item<'_>| self.store.is_hedged(item.limit, request.now);
        let plain = |item: &Item<'_>| item.parents.is_empty() && !item.shadow && !hedged(item);
        let disclosed = decider.disclose == Disclose::All && request.pressure.is_none();
        // The end of a reservation is not known in advance.
        if !disclosed || demand.reserves || !demand.items.iter().all(plain) {
            return None;
        }
        let mut least = Nanos(u64::MAX);
        for finding in &verdict.findings {
            let windows = request.rules[finding.rule].limit.rate()?.windows.len();
            match finding.reading.standing {
                // Sketched waits may be guesses.
                _ if finding.reading.sketched => return None,
                LimitStanding::Refused => least = least.min(finding.reading.wait),
                LimitStanding::Within if windows == 1 => {}
                LimitStanding::Within | LimitStanding::Over => return None,
                LimitStanding::Unsatisfiable => {}
            }
        }
        Some(request.now.after(least))
    }
}

impl Admission {
    /// Prepares the decisions about further requests of the same client with the same rules. `now` and `pressure` of
    /// `request` do not matter.
    pub fn prepare(&self, request: &AdmissionRequest<'_>) -> PreparedDecision {
        let mut subjects = Subjects::default();
        self.identify(request, &mut subjects);
        PreparedDecision {
            store: self.store.clone(),
            subjects,
            last: RefCell::default(),
        }
    }
}
