//! Decisions about limits that several gateways share. A decision is made from leased units where there are some, else
//! it waits for the store. Permits are taken first, and returned if the store refuses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use smallvec::SmallVec;

use super::counters::{Admission, RuleCounter, SharedCounter};
use super::demand::{Demand, Subjects};
use super::request::AdmissionRequest;
use super::ticket::Ticket;
use super::verdict::{Finding, Verdict};
use crate::limit::{Fingerprint, LimitReading, Rule, Scale};
use crate::store::permits::PermitGuard;
use crate::store::shared::Shared;
use crate::store::shared::item::{SharedItem, SharedItems};
use crate::store::shared::pending::{CountedIn, FirstStep, SharedDecision};
use crate::store::{Item, Parent, Taking};

/// The decision about a request. The caller makes it and admission fills it in, for a returned value would be copied.
#[derive(Debug, Default)]
pub struct AdmissionOutcome {
    /// What all limits say.
    pub verdict: Verdict,
    /// What the request holds of its limits.
    pub ticket: Ticket,
}

/// A decision that waits for a shared store, at most for as long as the store's budget.
pub type PendingDecision = Pin<Box<dyn Future<Output = (Verdict, Ticket)> + Send>>;

/// [`DecisionContext`] without borrows, for a request that waits for the store.
struct OwnedContext {
    admission: Admission,
    rules: SmallVec<[Arc<Rule>; 4]>,
    lines: SmallVec<[(RateItem, SmallVec<[Parent; 3]>); 4]>,
    open: PermitOutcome,
}

/// What the limits on open requests say, and the permits that were taken.
struct PermitOutcome {
    findings: SmallVec<[Finding; 2]>,
    taken: Option<PermitGuard>,
    admitted: bool,
}

/// What a request takes of a limit on a rate, as its ticket needs it.
#[derive(Clone, Copy)]
struct RateItem {
    /// Index among the request's rules.
    rule: usize,
    key: Fingerprint,
    cost: u32,
    scale: Scale,
    shadow: bool,
}

