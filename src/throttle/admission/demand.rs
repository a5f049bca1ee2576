//! [`RequestKeys`], the keys by which a request's limits count it, and [`Demand`], what the request takes of each
//! limit. The keys of a client stay the same from request to request, so a connection keeps them. Nothing here decides.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::counters::{Admission, RuleCounter};
use super::request::AdmissionRequest;
use super::verdict::{RuleFinding, Verdict};
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::pressure::Pressure;
use crate::limit::{Fingerprint, Identity, IdentitySet, LimitFinding, Rule, RuleLimit, Scale};
use crate::store::permits::{PermitRequest, PermitScope};
use crate::store::{CellPlaces, LimitItem, LimitSlot, ParentNetwork};

/// The keys by which a request is counted, one for each rule that applies. They depend only on the client and on the
/// rules.
#[derive(Debug, Default)]
pub(crate) struct RequestKeys {
    /// The rules with a limit on a rate.
    rate_rules: SmallVec<[KeyedRule<LimitSlot>; 4]>,
    /// Where the store keeps the counts of `rate_rules`, one place for each.
    pub(crate) cell_places: CellPlaces,
    /// The rules with a limit on open requests.
    open_rules: SmallVec<[KeyedRule<PermitScope>; 2]>,
}

/// A rule with the key by which it counts the request, and its counters `C`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedRule<C> {
    /// The index of the rule among the rules of the request.
    rule_index: u16,
    counters: C,
    key: Fingerprint,
    /// The multiplier of the client's plan, at least 1.
    plan_factor: u32,
    /// Whether the networks around the address are counted too.
    counts_networks: bool,
}

