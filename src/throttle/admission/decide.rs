//! Decides about one request by all its limits. An admitted request takes units and permits of each limit; a refused one
//! takes only units of shadow limits. The stores do the counting. `shared_decision.rs` decides where gateways share a
//! store.

use smallvec::SmallVec;

use super::counters::Admission;
use super::demand::{Demand, RequestKeys};
use super::outcome::{AdmissionOutcome, PendingDecision};
use super::prepared::PreparedDecision;
use super::request::AdmissionRequest;
use super::ticket::Ticket;
use super::verdict::Verdict;
use crate::limit::LimitFinding;
use crate::store::shared::pending_call::CountedIn;

impl Admission {
    /// Decides about a request by all its limits. Writes the decision to `outcome`, which must be empty, and returns
    /// `None`. If a store that gateways share must decide, leaves `outcome` empty and returns a future that waits for the
    /// store. `prepared` must belong to the same client and rules.
    // Inlined into the path of every request. The other caller, for messages of WebSockets, is rare.
    #[inline(always)]
    pub fn decide(
        &self,
        request: &AdmissionRequest<'_>,
        prepared: Option<&PreparedDecision>,
        outcome: &mut AdmissionOutcome,
    ) -> Option<PendingDecision> {
        if prepared
            .is_some_and(|prepared| prepared.repeat_refusal(request.now, &mut outcome.verdict))
        {
            return None;
        }
        let parents = request.identifier.parent_networks(request.client);
        let mut keys = RequestKeys::default();
        let keys = match prepared {
            Some(prepared) => &prepared.keys,
            None => {
                self.find_keys(request, &mut keys);
                &keys
            }
        };
        let mut demand = Demand::empty(keys);
        demand.fill(request, &parents);
        match &self.shared {
            Some(shared) if !demand.items.is_empty() || demand.shares_permits() => {
                return self.decide_shared(shared, request, &demand, outcome);
            }
            _ if demand.permit_requests.is_empty() => {
                self.decide_in_memory(request, prepared, &demand, outcome)
            }
            _ => self.decide_with_permits(request, &demand, outcome),
        }
        None
    }

    /// Decides by limits on rates that only this gateway counts, or without any limit. Keeps a refusal in `prepared`, if it
    /// can stand.
    // Inlined, because this decides about most requests.
    #[inline(always)]
    fn decide_in_memory(
        &self,
        request: &AdmissionRequest<'_>,
        prepared: Option<&PreparedDecision>,
        demand: &Demand<'_>,
        AdmissionOutcome { verdict, ticket }: &mut AdmissionOutcome,
    ) {
        // Read before the decision, so that a change meanwhile is noticed.
        let versions = prepared.and_then(PreparedDecision::current_versions);
        let mut findings = SmallVec::new();
        let (items, places) = (&demand.items, &demand.keys.cell_places);
        let is_admitted = items.is_empty()
            || self
                .store
                .take_at(items, places, request.now, &mut findings);
        demand.add_findings(&findings, is_admitted, verdict);
        verdict.choose_decider(request.rules);
        self.reserve_units(request, demand, &findings, is_admitted, ticket);
        if let Some(prepared) = prepared {
            prepared.record_outcome(is_admitted);
            if let Some(versions) = versions.filter(|_| !is_admitted) {
                prepared.record_refusal(request, demand, verdict, versions);
            }
        }
    }

    /// Decides where some limit counts open requests. The rates are decided while the locks of the permits are held. So
    /// only shadow limits take units of a request that gets no permit.
    // Not inlined, because most requests have no such limit.
    #[inline(never)]
    fn decide_with_permits(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        AdmissionOutcome { verdict, ticket }: &mut AdmissionOutcome,
    ) {
        let (mut findings, mut open_findings) = (SmallVec::new(), SmallVec::new());
        let items = &demand.items;
        let decide_rates = |has_permits: bool| {
            if items.is_empty() {
                return true;
            }
            if has_permits {
                return self.store.take_at(
                    items,
                    &demand.keys.cell_places,
                    request.now,
                    &mut findings,
                );
            }
            self.store
                .take_for_shadows(items, request.now, &mut findings);
            false
        };
        let (is_admitted, permits) =
            self.permits
                .take(&demand.permit_requests, &mut open_findings, decide_rates);
        demand.add_findings(&findings, is_admitted, verdict);
        demand.add_open_findings(verdict, &open_findings);
        verdict.choose_decider(request.rules);
        self.reserve_units(request, demand, &findings, is_admitted, ticket);
        ticket.hold_permits(permits);
    }

    /// Returns the verdict that [`Admission::decide`] would give, but takes nothing. Of a limit that gateways share, only
    /// what this gateway knows counts.
    pub fn peek(&self, request: &AdmissionRequest<'_>) -> Verdict {
        let parents = request.identifier.parent_networks(request.client);
        let mut keys = RequestKeys::default();
        self.find_keys(request, &mut keys);
        let mut demand = Demand::empty(&keys);
        demand.fill(request, &parents);
        if let Some(shared) = &self.shared {
            return self.peek_own_counts(&shared.store, request, &demand);
        }
        let (mut findings, mut open_findings) = (SmallVec::new(), SmallVec::new());
        let items = &demand.items;
        let admits_by_rates =
            items.is_empty() || self.store.peek(items, request.now, &mut findings);
        let has_permits = self
            .permits
            .peek(&demand.permit_requests, &mut open_findings);
        let mut verdict = Verdict::default();
        demand.add_findings(&findings, admits_by_rates && has_permits, &mut verdict);
        demand.add_open_findings(&mut verdict, &open_findings);
        verdict.choose_decider(request.rules);
        verdict
    }

    /// Adds to the ticket what the request has reserved. Of a refused request only shadow limits have reserved units.
    #[inline]
    fn reserve_units(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        findings: &[LimitFinding],
        is_admitted: bool,
        ticket: &mut Ticket,
    ) {
        if !demand.has_reservations {
            return;
        }
        for ((item, rule), finding) in demand.items_with_rules().zip(findings) {
            let has_taken = finding.standing.admits() && (is_admitted || item.is_shadow);
            if item.limit.reserves && has_taken {
                let rule = rule.resolve(request.rules).clone();
                ticket.reserve(self, rule, item, finding.sketched, CountedIn::Gateway);
            }
        }
    }
}
