//! Decisions where several gateways share a store. The gateway decides at once where it can: by leased units, by an earlier
//! refusal, or by its own share of a limit. Other decisions wait for the store. Permits are taken first, and returned if
//! the request is refused.

use std::sync::Arc;

use smallvec::SmallVec;

use super::counters::{Admission, RuleCounter, SharedConnection, SharedCounter};
use super::demand::{Demand, RequestKeys};
use super::outcome::{AdmissionOutcome, PendingDecision};
use super::request::AdmissionRequest;
use super::ticket::Ticket;
use super::verdict::{RuleFinding, Verdict};
use crate::limit::{Fingerprint, LimitFinding, Rule, RuleRef, Scale};
use crate::store::permits::{PermitDecision, PermitGuard, TakeStep, WaitingPermits};
use crate::store::shared::SharedStore;
use crate::store::shared::pending_call::{CountedIn, FirstStep, SharedDecision};
use crate::store::shared::shared_item::{SharedItem, SharedItems};
use crate::store::{LimitItem, ParentNetwork, Taking};

/// Whether a decision takes units or only looks at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecisionKind {
    /// It takes them, so that the ticket gets reservations.
    Take,
    /// It only looks at them, as `explain` does.
    Peek,
}

/// [`DecisionContext`] without borrows, and the permits, for a request that waits for the store.
struct OwnedContext {
    admission: Admission,
    rules: SmallVec<[Arc<Rule>; 4]>,
    items: SmallVec<[(RateItem, SmallVec<[ParentNetwork; 3]>); 4]>,
    permit_outcome: PermitOutcome,
}

/// What the limits on open requests say, and the permits that the request holds if it is admitted.
struct PermitOutcome {
    findings: SmallVec<[RuleFinding; 2]>,
    /// `None` if the decision only looks.
    permits: Option<PermitGuard>,
    /// Whether all limits on open requests admit, shadow limits left out.
    is_admitted: bool,
    /// Whether the gateway decided about some permit without the store.
    is_alone: bool,
}

/// What a request takes of a limit on a rate, as its ticket needs it.
#[derive(Clone, Copy)]
struct RateItem {
    rule: RuleRef,
    key: Fingerprint,
    cost: u32,
    scale: Scale,
    is_shadow: bool,
}

