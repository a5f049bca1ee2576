//! One request in, one verdict out, and the ticket that settles it. Every door of the gateway
//! decides here; nothing here knows HTTP status codes of its own. Only a store that gateways share is waited for.

mod ahead;
mod asked;
mod charge;
mod later;
mod stake;
pub mod ticket;
mod verdict;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::clock::{Clock, Nanos};
use crate::identity::{Identifier, Who};
use crate::limit::pressure::Pressure;
use crate::limit::{Bound, Limit, Reading, Rule};
use crate::store::permits::Scope;
use crate::store::shared::core::Counted;
use crate::store::shared::plan::Plan;
use crate::store::{self, Memory, Permits, Registered, Shared, Slot};

use asked::{Asked, Whom};

pub use ahead::Ahead;
pub use charge::Outcome;
pub use later::{Decided, Later};
pub use stake::{Costs, Stake};
pub use ticket::Ticket;
pub use verdict::{Finding, Verdict};

/// Decides by the rules of one set of running policies.
#[derive(Clone, Debug)]
pub struct Admission {
    store: Arc<Memory>,
    permits: Arc<Permits>,
    counters: Arc<[Counter]>,
    clock: Clock,
    /// The store that gateways share, and which connection to it is used.
    shared: Option<(Arc<Shared>, usize)>,
    /// For each rule, costs that never became known; empty where nobody counts them.
    unknown: Arc<[metrics::Counter]>,
}

/// Where the counts of a rule are kept.
#[derive(Clone, Debug)]
enum Counter {
    /// Here, and how several gateways share them.
    Rate(Registered, Option<Sharing>),
    Open(Scope),
}

/// How a limit is shared, and the limit where it can be kept beyond a request.
#[derive(Clone, Debug)]
struct Sharing {
    limit: Arc<Limit>,
    plan: Option<Arc<Plan>>,
}

/// One request, as far as limits care.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// The limits it meets.
    pub rules: &'a [Arc<Rule>],
    /// Who asks.
    pub who: &'a Who,
    /// Turns who asks into keys.
    pub identifier: &'a Identifier,
    /// When.
    pub now: Nanos,
    /// What elastic limits may lend of; nothing where nothing is known to be spare.
    pub pressure: Option<&'a Pressure>,
    /// Units that it holds of limits on cost until its cost is known, by their place among `rules`; of others as many
    /// as the rule says.
    pub reserved: &'a [(usize, u32)],
}

impl Admission {
    /// Makes the rules known to the store; counters of limits it already knows go on.
    pub fn new(
        rules: &[Arc<Rule>],
        store: Arc<Memory>,
        clock: Clock,
    ) -> Result<Admission, store::Error> {
        Admission::over(rules, store, Arc::default(), clock, None)
    }

    /// The same, by counts that several gateways share.
    pub fn shared(
        rules: &[Arc<Rule>],
        shared: Arc<Shared>,
        clock: Clock,
    ) -> Result<Admission, store::Error> {
        let (memory, outsider) = (shared.core.memory.clone(), shared.outsider());
        let shared = Some((shared, outsider));
        Admission::over(rules, memory, Arc::default(), clock, shared)
    }

    /// The same for a worker, with a connection of its own.
    pub fn for_worker(&self, worker: usize) -> Admission {
        let shared = self.shared.as_ref();
        Admission {
            shared: shared.map(|(shared, _)| (shared.clone(), worker)),
            ..self.clone()
        }
    }

    /// The same, counting costs that never become known; a counter for each rule.
    pub fn counting(self, unknown: Arc<[metrics::Counter]>) -> Admission {
        Admission { unknown, ..self }
    }

    /// By other rules, over the same counts: a permit that is out stays out.
    pub fn with_rules(&self, rules: &[Arc<Rule>]) -> Result<Admission, store::Error> {
        let (store, permits) = (self.store.clone(), self.permits.clone());
        let shared = self.shared.clone();
        Admission::over(rules, store, permits, self.clock.clone(), shared)
    }

    fn over(
        rules: &[Arc<Rule>],
        store: Arc<Memory>,
        permits: Arc<Permits>,
        clock: Clock,
        shared: Option<(Arc<Shared>, usize)>,
    ) -> Result<Admission, store::Error> {
        let counter = |rule: &Arc<Rule>| -> Result<Counter, store::Error> {
            match &rule.limit {
                Bound::Rate(limit) => {
                    let registered = store.register(&rule.scope, limit)?;
                    let terms = (rule.sharing, rule.on_store_error);
                    let sharing = shared.as_ref().map(|_| Sharing {
                        limit: Arc::new(limit.clone()),
                        plan: Plan::new(&rule.scope, limit, &registered, terms).map(Arc::new),
                    });
                    Ok(Counter::Rate(registered, sharing))
                }
                Bound::Open(_) => Ok(Counter::Open(Scope::new(&rule.scope))),
            }
        };
        let counters = rules.iter().map(counter);
        let counters = counters.collect::<Result<_, store::Error>>()?;
        Ok(Admission {
            store,
            permits,
            counters,
            clock,
            shared,
            unknown: Arc::default(),
        })
    }

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

    /// Where the store keeps a rule's counters, unless the rule counts permits.
    pub fn slot(&self, rule: &Rule) -> Option<Slot> {
        match self.counters.get(rule.index)? {
            Counter::Rate(registered, _) => Some(registered.slot()),
            Counter::Open(_) => None,
        }
    }

    /// How several gateways share a rule's counters, if they do.
    pub fn plan(&self, rule: &Rule) -> Option<&Arc<Plan>> {
        match self.counters.get(rule.index)? {
            Counter::Rate(_, sharing) => sharing.as_ref()?.plan.as_ref(),
            Counter::Open(_) => None,
        }
    }

    /// The store that gateways share.
    pub fn shared_store(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref().map(|(shared, _)| shared)
    }

    /// Permits that are out, of all keys of each rule, in the order of the rules; nothing for a rule
    /// on a rate.
    pub fn open(&self) -> Vec<Option<u64>> {
        let out = self.permits.out();
        let each = self.counters.iter().map(|counter| match counter {
            Counter::Rate(..) => None,
            Counter::Open(scope) => Some(out.get(scope).copied().unwrap_or(0)),
        });
        each.collect()
    }

    /// The store behind.
    pub fn store(&self) -> &Arc<Memory> {
        &self.store
    }

    /// The permits behind.
    pub fn permits(&self) -> &Arc<Permits> {
        &self.permits
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
