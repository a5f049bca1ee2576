//! One request in, one verdict out, and the ticket that settles it. Every door of the gateway
//! decides here; nothing here knows HTTP status codes of its own or waits for anything.

pub mod ticket;

use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::clock::{Clock, Nanos};
use crate::head::Lookup;
use crate::identity::{Identifier, Who};
use crate::limit::{Count, Disclose, Fingerprint, Identity, Reading, Rule, Standing};
use crate::store::{self, Item, Memory, Parent, Registered, Slot};

pub use ticket::{Outcome, Ticket};

/// Decides by the rules of one set of running policies.
#[derive(Clone, Debug)]
pub struct Admission {
    store: Arc<Memory>,
    slots: Arc<[Registered]>,
    clock: Clock,
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
}

/// What one limit said.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// The limit's place among the request's rules.
    pub rule: usize,
    /// Who was counted.
    pub key: Fingerprint,
    /// What it said.
    pub reading: Reading,
}

/// What all limits said.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Every limit that applies, in the order of the rules.
    pub findings: SmallVec<[Finding; 4]>,
    /// Index into `findings` of the limit that decides: of those that refuse the one with the
    /// longest wait, else the one with the least remaining and, of equals, the longest window. Shadow limits do not decide.
    pub deciding: Option<usize>,
    /// All limits that can refuse admit.
    pub admitted: bool,
    /// How long the request must be held back first (leaky bucket).
    pub delay: Nanos,
}

type Items<'a> = SmallVec<[Item<'a>; 4]>;
/// The place of each item's rule among the request's rules.
type Applies = SmallVec<[u16; 4]>;

impl Admission {
    /// Makes the rules known to the store; counters of limits it already knows go on.
    pub fn new(
        rules: &[Arc<Rule>],
        store: Arc<Memory>,
        clock: Clock,
    ) -> Result<Admission, store::Error> {
        let slots = rules
            .iter()
            .map(|rule| store.register(&rule.scope, &rule.limit));
        let slots = slots.collect::<Result<Arc<[Registered]>, _>>()?;
        Ok(Admission {
            store,
            slots,
            clock,
        })
    }

    /// Checks all limits of a request and takes from all of them, or from none.
    pub fn decide(&self, ask: &Ask<'_>) -> (Verdict, Ticket) {
        let parents = ask.identifier.parents(ask.who);
        let (items, applies) = self.items(ask, &parents);
        let mut readings = SmallVec::new();
        let admitted = items.is_empty() || self.store.take(&items, ask.now, &mut readings);
        let verdict = verdict(ask.rules, &items, &applies, &readings, admitted);
        let ticket = self.ticket(ask, &verdict, &items);
        (verdict, ticket)
    }

    /// What [`Admission::decide`] would say, taking nothing.
    pub fn peek(&self, ask: &Ask<'_>) -> Verdict {
        let parents = ask.identifier.parents(ask.who);
        let (items, applies) = self.items(ask, &parents);
        let mut readings = SmallVec::new();
        let admitted = items.is_empty() || self.store.peek(&items, ask.now, &mut readings);
        verdict(ask.rules, &items, &applies, &readings, admitted)
    }

    /// Where the store keeps a rule's counters.
    pub fn slot(&self, rule: &Rule) -> Slot {
        self.slots[rule.index].slot()
    }

    /// The store behind.
    pub fn store(&self) -> &Arc<Memory> {
        &self.store
    }

    fn items<'a>(&self, ask: &Ask<'a>, parents: &'a [Parent]) -> (Items<'a>, Applies) {
        let mut items = Items::new();
        let mut applies = Applies::new();
        for (place, rule) in ask.rules.iter().enumerate() {
            if !ask.who.ip_unclear && exempt(rule, ask.who.ip) {
                continue;
            }
            let Some(key) = ask.identifier.key(ask.who, &rule.key) else {
                continue;
            };
            let by_address = rule.key == [Identity::Ip];
            let item = Item {
                limit: &rule.limit,
                slot: self.slots[rule.index].slot(),
                key,
                cost: 1,
                multiply: multiply(ask.identifier, rule, ask.who),
                shadow: rule.shadow,
                parents: if by_address { parents } else { &[] },
            };
            // It comes while the next key is hashed.
            self.store.prefetch(&item);
            items.push(item);
            applies.push(place as u16);
        }
        (items, applies)
    }

    fn ticket(&self, ask: &Ask<'_>, verdict: &Verdict, items: &[Item<'_>]) -> Ticket {
        let mut ticket = Ticket::default();
        for (finding, item) in verdict.findings.iter().zip(items) {
            let took = finding.reading.standing.admits() && (verdict.admitted || item.shadow);
            if item.limit.reserves && took {
                let rule = ask.rules[finding.rule].clone();
                ticket.hold(self, rule, item, finding.reading.sketched);
            }
        }
        ticket
    }
}

fn exempt(rule: &Rule, ip: IpAddr) -> bool {
    rule.exempt.iter().any(|network| network.contains(&ip))
}