/// The data of a request by which a decision becomes a verdict and a ticket.
struct DecisionContext<'a> {
    admission: &'a Admission,
    rules: &'a [Arc<Rule>],
    items: SmallVec<[(RateItem, &'a [ParentNetwork]); 4]>,
}

impl Admission {
    /// Decides about a request, some of whose limits may be shared. Writes the decision to `outcome` and returns `None`. If
    /// the store must decide, returns a future that waits for it.
    pub(crate) fn decide_shared(
        &self,
        shared: &SharedConnection,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        outcome: &mut AdmissionOutcome,
    ) -> Option<PendingDecision> {
        let SharedConnection {
            store,
            connection_index,
        } = shared;
        let items = self.shared_items(request, demand);
        let context = self.decision_context(request, demand);
        if demand.shares_permits()
            && let Some(decision) = store.refuse_early(&items, request.now)
        {
            let mut open_findings = SmallVec::new();
            let permits = &demand.permit_requests;
            let is_admitted = self.permits.peek(permits, &mut open_findings);
            let open_findings = demand.open_findings(&open_findings).collect();
            let permit_outcome = PermitOutcome::new(open_findings, None, is_admitted);
            (outcome.verdict, outcome.ticket) =
                context.conclude(permit_outcome, decision, DecisionKind::Peek);
            return None;
        }
        // The limits on rates are decided after the permits are taken, not under their locks.
        let mut open_findings = SmallVec::new();
        let decision = match self.take_permits(shared, request, demand, &mut open_findings) {
            TakeStep::Decided(decision) => decision,
            TakeStep::AskStore(waiting) => {
                let keyed_findings = demand.open_findings(&open_findings).collect();
                let permit_outcome = PermitOutcome::new(keyed_findings, None, true);
                let context = context.to_owned_context(permit_outcome);
                return Some(context.decide_later(shared.clone(), *waiting, items));
            }
        };
        let is_admitted = decision.is_admitted;
        let mut permit_outcome = PermitOutcome::new(
            demand.open_findings(&open_findings).collect(),
            Some(decision.guard),
            is_admitted,
        );
        permit_outcome.is_alone = decision.is_alone;
        let taking = taking_by_permits(is_admitted);
        let first_step = store.begin_decision(*connection_index, items, taking, request.now);
        match first_step {
            FirstStep::Decided(decision) => {
                (outcome.verdict, outcome.ticket) =
                    context.conclude(permit_outcome, decision, DecisionKind::Take);
                None
            }
            FirstStep::AskStore(call) => {
                let (context, decision) = (
                    context.to_owned_context(permit_outcome),
                    store.decide(*connection_index, *call, store.budget()),
                );
                Some(Box::pin(async move {
                    context.conclude(decision.await, DecisionKind::Take)
                }))
            }
        }
    }

    /// Takes the permits that the request needs, as far as that needs no reply of the store.
    fn take_permits(
        &self,
        shared: &SharedConnection,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        findings: &mut SmallVec<[LimitFinding; 2]>,
    ) -> TakeStep {
        let requests = &demand.permit_requests;
        if demand.shares_permits() {
            let view = (shared.store).permit_view(shared.connection_index, request.now);
            return self
                .permits
                .begin_take(requests, findings, &view, request.now);
        }
        let (is_admitted, guard) = self.permits.take(requests, findings, |has_room| has_room);
        TakeStep::Decided(PermitDecision {
            is_admitted,
            is_alone: false,
            guard,
        })
    }

    /// The verdict by this gateway's own counts and leases of shared limits. Takes nothing, and does not call the
    /// store.
    pub(crate) fn peek_own_counts(
        &self,
        shared: &SharedStore,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
    ) -> Verdict {
        let mut open_findings = SmallVec::new();
        let is_admitted = self
            .permits
            .peek(&demand.permit_requests, &mut open_findings);
        let decision = shared
            .decider
            .peek(&self.shared_items(request, demand), request.now);
        let open_findings = demand.open_findings(&open_findings).collect();
        let permit_outcome = PermitOutcome::new(open_findings, None, is_admitted);
        self.decision_context(request, demand)
            .conclude(permit_outcome, decision, DecisionKind::Peek)
            .0
    }

    /// Returns the verdict that [`Admission::decide`] would give, but takes nothing. Calls the shared store if that must
    /// decide.
    pub async fn peek_shared(&self, request: &AdmissionRequest<'_>) -> Verdict {
        let Some(SharedConnection {
            store,
            connection_index,
        }) = &self.shared
        else {
            return self.peek(request);
        };
        let parents = request.identifier.parent_networks(request.client);
        // A block, so that no borrow outlives it: the future may wait behind it.
        let (first_step, mut context, shared_keys) = {
            let mut keys = RequestKeys::default();
            self.find_keys(request, &mut keys);
            let mut demand = Demand::empty(&keys);
            demand.fill(request, &parents);
            let mut open_findings = SmallVec::new();
            let is_admitted = self
                .permits
                .peek(&demand.permit_requests, &mut open_findings);
            let items = self.shared_items(request, &demand);
            let open_findings = demand.open_findings(&open_findings).collect();
            let permit_outcome = PermitOutcome::new(open_findings, None, is_admitted);
            let context = self
                .decision_context(request, &demand)
                .to_owned_context(permit_outcome);
            (
                store.begin_decision(*connection_index, items, Taking::Nothing, request.now),
                context,
                demand.shared_permit_keys(),
            )
        };
        for shared_key in shared_keys {
            let key = shared_key.key;
            let others = store.read_other_permits(*connection_index, key).await;
            let open_count = self.permits.open_count(&key);
            let outcome = &mut context.permit_outcome;
            if let Some((others, keyed)) = others.zip(outcome.findings.get_mut(shared_key.index)) {
                keyed.finding = shared_key.assess(open_count.saturating_add(others));
                outcome.is_admitted &= shared_key.is_shadow || keyed.finding.standing.admits();
            }
        }
        let decision = match first_step {
            FirstStep::Decided(decision) => decision,
            FirstStep::AskStore(call) => {
                let deciding = store.decide(*connection_index, *call, store.budget());
                deciding.await
            }
        };
        context.conclude(decision, DecisionKind::Peek).0
    }

    /// What the request takes of its limits on rates, as the shared store needs it. Limits that are not shared are
    /// among them.
    fn shared_items(&self, request: &AdmissionRequest<'_>, demand: &Demand<'_>) -> SharedItems {
        let items = demand.items_with_rules().filter_map(|(item, rule)| {
            let rule = rule.resolve(request.rules);
            let Some(RuleCounter::Rate(_, Some(SharedCounter { limit, plan }))) =
                self.counter(rule)
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
                is_shadow: item.is_shadow,
                parents: item.parents.into(),
            })
        });
        items.collect()
    }

    fn decision_context<'a>(
        &'a self,
        request: &'a AdmissionRequest<'_>,
        demand: &'a Demand<'_>,
    ) -> DecisionContext<'a> {
        let items = demand.items_with_rules().map(|(item, rule)| {
            let rate_item = RateItem {
                rule,
                key: item.key,
                cost: item.cost,
                scale: item.scale,
                is_shadow: item.is_shadow,
            };
            (rate_item, item.parents)
        });
        DecisionContext {
            admission: self,
            rules: request.rules,
            items: items.collect(),
        }
    }
}

/// What limits on rates take of a request, by what limits on open requests say.
fn taking_by_permits(is_admitted: bool) -> Taking {
    match is_admitted {
        true => Taking::All,
        false => Taking::Shadows,
    }
}

