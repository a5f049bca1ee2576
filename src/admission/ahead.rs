//! What is known of a request before it comes, for a client that asks the same again and again: whom its limits count,
//! where those counts are, and a refusal that stands. A processor takes longer to fetch counts from memory than to
//! decide; and most of those who are refused ask again at once.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Admission, Ask, Asked, Verdict};
use crate::clock::Nanos;
use crate::limit::{Disclose, Fingerprint, Rule, Standing};
use crate::store::{Bucket, Item, Memory};

/// See the module. It is of one client under one set of rules.
#[derive(Debug)]
pub struct Ahead {
    store: Arc<Memory>,
    /// By the rules.
    pub(super) keys: SmallVec<[Option<Fingerprint>; 4]>,
    buckets: SmallVec<[Bucket; 4]>,
    last: RefCell<Last>,
}

/// What became of the last request.
#[derive(Debug, Default)]
enum Last {
    #[default]
    Admitted,
    Refused,
    Stands(Box<Refusal>),
}

/// A refusal that only a change of its counts can end before `until`.
#[derive(Debug)]
struct Refusal {
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
        for bucket in &self.buckets {
            self.store.prefetch(*bucket);
        }
    }

    /// Says whether the last refusal stands, and what it was as it is at `now`.
    #[inline]
    pub(super) fn refuses(&self, now: Nanos, verdict: &mut Verdict) -> bool {
        let Last::Stands(refusal) = &*self.last.borrow() else {
            return false;
        };
        let mut each = self.buckets.iter().zip(&refusal.versions);
        let unchanged = each.all(|(bucket, known)| self.store.version(*bucket) == Some(*known));
        if !unchanged || now >= refusal.until {
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
    pub(super) fn versions(&self) -> Option<Versions> {
        if matches!(*self.last.borrow(), Last::Admitted) {
            return None;
        }
        let each = self.buckets.iter();
        each.map(|bucket| self.store.version(*bucket)).collect()
    }

    /// Remembers what was decided.
    #[inline]
    pub(super) fn decided(&self, admitted: bool) {
        let mut last = self.last.borrow_mut();
        match (&*last, admitted) {
            (Last::Admitted, true) | (Last::Refused, false) => {}
            _ => {
                *last = if admitted {
                    Last::Admitted
                } else {
                    Last::Refused
                }
            }
        }
    }

    /// Remembers a refusal that was decided when the buckets had these versions, if it is one that stands.
    #[cold]
    pub(super) fn keep(&self, ask: &Ask<'_>, asked: &Asked<'_>, verdict: &Verdict, was: Versions) {
        if let Some(until) = self.stands(ask, asked, verdict) {
            *self.last.borrow_mut() = Last::Stands(Box::new(Refusal {
                verdict: verdict.clone(),
                at: ask.now,
                until,
                versions: was,
            }));
        }
    }

    /// Until when a refusal stands. What is left of a limit that admits grows with time, so nobody may be told of that.
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
            match finding.reading.standing {
                Standing::Refused => least = least.min(finding.reading.wait),
                Standing::Over => return None,
                Standing::Within | Standing::Unsatisfiable => {}
            }
        }
        Some(ask.now.after(least))
    }
}

impl Admission {
    /// What a client will meet that these rules count under these keys.
    pub fn ahead(&self, rules: &[Arc<Rule>], keys: SmallVec<[Option<Fingerprint>; 4]>) -> Ahead {
        let each = rules.iter().zip(&keys);
        let buckets = each.filter_map(|(rule, key)| self.store.bucket(self.slot(rule)?, (*key)?));
        Ahead {
            store: self.store.clone(),
            buckets: buckets.collect(),
            keys,
            last: RefCell::default(),
        }
    }
}