/// What one request takes of its limits, if they admit it.
pub(crate) struct Demand<'a> {
    pub(crate) keys: &'a RequestKeys,
    /// What the request takes of limits on a rate, in the order of [`RequestKeys`].
    pub(crate) items: SmallVec<[LimitItem<'a>; 4]>,
    /// Whether some item reserves the units that it takes.
    pub(crate) has_reservations: bool,
    /// What the request takes of limits on open requests.
    pub(crate) permit_requests: SmallVec<[PermitRequest<'a>; 2]>,
}

impl Admission {
    /// Collects the keys by which a request is counted, of all rules that apply to its client. They are written to
    /// `keys`, which must be empty, because a returned value would be copied.
    pub(crate) fn find_keys(&self, request: &AdmissionRequest<'_>, keys: &mut RequestKeys) {
        for (rule_index, rule) in request.rules.iter().enumerate() {
            if !request.client.is_ip_unclear && is_exempt(rule, request.client.ip) {
                continue;
            }
            if !request.identifier.selects(&rule.clients, request.client) {
                continue;
            }
            let key = (request.identifier).key_with_identities(request.client, &rule.key);
            let Some((key, identities)) = key else {
                continue;
            };
            // Without a network's count, a client could change its address for each request.
            let counts_networks = identities == IdentitySet::from_iter([Identity::Ip]);
            let plan_factor = client_plan_factor(request.identifier, rule, request.client);
            let rule_index = rule_index as u16;
            match (&rule.limit, &self.counters[rule.index]) {
                (RuleLimit::Rate(limit), RuleCounter::Rate(registered, _)) => {
                    let slot = registered.slot();
                    if let Some(place) = self.store.cell_place(limit, slot, key, plan_factor) {
                        // The count is loaded while the next key is hashed.
                        self.store.prefetch(&place);
                        keys.cell_places.push(place);
                    }
                    keys.rate_rules.push(KeyedRule {
                        rule_index,
                        counters: slot,
                        key,
                        plan_factor,
                        counts_networks,
                    });
                }
                (RuleLimit::Open(_), RuleCounter::Open(scope)) => keys.open_rules.push(KeyedRule {
                    rule_index,
                    counters: *scope,
                    key,
                    plan_factor,
                    counts_networks,
                }),
                // The counters were made for other rules.
                _ => debug_assert!(false, "{} has another kind of counter", rule.name),
            }
        }
    }
}

impl<'a> Demand<'a> {
    /// A demand of nothing; [`Demand::fill`] comes next.
    pub(crate) fn empty(keys: &'a RequestKeys) -> Demand<'a> {
        Demand {
            keys,
            items: SmallVec::new(),
            has_reservations: false,
            permit_requests: SmallVec::new(),
        }
    }

    /// Adds what the request takes of each limit. `parents` are the networks around its address.
    pub(crate) fn fill(&mut self, request: &AdmissionRequest<'a>, parents: &'a [ParentNetwork]) {
        let parents = |counts_networks: bool| if counts_networks { parents } else { &[] };
        for keyed_rule in &self.keys.rate_rules {
            let rule = &request.rules[usize::from(keyed_rule.rule_index)];
            let Some(limit) = rule.limit.rate() else {
                continue;
            };
            self.has_reservations |= limit.reserves;
            self.items.push(LimitItem {
                limit,
                slot: keyed_rule.counters,
                key: keyed_rule.key,
                cost: units_at_admission(request, rule, usize::from(keyed_rule.rule_index)),
                scale: Scale {
                    plan_factor: keyed_rule.plan_factor,
                    lent: lent_thousandths(rule, request.pressure),
                },
                is_shadow: rule.shadow,
                parents: parents(keyed_rule.counts_networks),
            });
        }
        for keyed_rule in &self.keys.open_rules {
            let rule = &request.rules[usize::from(keyed_rule.rule_index)];
            let Some(limit) = rule.limit.open() else {
                continue;
            };
            self.permit_requests.push(PermitRequest {
                limit,
                scope: keyed_rule.counters,
                key: keyed_rule.key,
                plan_factor: keyed_rule.plan_factor,
                is_shadow: rule.shadow,
                parents: parents(keyed_rule.counts_networks),
            });
        }
    }

    /// Each item with its rule.
    #[inline]
    pub(crate) fn items_with_rules(&self) -> impl Iterator<Item = (&LimitItem<'a>, usize)> {
        let rule_indices = self
            .keys
            .rate_rules
            .iter()
            .map(|keyed_rule| usize::from(keyed_rule.rule_index));
        self.items.iter().zip(rule_indices)
    }

    /// Adds the store's findings of the items to a verdict, and sets whether it admits. [`Verdict::choose_decider`] comes
    /// later.
    #[inline]
    pub(crate) fn add_findings(
        &self,
        readings: &[LimitFinding],
        admitted: bool,
        verdict: &mut Verdict,
    ) {
        verdict.is_admitted = admitted;
        for ((item, rule_index), reading) in self.items_with_rules().zip(readings) {
            verdict.findings.push(RuleFinding {
                rule_index,
                key: item.key,
                reading: *reading,
            });
        }
    }

    /// The findings of the permit requests, each with its rule and key.
    pub(crate) fn open_findings<'r>(
        &'r self,
        readings: &'r [LimitFinding],
    ) -> impl Iterator<Item = RuleFinding> + 'r {
        let keyed_findings = self.keys.open_rules.iter().zip(readings);
        keyed_findings.map(|(keyed_rule, reading)| RuleFinding {
            rule_index: usize::from(keyed_rule.rule_index),
            key: keyed_rule.key,
            reading: *reading,
        })
    }

    /// Adds [`Demand::open_findings`] to a verdict, in the order of the rules.
    pub(crate) fn add_open_findings(&self, verdict: &mut Verdict, readings: &[LimitFinding]) {
        verdict.findings.extend(self.open_findings(readings));
        verdict.findings.sort_by_key(|finding| finding.rule_index);
    }
}

/// The units that the request takes of a limit at admission, at least 1: those that the request lists, or what the rule
/// says. `rule_index` is the rule's index among those of the request.
fn units_at_admission(request: &AdmissionRequest<'_>, rule: &Rule, rule_index: usize) -> u32 {
    let Some(reserve) = &rule.reserve else {
        return 1;
    };
    let mut reserved_units = request.reserved_units.iter();
    reserved_units
        .find(|(index, _)| *index == rule_index)
        .map_or(reserve.otherwise, |(_, units)| *units)
        .max(1)
}

/// Whether the rule exempts this address.
fn is_exempt(rule: &Rule, ip: IpAddr) -> bool {
    !rule.exempt.is_empty() && rule.exempt.iter().any(|network| network.contains(&ip))
}

/// What an elastic limit lends now, in thousandths of its rate; 0 for other limits, without pressure or a condition, and
/// where the pressure allows no lending.
fn lent_thousandths(rule: &Rule, pressure: Option<&Pressure>) -> u32 {
    if !rule.limit.throttle().is_elastic() {
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
    (lent * condition.headroom(&pressure.figures()) * 1000.0) as u32
}

/// The multiplier of the client's plan for a rule: 1 unless plans multiply it, and at most what its state has room for.
fn client_plan_factor(identifier: &Identifier, rule: &Rule, client: &ClientIdentity) -> u32 {
    if !rule.plans {
        return 1;
    }
    identifier
        .settings()
        .plan
        .plan_factor(client.plan)
        .clamp(1, rule.limit.max_plan_factor().max(1))
}
