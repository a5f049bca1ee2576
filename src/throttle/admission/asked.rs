//! What a request asks of the limits that apply to it, and whom these count. The latter does not change while the same
//! one asks, and is kept for who is known.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::ask::Ask;
use super::counters::{Admission, Counter};
use super::verdict::{Finding, Verdict};
use crate::identity::{Identifier, Who};
use crate::limit::pressure::Pressure;
use crate::limit::{Bound, Fingerprint, Identity, Reading, Rule, Scale};
use crate::store::permits::{Scope, Want};
use crate::store::{Item, Parent, Places, Slot};

/// Whom the limits count that apply to a request: the same whenever the same one asks.
#[derive(Debug, Default)]
pub(crate) struct Whom {
    rates: SmallVec<[Keyed<Slot>; 4]>,
    /// Where the store counts them for each of the rates.
    pub(crate) places: Places,
    open: SmallVec<[Keyed<Scope>; 2]>,
}

/// Whom one limit counts, and where its counters are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed<C> {
    /// The place of its rule among the request's rules.
    rule: u16,
    counts: C,
    key: Fingerprint,
    /// What the plan makes of it.
    multiply: u32,
    /// The networks around the address are counted too.
    networks: bool,
}

/// What one request asks of the limits that apply.
pub(crate) struct Asked<'a> {
    pub(crate) whom: &'a Whom,
    /// Of the rates.
    pub(crate) items: SmallVec<[Item<'a>; 4]>,
    /// Some item reserves what it takes.
    pub(crate) reserves: bool,
    /// Of the limits on open requests.
    pub(crate) wants: SmallVec<[Want<'a>; 2]>,
}

impl Admission {
    /// Says whom the limits count. Into a place of the caller's: it is too large to be handed about.
    pub(crate) fn identify(&self, ask: &Ask<'_>, whom: &mut Whom) {
        for (number, rule) in ask.rules.iter().enumerate() {
            if !ask.who.ip_unclear && exempt(rule, ask.who.ip) {
                continue;
            }
            let Some(key) = ask.identifier.key(ask.who, &rule.key) else {
                continue;
            };
            let multiply = multiply(ask.identifier, rule, ask.who);
            let (number, networks) = (number as u16, rule.key == [Identity::Ip]);
            match (&rule.limit, &self.counters[rule.index]) {
                (Bound::Rate(limit), Counter::Rate(registered, _)) => {
                    let slot = registered.slot();
                    if let Some(place) = self.store.place(limit, slot, key, multiply) {
                        // It comes while the next key is hashed.
                        self.store.prefetch(&place);
                        whom.places.push(place);
                    }
                    whom.rates.push(Keyed {
                        rule: number,
                        counts: slot,
                        key,
                        multiply,
                        networks,
                    });
                }
                (Bound::Open(_), Counter::Open(scope)) => whom.open.push(Keyed {
                    rule: number,
                    counts: *scope,
                    key,
                    multiply,
                    networks,
                }),
                // The rules are not those that the counters were made for.
                _ => debug_assert!(false, "{} has another kind of counter", rule.name),
            }
        }
    }
}

impl<'a> Asked<'a> {
    pub(crate) fn nothing(whom: &'a Whom) -> Asked<'a> {
        Asked {
            whom,
            items: SmallVec::new(),
            reserves: false,
            wants: SmallVec::new(),
        }
    }

    /// Says what is asked for. Into a place of the caller's, as above.
    pub(crate) fn gather(&mut self, ask: &Ask<'a>, parents: &'a [Parent]) {
        let parents = |networks: bool| if networks { parents } else { &[] };
        for keyed in &self.whom.rates {
            let rule = &ask.rules[usize::from(keyed.rule)];
            let Some(limit) = rule.limit.rate() else {
                continue;
            };
            self.reserves |= limit.reserves;
            self.items.push(Item {
                limit,
                slot: keyed.counts,
                key: keyed.key,
                cost: held(ask, rule, usize::from(keyed.rule)),
                scale: Scale {
                    multiply: keyed.multiply,
                    lent: lent(rule, ask.pressure),
                },
                shadow: rule.shadow,
                parents: parents(keyed.networks),
            });
        }
        for keyed in &self.whom.open {
            let rule = &ask.rules[usize::from(keyed.rule)];
            let Some(limit) = rule.limit.open() else {
                continue;
            };
            self.wants.push(Want {
                limit,
                scope: keyed.counts,
                key: keyed.key,
                multiply: keyed.multiply,
                shadow: rule.shadow,
                parents: parents(keyed.networks),
            });
        }
    }

    /// Each item, and the place of its rule among the request's rules.
    #[inline]
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Item<'a>, usize)> {
        let rules = self.whom.rates.iter().map(|keyed| usize::from(keyed.rule));
        self.items.iter().zip(rules)
    }

    /// What the store said, not yet weighed.
    #[inline]
    pub(crate) fn tell(&self, readings: &[Reading], admitted: bool, verdict: &mut Verdict) {
        verdict.admitted = admitted;
        for ((item, rule), reading) in self.each().zip(readings) {
            verdict.findings.push(Finding {
                rule,
                key: item.key,
                reading: *reading,
            });
        }
    }

    /// What permits said.
    pub(crate) fn open<'r>(
        &'r self,
        readings: &'r [Reading],
    ) -> impl Iterator<Item = Finding> + 'r {
        let each = self.whom.open.iter().zip(readings);
        each.map(|(keyed, reading)| Finding {
            rule: usize::from(keyed.rule),
            key: keyed.key,
            reading: *reading,
        })
    }

    /// Adds it.
    pub(crate) fn add_open(&self, verdict: &mut Verdict, readings: &[Reading]) {
        verdict.findings.extend(self.open(readings));
        verdict.findings.sort_by_key(|finding| finding.rule);
    }
}

/// Units that the request takes of a rule, at first.
fn held(ask: &Ask<'_>, rule: &Rule, place: usize) -> u32 {
    let Some(reserve) = &rule.reserve else {
        return 1;
    };
    let said = ask.reserved.iter().find(|(rule, _)| *rule == place);
    said.map_or(reserve.otherwise, |(_, units)| *units).max(1)
}

fn exempt(rule: &Rule, ip: IpAddr) -> bool {
    !rule.exempt.is_empty() && rule.exempt.iter().any(|network| network.contains(&ip))
}

/// What the rule lends now, in thousandths of its rate.
fn lent(rule: &Rule, pressure: Option<&Pressure>) -> u32 {
    if !rule.limit.throttle().lends() {
        return 0;
    }
    let Some((pressure, condition)) = pressure.zip(rule.condition.as_ref()) else {
        return 0;
    };
    let lent = pressure.lends().get() - 1.0;
    if lent <= 0.0 {
        return 0;
    }
    // A cast stops at the largest number.
    (lent * condition.headroom(&pressure.snapshot()) * 1000.0) as u32
}

fn multiply(identifier: &Identifier, rule: &Rule, who: &Who) -> u32 {
    if !rule.plans {
        return 1;
    }
    identifier
        .settings()
        .plan
        .multiply(who.plan)
        .clamp(1, rule.limit.max_multiply().max(1))
}
