//! Decisions that several gateways share: made by units in hand where there are some, else when the store has
//! answered. Permits are taken first and go back where the store refuses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use smallvec::SmallVec;

use super::ask::Ask;
use super::asked::{Asked, Whom};
use super::counters::{Admission, Counter, Sharing};
use super::ticket::Ticket;
use super::verdict::{Finding, Verdict};
use crate::limit::{Fingerprint, Reading, Rule, Scale};
use crate::store::Parent;
use crate::store::permits::Taken;
use crate::store::shared::Shared;
use crate::store::shared::call::Taking;
use crate::store::shared::core::{Begun, Counted, Done, Line, Lines};

/// What became of a request that asked. Made by whoever asks and filled in there: it is too large to be handed about.
#[derive(Debug, Default)]
pub struct Decided {
    /// What all limits said.
    pub verdict: Verdict,
    /// What it holds of them.
    pub ticket: Ticket,
}

/// A decision that waits for a store, for as long as the store's budget says at most.
pub type Later = Pin<Box<dyn Future<Output = (Verdict, Ticket)> + Send>>;

/// What is kept of a request while a store is asked about it.
struct Kept {
    admission: Admission,
    rules: SmallVec<[Arc<Rule>; 4]>,
    lines: SmallVec<[(Held, SmallVec<[Parent; 3]>); 4]>,
    open: Open,
}

/// What permits said of a request.
struct Open {
    findings: SmallVec<[Finding; 2]>,
    taken: Option<Taken>,
    there: bool,
}

/// One rate as its ticket needs it.
#[derive(Clone, Copy)]
struct Held {
    /// Its place among the rules of the request.
    place: usize,
    key: Fingerprint,
    cost: u32,
    scale: Scale,
    shadow: bool,
}

/// A request and what is counted of it.
struct Weighed<'a> {
    admission: &'a Admission,
    rules: &'a [Arc<Rule>],
    lines: SmallVec<[(Held, &'a [Parent]); 4]>,
}

impl Admission {
    pub(crate) fn decide_shared(
        &self,
        shared: &Arc<Shared>,
        worker: usize,
        ask: &Ask<'_>,
        asked: &Asked<'_>,
        decided: &mut Decided,
    ) -> Option<Later> {
        let lines = self.lines(ask, asked);
        let mut open = SmallVec::new();
        let (there, taken) = self.permits.take(&asked.wants, &mut open, |there| there);
        let taking = if there { Taking::All } else { Taking::Shadows };
        let begun = shared.begin(worker, lines, taking, ask.now);
        let weighed = self.weighed(ask, asked);
        let open = Open::new(asked, &open, Some(taken), there);
        match begun {
            Begun::Done(done) => {
                (decided.verdict, decided.ticket) = weighed.conclude(open, done, true);
                None
            }
            Begun::Ask(asking) => {
                let (kept, done) = (weighed.kept(open), shared.decide(worker, *asking));
                Some(Box::pin(async move { kept.conclude(done.await, true) }))
            }
        }
    }

    pub(crate) fn glance(&self, shared: &Shared, ask: &Ask<'_>, asked: &Asked<'_>) -> Verdict {
        let mut open = SmallVec::new();
        let there = self.permits.peek(&asked.wants, &mut open);
        let done = shared.core.glance(&self.lines(ask, asked), ask.now);
        let open = Open::new(asked, &open, None, there);
        self.weighed(ask, asked).conclude(open, done, false).0
    }

    /// What [`Admission::peek`] says, asking the store.
    pub async fn look(&self, ask: &Ask<'_>) -> Verdict {
        let Some((shared, worker)) = &self.shared else {
            return self.peek(ask);
        };
        let parents = ask.identifier.parents(ask.who);
        let (begun, kept) = {
            let mut whom = Whom::default();
            self.identify(ask, &mut whom);
            let mut asked = Asked::nothing(&whom);
            asked.gather(ask, &parents);
            let mut open = SmallVec::new();
            let there = self.permits.peek(&asked.wants, &mut open);
            let lines = self.lines(ask, &asked);
            let open = Open::new(&asked, &open, None, there);
            let kept = self.weighed(ask, &asked).kept(open);
            (shared.begin(*worker, lines, Taking::Nothing, ask.now), kept)
        };
        let done = match begun {
            Begun::Done(done) => done,
            Begun::Ask(asking) => shared.decide(*worker, *asking).await,
        };
        kept.conclude(done, false).0
    }

    fn lines(&self, ask: &Ask<'_>, asked: &Asked<'_>) -> Lines {
        let each = asked.each().filter_map(|(item, place)| {
            let rule = &ask.rules[place];
            let Counter::Rate(_, Some(Sharing { limit, plan })) = &self.counters[rule.index] else {
                return None;
            };
            Some(Line {
                plan: plan.clone(),
                limit: limit.clone(),
                slot: item.slot,
                key: item.key,
                cost: item.cost,
                scale: item.scale,
                shadow: item.shadow,
                parents: item.parents.into(),
            })
        });
        each.collect()
    }

    fn weighed<'a>(&'a self, ask: &'a Ask<'_>, asked: &'a Asked<'_>) -> Weighed<'a> {
        let lines = asked.each().map(|(item, place)| {
            let held = Held {
                place,
                key: item.key,
                cost: item.cost,
                scale: item.scale,
                shadow: item.shadow,
            };
            (held, item.parents)
        });
        Weighed {
            admission: self,
            rules: ask.rules,
            lines: lines.collect(),
        }
    }
}