/// What is needed to conclude a decision once the store has replied.
struct DecisionContext<'a> {
    admission: &'a Admission,
    rules: &'a [Arc<Rule>],
    lines: SmallVec<[(RateItem, &'a [Parent]); 4]>,
}

impl Admission {
    pub(crate) fn decide_shared(
        &self,
        shared: &Arc<Shared>,
        worker: usize,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        outcome: &mut AdmissionOutcome,
    ) -> Option<PendingDecision> {
        let lines = self.lines(request, demand);
        let mut open = SmallVec::new();
        let take = |admitted: bool| admitted;
        let (admitted, taken) = self.permits.take(&demand.wants, &mut open, take);
        let taking = if admitted {
            Taking::All
        } else {
            Taking::Shadows
        };
        let begun = shared.begin(worker, lines, taking, request.now);
        let context = self.context(request, demand);
        let open = PermitOutcome::new(demand, &open, Some(taken), admitted);
        match begun {
            FirstStep::Decided(done) => {
                (outcome.verdict, outcome.ticket) = context.conclude(open, done, true);
                None
            }
            FirstStep::AskStore(asking) => {
                let (context, done) = (context.to_owned(open), shared.decide(worker, *asking));
                Some(Box::pin(async move { context.conclude(done.await, true) }))
            }
        }
    }

    /// What this gateway knows of shared limits, without asking the store.
    pub(crate) fn peek_known(
        &self,
        shared: &Shared,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
    ) -> Verdict {
        let mut open = SmallVec::new();
        let admitted = self.permits.peek(&demand.wants, &mut open);
        let done = shared
            .decider
            .peek(&self.lines(request, demand), request.now);
        let open = PermitOutcome::new(demand, &open, None, admitted);
        self.context(request, demand).conclude(open, done, false).0
    }

    /// What [`Admission::decide`] would say, taking nothing. Asks the shared store, if there is one.
    pub async fn peek_shared(&self, request: &AdmissionRequest<'_>) -> Verdict {
        let Some((shared, worker)) = &self.shared else {
            return self.peek(request);
        };
        let parents = request.identifier.parents(request.who);
        let (begun, context) = {
            let mut subjects = Subjects::default();
            self.identify(request, &mut subjects);
            let mut demand = Demand::empty(&subjects);
            demand.fill(request, &parents);
            let mut open = SmallVec::new();
            let admitted = self.permits.peek(&demand.wants, &mut open);
            let lines = self.lines(request, &demand);
            let open = PermitOutcome::new(&demand, &open, None, admitted);
            let context = self.context(request, &demand).to_owned(open);
            (
                shared.begin(*worker, lines, Taking::Nothing, request.now),
                context,
            )
        };
        let done = match begun {
            FirstStep::Decided(done) => done,
            FirstStep::AskStore(asking) => shared.decide(*worker, *asking).await,
        };
        context.conclude(done, false).0
    }

    fn lines(&self, request: &AdmissionRequest<'_>, demand: &Demand<'_>) -> SharedItems {
        let each = demand.each().filter_map(|(item, index)| {
            let rule = &request.rules[index];
            let RuleCounter::Rate(_, Some(SharedCounter { limit, plan })) =
                &self.counters[rule.index]
            else {
                return None;
            };
            Some(SharedItem {
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

    fn context<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        demand: &'a Demand<'_>,
    ) -> DecisionContext<'a> {
        let lines = demand.each().map(|(item, rule)| {
            let rate = RateItem {
                rule,
                key: item.key,
                cost: item.cost,
                scale: item.scale,
                shadow: item.shadow,
            };
            (rate, item.parents)
        });
        DecisionContext {
            admission: self,
            rules: request.rules,
            lines: lines.collect(),
        }
    }
}

impl PermitOutcome {
    fn new(
        demand: &Demand<'_>,
        open: &[LimitReading],
        taken: Option<PermitGuard>,
        admitted: bool,
    ) -> PermitOutcome {
        PermitOutcome {
            findings: demand.open_findings(open).collect(),
            taken,
            admitted,
        }
    }
}

impl OwnedContext {
    fn conclude(self, done: SharedDecision, takes: bool) -> (Verdict, Ticket) {
        let lines = self.lines.iter();
        let context = DecisionContext {
            admission: &self.admission,
            rules: &self.rules,
            lines: lines.map(|(item, parents)| (*item, &parents[..])).collect(),
        };
        context.conclude(self.open, done, takes)
    }
}

impl DecisionContext<'_> {
    fn to_owned(&self, open: PermitOutcome) -> OwnedContext {
        let lines = self.lines.iter();
        OwnedContext {
            admission: self.admission.clone(),
            rules: self.rules.iter().cloned().collect(),
            lines: lines
                .map(|(item, parents)| (*item, (*parents).into()))
                .collect(),
            open,
        }
    }

    fn conclude(
        &self,
        open: PermitOutcome,
        done: SharedDecision,
        takes: bool,
    ) -> (Verdict, Ticket) {
        let mut verdict = Verdict {
            admitted: done.admitted && open.admitted,
            without_store: done.alone,
            ..Verdict::default()
        };
        let mut ticket = Ticket::default();
        let replies = done.readings.iter().zip(&done.counted);
        for ((item, parents), (reading, counted)) in self.lines.iter().zip(replies) {
            verdict.findings.push(Finding {
                rule: item.rule,
                key: item.key,
                reading: *reading,
            });
            let rule = &self.rules[item.rule];
            let reserves = rule.limit.rate().is_some_and(|limit| limit.reserves);
            let took = reading.standing.admits() && (verdict.admitted || item.shadow);
            if reserves && took && takes {
                self.reserve(
                    &mut ticket,
                    rule,
                    (item, parents),
                    reading.sketched,
                    *counted,
                );
            }
        }
        verdict.findings.extend(open.findings);
        verdict.findings.sort_by_key(|finding| finding.rule);
        verdict.choose_decider(self.rules);
        if let Some(taken) = open.taken.filter(|_| verdict.admitted) {
            ticket.hold_permits(taken);
        }
        (verdict, ticket)
    }

    /// Adds a reservation to the ticket.
    fn reserve(
        &self,
        ticket: &mut Ticket,
        rule: &Arc<Rule>,
        (rate, parents): (&RateItem, &[Parent]),
        sketched: bool,
        counted: CountedIn,
    ) {
        let (Some(limit), RuleCounter::Rate(registered, _)) =
            (rule.limit.rate(), &self.admission.counters[rule.index])
        else {
            return;
        };
        let item = Item {
            limit,
            slot: registered.slot(),
            key: rate.key,
            cost: rate.cost,
            scale: rate.scale,
            shadow: rate.shadow,
            parents,
        };
        ticket.reserve(self.admission, rule.clone(), &item, sketched, counted);
    }
}
