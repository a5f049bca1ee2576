//! What is known of a request before it comes, for a client that asks the same again and again: whom its limits count,
//! where those counts are, and a refusal that stands. A processor takes longer to fetch counts from memory than to
//! decide; and most of those who are refused ask again at once.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::ask::Ask;
use super::asked::{Asked, Whom};
use super::counters::Admission;
use super::verdict::Verdict;
use crate::base::clock::Nanos;
use crate::limit::{Disclose, Standing};
use crate::store::{Item, Memory};

/// See the module. It is of one client under one set of rules.
#[derive(Debug)]
pub struct Ahead {
    store: Arc<Memory>,
    pub(crate) whom: Whom,
    before: RefCell<Before>,
}

/// What became of the request before.
#[derive(Debug, Default)]
enum Before {
    #[default]
    Admitted,
    Refused,
    Stands(Box<Stands>),
}

/// A refusal that only a change of its counts can end before `until`.
#[derive(Debug)]
struct Stands {
    verdict: Verdict,
    at: Nanos,
    until: Nanos,
    versions: Versions,
}

/// Of each bucket.
type Versions = SmallVec<[u64; 4]>;

impl Ahead {
    /// Starts to load the counts. Asks nothing, and waits for nothing.
    #[inline]
    pub fn prefetch(&self) {
        for place in self.whom.places.iter() {
            self.store.prefetch(place);
        }
    }

    /// Says whether the last refusal stands, and what it was as it is at `now`.
    #[inline]
    pub(crate) fn refuses(&self, now: Nanos, verdict: &mut Verdict) -> bool {
        let Before::Stands(refusal) = &*self.before.borrow() else {
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
        verdict.again = true;
        true
    }

    /// Before a decision: what a refusal will stand on. Of the first refusal nothing is kept, for it may be the only one.
    #[inline]
    pub(crate) fn versions(&self) -> Option<Versions> {
        if matches!(*self.before.borrow(), Before::Admitted) {
            return None;
        }
        let each = self.whom.places.iter();
        each.map(|place| self.store.version(place)).collect()
    }

    fn unchanged(&self, was: &Versions) -> bool {
        let mut each = self.whom.places.iter().zip(was);
        each.all(|(place, was)| self.store.version(place) == Some(*was))
    }

    /// Remembers what was decided.
    #[inline]
    pub(crate) fn decided(&self, admitted: bool) {
        let mut before = self.before.borrow_mut();
        match (&*before, admitted) {
            (Before::Admitted, true) | (Before::Refused, false) => {}
            (_, true) => *before = Before::Admitted,
            (_, false) => *before = Before::Refused,
        }
    }

    /// Remembers a refusal that was decided when the buckets had these versions, if it is one that stands.
    #[cold]
    pub(crate) fn keep(&self, ask: &Ask<'_>, asked: &Asked<'_>, verdict: &Verdict, was: Versions) {
        // What was not decided in passing has changed them itself.
        if self.unchanged(&was)
            && let Some(until) = self.stands(ask, asked, verdict)
        {
            *self.before.borrow_mut() = Before::Stands(Box::new(Stands {
                verdict: verdict.clone(),
                at: ask.now,
                until,
                versions: was,
            }));
        }
    }

    /// Until when a refusal stands. What is left of a limit that admits grows with time, and another of its windows may
    /// come to speak, so nobody may be told of either.
    fn stands(&self, ask: &Ask<'_>, asked: &Asked<'_>, verdict: &Verdict) -> Option<Nanos> {
        let (decider, _) = verdict.decider(ask.rules)?;
        let hedged = |item: &Item<'_>| self.store.is_hedged(item.limit, ask.now);
        let plain = |item: &Item<'_>| item.parents.is_empty() && !item.shadow && !hedged(item);
        let told = decider.disclose == Disclose::All && ask.pressure.is_none();
        // Nobody knows how long something reserved counts.
        if !told || asked.reserves || !asked.items.iter().all(plain) {
            return None;
        }
        let mut least = Nanos(u64::MAX);
        for finding in &verdict.findings {
            let windows = ask.rules[finding.rule].limit.rate()?.windows.len();
            match finding.reading.standing {
                // Some of these are guesses.
                _ if finding.reading.sketched => return None,
                Standing::Refused => least = least.min(finding.reading.wait),
                Standing::Within if windows == 1 => {}
                Standing::Within | Standing::Over => return None,
                Standing::Unsatisfiable => {}
            }
        }
        Some(ask.now.after(least))
    }
}

impl Admission {
    /// What whoever asks will meet who asks the same again, at whatever time and under whatever pressure.
    pub fn ahead(&self, ask: &Ask<'_>) -> Ahead {
        let mut whom = Whom::default();
        self.identify(ask, &mut whom);
        Ahead {
            store: self.store.clone(),
            whom,
            before: RefCell::default(),
        }
    }
}