impl Open {
    fn new(asked: &Asked<'_>, open: &[Reading], taken: Option<Taken>, there: bool) -> Open {
        Open {
            findings: asked.open(open).collect(),
            taken,
            there,
        }
    }
}

impl Kept {
    fn conclude(self, done: Done, takes: bool) -> (Verdict, Ticket) {
        let lines = self.lines.iter();
        let weighed = Weighed {
            admission: &self.admission,
            rules: &self.rules,
            lines: lines.map(|(held, parents)| (*held, &parents[..])).collect(),
        };
        weighed.conclude(self.open, done, takes)
    }
}

impl Weighed<'_> {
    fn kept(&self, open: Open) -> Kept {
        let lines = self.lines.iter();
        Kept {
            admission: self.admission.clone(),
            rules: self.rules.iter().cloned().collect(),
            lines: lines
                .map(|(held, parents)| (*held, (*parents).into()))
                .collect(),
            open,
        }
    }

    fn conclude(&self, open: Open, done: Done, takes: bool) -> (Verdict, Ticket) {
        let mut verdict = Verdict {
            admitted: done.admitted && open.there,
            alone: done.alone,
            ..Verdict::default()
        };
        let mut ticket = Ticket::default();
        let said = done.readings.iter().zip(&done.counted);
        for ((held, parents), (reading, counted)) in self.lines.iter().zip(said) {
            verdict.findings.push(Finding {
                rule: held.place,
                key: held.key,
                reading: *reading,
            });
            let rule = &self.rules[held.place];
            let reserves = rule.limit.rate().is_some_and(|limit| limit.reserves);
            let took = reading.standing.admits() && (verdict.admitted || held.shadow);
            if reserves && took && takes {
                self.hold(
                    &mut ticket,
                    rule,
                    (held, parents),
                    reading.sketched,
                    *counted,
                );
            }
        }
        verdict.findings.extend(open.findings);
        verdict.findings.sort_by_key(|finding| finding.rule);
        verdict.weigh(self.rules);
        if let Some(taken) = open.taken.filter(|_| verdict.admitted) {
            ticket.keep(taken);
        }
        (verdict, ticket)
    }

    fn hold(
        &self,
        ticket: &mut Ticket,
        rule: &Arc<Rule>,
        (held, parents): (&Held, &[Parent]),
        sketched: bool,
        counted: Counted,
    ) {
        let (Some(limit), Counter::Rate(registered, _)) =
            (rule.limit.rate(), &self.admission.counters[rule.index])
        else {
            return;
        };
        let item = crate::store::Item {
            limit,
            slot: registered.slot(),
            key: held.key,
            cost: held.cost,
            scale: held.scale,
            shadow: held.shadow,
            parents,
        };
        ticket.hold(self.admission, rule.clone(), &item, sketched, counted);
    }
}
