//! Decides about one request by all its limits: takes from each of them, or from none.

use smallvec::SmallVec;

use super::counters::Admission;
use super::demand::{Demand, Subjects};
use super::prepared::PreparedDecision;
use super::request::AdmissionRequest;
use super::shared_decision::{AdmissionOutcome, PendingDecision};
use super::ticket::Ticket;
use super::verdict::Verdict;
use crate::limit::LimitReading;
use crate::store::shared::pending::CountedIn;

impl Admission {
    /// Checks all limits of a request and takes from all of them, or from none. Writes the decision to `outcome`, unless
    /// a store that gateways share must be asked first: then it returns what waits for the store. `prepared` must belong
    /// to the same client and rules.
    // Inlined into the path of every request; the other caller is rare.
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
        let parents = request.identifier.parents(request.who);
        let mut subjects = Subjects::default();
        let subjects = match prepared {
            Some(prepared) => &prepared.subjects,
            None => {
                self.identify(request, &mut subjects);
                &subjects
            }
        };
        let mut demand = Demand::empty(subjects);
        demand.fill(request, &parents);
        match &self.shared {
            Some((shared, worker)) if !demand.items.is_empty() => {
                return self.decide_shared(shared, *worker, request, &demand, outcome);
            }
            _ if demand.wants.is_empty() => self.decide_here(request, prepared, &demand, outcome),
            _ => self.decide_open(request, &demand, outcome),
        }
        None
    }

    /// Decides where no limit counts open requests and no store is shared.
    #[inline(always)]
    fn decide_here(
        &self,
        request: &AdmissionRequest<'_>,
        prepared: Option<&PreparedDecision>,
        demand: &Demand<'_>,
        AdmissionOutcome { verdict, ticket }: &mut AdmissionOutcome,
    ) {
        let versions = prepared.and_then(PreparedDecision::versions);
        let mut readings = SmallVec::new();
        let (items, places) = (&demand.items, &demand.subjects.places);
        let admitted = items.is_empty()
            || self
                .store
                .take_at(items, places, request.now, &mut readings);
        demand.add_findings(&readings, admitted, verdict);
        verdict.choose_decider(request.rules);
        self.reserve_units(request, demand, &readings, admitted, ticket);
        if let Some(prepared) = prepared {
            prepared.record(admitted);
            if let Some(versions) = versions.filter(|_| !admitted) {
                prepared.record_refusal(request, demand, verdict, versions);
            }
        }
    }

    /// Decides where some limit counts open requests. The rates are decided while the locks of the permits are held.
    #[inline(never)]
    fn decide_open(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        AdmissionOutcome { verdict, ticket }: &mut AdmissionOutcome,
    ) {
        let (mut readings, mut open) = (SmallVec::new(), SmallVec::new());
        let items = &demand.items;
        let decide_rates = |permitted: bool| {
            if items.is_empty() {
                return true;
            }
            if permitted {
                return self.store.take_at(
                    items,
                    &demand.subjects.places,
                    request.now,
                    &mut readings,
                );
            }
            self.store.refused(items, request.now, &mut readings);
            false
        };
        let (admitted, taken) = self.permits.take(&demand.wants, &mut open, decide_rates);
        demand.add_findings(&readings, admitted, verdict);
        demand.add_open_findings(verdict, &open);
        verdict.choose_decider(request.rules);
        self.reserve_units(request, demand, &readings, admitted, ticket);
        ticket.hold_permits(taken);
    }

    /// What [`Admission::decide`] would say, taking nothing. Of shared limits it says what this gateway knows.
    pub fn peek(&self, request: &AdmissionRequest<'_>) -> Verdict {
        let parents = request.identifier.parents(request.who);
        let mut subjects = Subjects::default();
        self.identify(request, &mut subjects);
        let mut demand = Demand::empty(&subjects);
        demand.fill(request, &parents);
        if let Some((shared, _)) = &self.shared {
            return self.peek_known(shared, request, &demand);
        }
        let (mut readings, mut open) = (SmallVec::new(), SmallVec::new());
        let items = &demand.items;
        let admits = items.is_empty() || self.store.peek(items, request.now, &mut readings);
        let permitted = self.permits.peek(&demand.wants, &mut open);
        let mut verdict = Verdict::default();
        demand.add_findings(&readings, admits && permitted, &mut verdict);
        demand.add_open_findings(&mut verdict, &open);
        verdict.choose_decider(request.rules);
        verdict
    }

    #[inline]
    fn reserve_units(
        &self,
        request: &AdmissionRequest<'_>,
        demand: &Demand<'_>,
        readings: &[LimitReading],
        admitted: bool,
        ticket: &mut Ticket,
    ) {
        if !demand.reserves {
            return;
        }
        for ((item, place), reading) in demand.each().zip(readings) {
            let took = reading.standing.admits() && (admitted || item.shadow);
            if item.limit.reserves && took {
                let rule = request.rules[place].clone();
                ticket.reserve(self, rule, item, reading.sketched, CountedIn::Gateway);
            }
        }
    }
}
