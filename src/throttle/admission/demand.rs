//! The keys that a request's limits count it by, and what it takes of each limit. The keys of a client stay the same
//! from request to request, so a connection keeps them.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::counters::{Admission, RuleCounter};
use super::request::AdmissionRequest;
use super::verdict::{Finding, Verdict};
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::pressure::Pressure;
use crate::limit::{Fingerprint, Identity, LimitReading, Rule, RuleLimit, Scale};
use crate::store::permits::{PermitRequest, PermitScope};
use crate::store::{CellPlaces, Item, Parent, Slot};

/// The keys that count a request, one for each limit that applies. They depend on the client and on the rules only.
#[derive(Debug, Default)]
pub(crate) struct Subjects {
    rates: SmallVec<[Keyed<Slot>; 4]>,
    /// Where the store keeps the counts of `rates`, one for each of them.
    pub(crate) places: CellPlaces,
    open: SmallVec<[Keyed<PermitScope>; 2]>,
}

/// The key by which one limit counts, and its counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed<C> {
    /// Index among the request's rules.
    rule: u16,
    counters: C,
    key: Fingerprint,
    /// The plan's multiplier.
    multiply: u32,
    /// Whether the networks around the address are counted too.
    networks: bool,
}

/// What one request takes of its limits, if they admit it.
pub(crate) struct Demand<'a> {
    pub(crate) subjects: &'a Subjects,
    /// Of the limits on a rate.
    pub(crate) items: SmallVec<[Item<'a>; 4]>,
    /// Whether some item reserves what it takes.
    pub(crate) reserves: bool,
    /// Of the limits on open requests.
    pub(crate) wants: SmallVec<[PermitRequest<'a>; 2]>,
}

impl Admission {
    /// Finds the keys that count a request. Writes to `subjects`, for a returned value would be copied.
    pub(crate) fn identify(&self, request: &AdmissionRequest<'_>, subjects: &mut Subjects) {
        for (number, rule) in request.rules.iter().enumerate() {
            if !request.who.ip_unclear && exempt(rule, request.who.ip) {
                continue;
            }
            let Some(key) = request.identifier.key(request.who, &rule.key) else {
                continue;
            };
            let multiply = multiply(request.identifier, rule, request.who);
            let (number, networks) = (number as u16, rule.key == [Identity::Ip]);
            match (&rule.limit, &self.counters[rule.index]) {
                (RuleLimit::Rate(limit), RuleCounter::Rate(registered, _)) => {
                    let slot = registered.slot();
                    if let Some(place) = self.store.place(limit, slot, key, multiply) {
                        // It is loaded while the next key is hashed.
                        self.store.prefetch(&place);
                        subjects.places.push(place);
                    }
                    subjects.rates.push(Keyed {
                        rule: number,
                        counters: slot,
                        key,
                        multiply,
                        networks,
                    });
                }
                (RuleLimit::Open(_), RuleCounter::Open(scope)) => subjects.open.push(Keyed {
                    rule: number,
                    counters: *scope,
                    key,
                    multiply,
                    networks,
                }),
                // The counters were made for other rules.
                _ => debug_assert!(false, "{} has another kind of counter", rule.name),
            }
        }
    }
}

impl<'a> Demand<'a> {
    pub(crate) fn empty(subjects: &'a Subjects) -> Demand<'a> {
        Demand {
            subjects,
            items: SmallVec::new(),
            reserves: false,
            wants: SmallVec::new(),
        }
    }

    /// Adds what the request takes. `parents` are the networks around its address.
    pub(crate) fn fill(&mut self, request: &AdmissionRequest<'a>, parents: &'a [Parent]) {
        let parents = |networks: bool| if networks { parents } else { &[] };
        for keyed in &self.subjects.rates {
            let rule = &request.rules[usize::from(keyed.rule)];
            let Some(limit) = rule.limit.rate() else {
                continue;
            };
            self.reserves |= limit.reserves;
            self.items.push(Item {
                limit,
                slot: keyed.counters,
                key: keyed.key,
                cost: units_at_admission(request, rule, usize::from(keyed.rule)),
                scale: Scale {
                    multiply: keyed.multiply,
                    lent: lent(rule, request.pressure),
                },
                shadow: rule.shadow,
                parents: parents(keyed.networks),
            });
        }
        for keyed in &self.subjects.open {
            let rule = &request.rules[usize::from(keyed.rule)];
            let Some(limit) = rule.limit.open() else {
                continue;
            };
            self.wants.push(PermitRequest {
                limit,
                scope: keyed.counters,
                key: keyed.key,
                multiply: keyed.multiply,
                shadow: rule.shadow,
                parents: parents(keyed.networks),
            });
        }
    }

    /// Each item with the index of its rule among the request's rules.
    #[inline]
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Item<'a>, usize)> {
        let rules = self
            .subjects
            .rates
            .iter()
            .map(|keyed| usize::from(keyed.rule));
        self.items.iter().zip(rules)
    }

    /// Adds what the store says of the items. The deciding limit is not chosen yet.
    #[inline]
    pub(crate) fn add_findings(
        &self,
        readings: &[LimitReading],
        admitted: bool,
        verdict: &mut Verdict,
    ) {
        verdict.admitted = admitted;
        for ((item, rule), reading) in self.each().zip(readings) {
            verdict.findings.push(Finding {
                rule,
                key: item.key,
                reading: *reading,
            });
        }
    }

    /// What the limits on open requests say.
    pub(crate) fn open_findings<'r>(
        &'r self,
        readings: &'r [LimitReading],
    ) -> impl Iterator<Item = Finding> + 'r {
        let each = self.subjects.open.iter().zip(readings);
        each.map(|(keyed, reading)| Finding {
            rule: usize::from(keyed.rule),
            key: keyed.key,
            reading: *reading,
        })
    }

    /// Adds [`Demand::open_findings`] to a verdict, in the order of the rules.
    pub(crate) fn add_open_findings(&self, verdict: &mut Verdict, readings: &[LimitReading]) {
        verdict.findings.extend(self.open_findings(readings));
        verdict.findings.sort_by_key(|finding| finding.rule);
    }
}

/// Units that the request takes of a limit at admission.
fn units_at_admission(request: &AdmissionRequest<'_>, rule: &Rule, index: usize) -> u32 {
    let Some(reserve) = &rule.reserve else {
        return 1;
    };
    let reserved = request.reserved.iter().find(|(rule, _)| *rule == index);
    reserved
        .map_or(reserve.otherwise, |(_, units)| *units)
        .max(1)
}

fn exempt(rule: &Rule, ip: IpAddr) -> bool {
    !rule.exempt.is_empty() && rule.exempt.iter().any(|network| network.contains(&ip))
}

/// What the limit lends now, in thousandths of its rate.
fn lent(rule: &Rule, pressure: Option<&Pressure>) -> u32 {
    if !rule.limit.throttle().lends() {
        return 0;
    }
    let Some((pressure, condition)) = pressure.zip(rule.condition.as_ref()) else {
        return 0;
    };
    let lent = pressure.lending_factor().get() - 1.0;
    if lent <= 0.0 {
        return 0;
    }
    // The cast saturates.
    (lent * condition.headroom(&pressure.snapshot()) * 1000.0) as u32
}

fn multiply(identifier: &Identifier, rule: &Rule, who: &ClientIdentity) -> u32 {
    if !rule.plans {
        return 1;
    }
    identifier
        .settings()
        .plan
        .multiply(who.plan)
        .clamp(1, rule.limit.max_multiply().max(1))
}