fn multiply(identifier: &Identifier, rule: &Rule, who: &Who) -> u32 {
    if !rule.plans {
        return 1;
    }
    identifier
        .settings()
        .plan
        .multiply(who.plan)
        .clamp(1, rule.limit.max_multiply.max(1))
}

fn verdict(
    rules: &[Arc<Rule>],
    items: &[Item<'_>],
    applies: &[u16],
    readings: &[Reading],
    admitted: bool,
) -> Verdict {
    let mut verdict = Verdict {
        admitted,
        ..Verdict::default()
    };
    for ((item, place), reading) in items.iter().zip(applies).zip(readings) {
        let finding = Finding {
            rule: usize::from(*place),
            key: item.key,
            reading: *reading,
        };
        let index = verdict.findings.len();
        verdict.findings.push(finding);
        if rules[finding.rule].shadow {
            continue;
        }
        verdict.delay = verdict.delay.max(reading.delay);
        let best = verdict.deciding.map(|best| &verdict.findings[best]);
        if best.is_none_or(|best| precedence(&finding, rules) > precedence(best, rules)) {
            verdict.deciding = Some(index);
        }
    }
    verdict
}

/// Of several limits the one with the greatest decides, of equals the first.
fn precedence(finding: &Finding, rules: &[Arc<Rule>]) -> (u8, u64, Nanos) {
    let reading = &finding.reading;
    let (rank, weight) = match reading.standing {
        Standing::Unsatisfiable => (2, u64::MAX),
        Standing::Refused => (2, reading.wait.0),
        Standing::Over => (1, u64::MAX),
        Standing::Within => (0, u64::MAX - u64::from(reading.remaining)),
    };
    let windows = &rules[finding.rule].limit.windows;
    let window = windows.get(usize::from(reading.window));
    (
        rank,
        weight,
        window.map_or(Nanos::ZERO, |rate| rate.window()),
    )
}

impl Verdict {
    /// The names of all limits that refuse, the longest wait first, as far as clients may know.
    pub fn refusing<'a>(&'a self, rules: &'a [Arc<Rule>]) -> SmallVec<[&'a Rule; 4]> {
        let refuses =
            |finding: &&Finding| !finding.reading.standing.admits() && !rules[finding.rule].shadow;
        let mut list: SmallVec<[&Finding; 4]> = self.findings.iter().filter(refuses).collect();
        list.sort_by_key(|finding| std::cmp::Reverse(finding.reading.wait));
        list.iter().map(|finding| &*rules[finding.rule]).collect()
    }

    /// Seconds after which all limits that refuse admit, as far as they know; none when waiting cannot
    /// help.
    pub fn retry_after(&self, rules: &[Arc<Rule>]) -> Option<u64> {
        let live = self
            .findings
            .iter()
            .filter(|finding| !rules[finding.rule].shadow);
        let mut longest = 1;
        for finding in live {
            match finding.reading.standing {
                Standing::Unsatisfiable => return None,
                Standing::Refused => {
                    let limit = &rules[finding.rule].limit;
                    longest = longest.max(limit.seconds(finding.reading.wait));
                }
                Standing::Within | Standing::Over => {}
            }
        }
        Some(longest)
    }

    /// The limit that decides.
    pub fn decider<'a>(&'a self, rules: &'a [Arc<Rule>]) -> Option<(&'a Rule, &'a Finding)> {
        let finding = &self.findings[self.deciding?];
        Some((&rules[finding.rule], finding))
    }

    /// What clients may know of: every finding of a limit that neither hides nor only watches.
    pub fn disclosed<'a>(&'a self, rules: &'a [Arc<Rule>]) -> impl Iterator<Item = &'a Finding> {
        self.findings.iter().filter(|finding| {
            let rule = &rules[finding.rule];
            !rule.shadow && rule.disclose == Disclose::All
        })
    }

    /// The one of them that decides among them.
    pub fn disclosed_decider<'a>(&'a self, rules: &'a [Arc<Rule>]) -> Option<&'a Finding> {
        self.disclosed(rules).reduce(|best, next| {
            if precedence(next, rules) > precedence(best, rules) {
                next
            } else {
                best
            }
        })
    }

    /// The soft limits that this request exceeds.
    pub fn over<'a>(&'a self, rules: &'a [Arc<Rule>]) -> impl Iterator<Item = &'a Rule> {
        let over = self
            .findings
            .iter()
            .filter(|f| f.reading.standing == Standing::Over);
        over.map(|finding| &*rules[finding.rule])
            .filter(|rule| !rule.shadow)
    }
}

/// A number of units: rounded up, however large.
fn units(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let number: f64 = text.parse().ok()?;
    // The cast saturates.
    (number >= 0.0).then(|| number.ceil() as u32)
}

/// Units a response uses of a limit that `count` describes, when the head tells.
pub fn used(count: &Count, status: u16, fields: &dyn Lookup) -> Option<u32> {
    match count {
        Count::All => Some(1),
        Count::Status { from, to } => Some(u32::from((*from..=*to).contains(&status))),
        Count::CostHeader(name) => {
            let value = fields.lookup(name.as_str());
            Some(value.and_then(units).unwrap_or(1))
        }
        Count::CostJson(_) => None,
    }
}
