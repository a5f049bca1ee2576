//! Decides about one request by all its limits: takes units and permits of each limit, or of none. The stores do the
//! counting itself.

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
    /// Decides about a request by all its limits: takes units of all of them, or of none. Writes the decision to `outcome`.
    /// If a store that gateways share must decide, returns a future that waits for the store instead. `prepared` must
    /// belong to the same client and rules.
    // This is inlined into the path of every request; the other caller is rare.
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
        let parents = request.identifier.parents(request.client);
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
            Some(shared) if !demand.items.is_empty() => {
                return self.decide_shared(shared, request, &demand, outcome);
            }
            _ if demand.permit_requests.is_empty() => {
                self.decide_in_memory(request, prepared, &demand, outcome)
            }
            _ => self.decide_with_permits(request, &demand, outcome),
        }
        None
    }

    /// Decides where no limit counts open requests and no store is shared.
    #[inline(always)]
    fn decide_in_memory(
        &self,
        request: &AdmissionRequest<'_>,
        prepared: Option<&PreparedDecision>,
        demand: &Demand<'_>,
        AdmissionOutcome { verdict, ticket }: &mut AdmissionOutcome,
    ) {
        let versions = prepared.and_then(PreparedDecision::current_versions);
        let mut readings = SmallVec::new();
        let (items, places) = (&demand.items, &demand.keys.cell_places);
        let is_admitted = items.is_empty()
            || self
                .store
                .take_at(items, places, request.now, &mut readings);
        demand.add_findings(&readings, is_admitted, verdict);
        verdict.choose_decider(request.rules);
        self.reserve_units(request, demand, &readings, is_admitted, ticket);
        if let Some(prepared) = prepared {
            prepared.record_outcome(is_admitted);
            if let Some(versions) = versions.filter(|_| !is_admitted) {
                prepared.record_refusal(request, demand, verdict, versions);
            }
        }
    }

    /// Decides where some limit counts open requests. The rates are decided while the locks of the permits are held.
    #[inline(never)]
    fn decide_with_permits(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        AdmissionOutcome { verdict, ticket }: &mut AdmissionOutcome,
    ) {
        let (mut readings, mut open_findings) = (SmallVec::new(), SmallVec::new());
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
                    &mut readings,
                );
            }
            self.store
                .take_for_shadows(items, request.now, &mut readings);
            false
        };
        let (is_admitted, permits) =
            self.permits
                .take(&demand.permit_requests, &mut open_findings, decide_rates);
        demand.add_findings(&readings, is_admitted, verdict);
        demand.add_open_findings(verdict, &open_findings);
        verdict.choose_decider(request.rules);
        self.reserve_units(request, demand, &readings, is_admitted, ticket);
        ticket.hold_permits(permits);
    }

    /// The verdict that [`Admission::decide`] would give, of shared limits by what this gateway knows. Takes nothing.
    pub fn peek(&self, request: &AdmissionRequest<'_>) -> Verdict {
        let parents = request.identifier.parents(request.client);
        let mut keys = RequestKeys::default();
        self.find_keys(request, &mut keys);
        let mut demand = Demand::empty(&keys);
        demand.fill(request, &parents);
        if let Some(shared) = &self.shared {
            return self.peek_own_counts(&shared.store, request, &demand);
        }
        let (mut readings, mut open_findings) = (SmallVec::new(), SmallVec::new());
        let items = &demand.items;
        let admits = items.is_empty() || self.store.peek(items, request.now, &mut readings);
        let has_permits = self
            .permits
            .peek(&demand.permit_requests, &mut open_findings);
        let mut verdict = Verdict::default();
        demand.add_findings(&readings, admits && has_permits, &mut verdict);
        demand.add_open_findings(&mut verdict, &open_findings);
        verdict.choose_decider(request.rules);
        verdict
    }

    /// Adds to the ticket what the request has reserved.
    #[inline]
    fn reserve_units(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        readings: &[LimitFinding],
        is_admitted: bool,
        ticket: &mut Ticket,
    ) {
        if !demand.has_reservations {
            return;
        }
        for ((item, rule_index), reading) in demand.items_with_rules().zip(readings) {
            let has_taken = reading.standing.admits() && (is_admitted || item.is_shadow);
            if item.limit.reserves && has_taken {
                let rule = request.rules[rule_index].clone();
                ticket.reserve(self, rule, item, reading.sketched, CountedIn::Gateway);
            }
        }
    }
}