impl PermitOutcome {
    fn new(
        findings: SmallVec<[RuleFinding; 2]>,
        permits: Option<PermitGuard>,
        is_admitted: bool,
    ) -> PermitOutcome {
        PermitOutcome {
            findings,
            permits,
            is_admitted,
            is_alone: false,
        }
    }
}

impl OwnedContext {
    /// Waits for the permits that the store must grant, then decides about the rates. Both together wait for the store's
    /// budget at most.
    fn decide_later(
        mut self,
        shared: SharedConnection,
        waiting: WaitingPermits,
        items: SharedItems,
    ) -> PendingDecision {
        Box::pin(async move {
            let SharedConnection {
                store,
                connection_index,
            } = shared;
            let outcome = &mut self.permit_outcome;
            let mut findings: SmallVec<[LimitFinding; 2]> =
                outcome.findings.iter().map(|keyed| keyed.finding).collect();
            let (decision, budget) = store
                .wait_for_permits(waiting, &mut findings, connection_index)
                .await;
            for (keyed, finding) in outcome.findings.iter_mut().zip(findings) {
                keyed.finding = finding;
            }
            (outcome.is_admitted, outcome.is_alone) = (decision.is_admitted, decision.is_alone);
            outcome.permits = Some(decision.guard);
            let taking = taking_by_permits(decision.is_admitted);
            let now = self.admission.clock.now();
            let decision = match store.begin_decision(connection_index, items, taking, now) {
                FirstStep::Decided(decision) => decision,
                FirstStep::AskStore(call) => store.decide(connection_index, *call, budget).await,
            };
            self.conclude(decision, DecisionKind::Take)
        })
    }

    fn conclude(self, decision: SharedDecision, kind: DecisionKind) -> (Verdict, Ticket) {
        let items = self.items.iter();
        let context = DecisionContext {
            admission: &self.admission,
            rules: &self.rules,
            items: items.map(|(item, parents)| (*item, &parents[..])).collect(),
        };
        context.conclude(self.permit_outcome, decision, kind)
    }
}

impl DecisionContext<'_> {
    fn to_owned_context(&self, permit_outcome: PermitOutcome) -> OwnedContext {
        let items = self.items.iter();
        OwnedContext {
            admission: self.admission.clone(),
            rules: self.rules.iter().cloned().collect(),
            items: items
                .map(|(item, parents)| (*item, (*parents).into()))
                .collect(),
            permit_outcome,
        }
    }

    /// The verdict and the ticket by a decision about the rates and by the permits. Permits of a refused request go back.
    fn conclude(
        &self,
        permit_outcome: PermitOutcome,
        decision: SharedDecision,
        kind: DecisionKind,
    ) -> (Verdict, Ticket) {
        let mut verdict = Verdict {
            is_admitted: decision.is_admitted && permit_outcome.is_admitted,
            is_without_store: decision.is_alone || permit_outcome.is_alone,
            ..Verdict::default()
        };
        let mut ticket = Ticket::default();
        let findings = decision.findings.iter().zip(&decision.counted_in);
        for ((item, parents), (finding, counted_in)) in self.items.iter().zip(findings) {
            verdict.findings.push(RuleFinding {
                rule: item.rule,
                key: item.key,
                finding: *finding,
            });
            let rule = item.rule.resolve(self.rules);
            let reserves = rule.limit.rate().is_some_and(|limit| limit.reserves);
            let has_taken = finding.standing.admits() && (verdict.is_admitted || item.is_shadow);
            if reserves && has_taken && kind == DecisionKind::Take {
                self.reserve(
                    &mut ticket,
                    rule,
                    item,
                    parents,
                    finding.sketched,
                    *counted_in,
                );
            }
        }
        verdict.findings.extend(permit_outcome.findings);
        verdict
            .findings
            .sort_by_key(|rule_finding| rule_finding.rule.index);
        verdict.choose_decider(self.rules);
        if let Some(permits) = permit_outcome.permits.filter(|_| verdict.is_admitted) {
            ticket.hold_permits(permits);
        }
        (verdict, ticket)
    }

    /// Adds the reservation of one limit on a rate to the ticket.
    fn reserve(
        &self,
        ticket: &mut Ticket,
        rule: &Arc<Rule>,
        rate_item: &RateItem,
        parents: &[ParentNetwork],
        is_sketched: bool,
        counted_in: CountedIn,
    ) {
        let (Some(limit), Some(RuleCounter::Rate(registered, _))) =
            (rule.limit.rate(), self.admission.counter(rule))
        else {
            return;
        };
        let item = LimitItem {
            limit,
            slot: registered.slot(),
            key: rate_item.key,
            cost: rate_item.cost,
            scale: rate_item.scale,
            is_shadow: rate_item.is_shadow,
            parents,
        };
        ticket.reserve(self.admission, rule.clone(), &item, is_sketched, counted_in);
    }
}
