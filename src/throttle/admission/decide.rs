//! Decides about one request by all its limits: takes from each of them, or from none.

use smallvec::SmallVec;

use super::ahead::Ahead;
use super::ask::Ask;
use super::asked::{Asked, Whom};
use super::counters::Admission;
use super::later::{Decided, Later};
use super::ticket::Ticket;
use super::verdict::Verdict;
use crate::limit::Reading;
use crate::store::shared::core::Counted;

impl Admission {
    /// Checks all limits of a request and takes from all of them, or from none. Says at once what is `decided`, unless
    /// a store that gateways share must be asked. `ahead` is of whoever asks, by these rules.
    // In one piece with what every request takes; the other caller is rare.
    #[inline(always)]
    pub fn decide(
        &self,
        ask: &Ask<'_>,
        ahead: Option<&Ahead>,
        decided: &mut Decided,
    ) -> Option<Later> {
        if ahead.is_some_and(|ahead| ahead.refuses(ask.now, &mut decided.verdict)) {
            return None;
        }
        let parents = ask.identifier.parents(ask.who);
        let mut whom = Whom::default();
        let whom = match ahead {
            Some(ahead) => &ahead.whom,
            None => {
                self.identify(ask, &mut whom);
                &whom
            }
        };
        let mut asked = Asked::nothing(whom);
        asked.gather(ask, &parents);
        match &self.shared {
            Some((shared, worker)) if !asked.items.is_empty() => {
                return self.decide_shared(shared, *worker, ask, &asked, decided);
            }
            _ if asked.wants.is_empty() => self.decide_here(ask, ahead, &asked, decided),
            _ => self.decide_open(ask, &asked, decided),
        }
        None
    }

    #[inline(always)]
    fn decide_here(
        &self,
        ask: &Ask<'_>,
        ahead: Option<&Ahead>,
        asked: &Asked<'_>,
        Decided { verdict, ticket }: &mut Decided,
    ) {
        let versions = ahead.and_then(Ahead::versions);
        let mut readings = SmallVec::new();
        let (items, places) = (&asked.items, &asked.whom.places);
        let admitted =
            items.is_empty() || self.store.take_at(items, places, ask.now, &mut readings);
        asked.tell(&readings, admitted, verdict);
        verdict.weigh(ask.rules);
        self.reserve(ask, asked, &readings, admitted, ticket);
        if let Some(ahead) = ahead {
            ahead.decided(admitted);
            if let Some(versions) = versions.filter(|_| !admitted) {
                ahead.keep(ask, asked, verdict, versions);
            }
        }
    }

    /// The same where requests are limited by how many are open: rates are asked while the permits that
    /// the request needs are held.
    #[inline(never)]
    fn decide_open(
        &self,
        ask: &Ask<'_>,
        asked: &Asked<'_>,
        Decided { verdict, ticket }: &mut Decided,
    ) {
        let (mut readings, mut open) = (SmallVec::new(), SmallVec::new());
        let items = &asked.items;
        let others = |there: bool| {
            if items.is_empty() {
                return true;
            }
            if there {
                return self
                    .store
                    .take_at(items, &asked.whom.places, ask.now, &mut readings);
            }
            self.store.refused(items, ask.now, &mut readings);
            false
        };
        let (admitted, taken) = self.permits.take(&asked.wants, &mut open, others);
        asked.tell(&readings, admitted, verdict);
        asked.add_open(verdict, &open);
        verdict.weigh(ask.rules);
        self.reserve(ask, asked, &readings, admitted, ticket);
        ticket.keep(taken);
    }

    /// What [`Admission::decide`] would say, taking nothing; of what gateways share, as far as this one knows.
    pub fn peek(&self, ask: &Ask<'_>) -> Verdict {
        let parents = ask.identifier.parents(ask.who);
        let mut whom = Whom::default();
        self.identify(ask, &mut whom);
        let mut asked = Asked::nothing(&whom);
        asked.gather(ask, &parents);
        if let Some((shared, _)) = &self.shared {
            return self.glance(shared, ask, &asked);
        }
        let (mut readings, mut open) = (SmallVec::new(), SmallVec::new());
        let items = &asked.items;
        let admits = items.is_empty() || self.store.peek(items, ask.now, &mut readings);
        let there = self.permits.peek(&asked.wants, &mut open);
        let mut verdict = Verdict::default();
        asked.tell(&readings, admits && there, &mut verdict);
        asked.add_open(&mut verdict, &open);
        verdict.weigh(ask.rules);
        verdict
    }

    #[inline]
    fn reserve(
        &self,
        ask: &Ask<'_>,
        asked: &Asked<'_>,
        readings: &[Reading],
        admitted: bool,
        ticket: &mut Ticket,
    ) {
        if !asked.reserves {
            return;
        }
        for ((item, place), reading) in asked.each().zip(readings) {
            let took = reading.standing.admits() && (admitted || item.shadow);
            if item.limit.reserves && took {
                let rule = ask.rules[place].clone();
                ticket.hold(self, rule, item, reading.sketched, Counted::Here);
            }
        }
    }
}
