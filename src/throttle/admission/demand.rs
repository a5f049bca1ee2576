//! [`RequestKeys`], the keys by which a request's limits count it, and [`Demand`], what the request takes of each
//! limit. The keys of a client stay the same from request to request, so a connection keeps them. Nothing here decides.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::counters::{Admission, OpenCounter, RuleCounter};
use super::request::AdmissionRequest;
use super::verdict::{RuleFinding, Verdict};
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::pressure::Pressure;
use crate::limit::{
    Concurrency, Fingerprint, Identity, IdentitySet, LimitFinding, Rule, RuleLimit, RuleRef, Scale,
};
use crate::store::permits::{PermitKey, PermitRequest};
use crate::store::{CellPlaces, LimitItem, LimitSlot, ParentNetwork};

/// The keys by which a request is counted, one for each rule that applies. They depend only on the client and on the
/// rules.
#[derive(Debug, Default)]
pub(crate) struct RequestKeys {
    /// The rules with a limit on a rate.
    pub(super) rate_rules: SmallVec<[KeyedRule<LimitSlot>; 4]>,
    /// Where the store keeps the counts of `rate_rules`, one place for each.
    pub(crate) cell_places: CellPlaces,
    /// The rules with a limit on open requests.
    open_rules: SmallVec<[KeyedRule<OpenCounter>; 2]>,
}

/// A rule with the key by which it counts the request, and its counters `C`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedRule<C> {
    pub(super) rule: RuleRef,
    pub(super) counters: C,
    pub(super) key: Fingerprint,
    /// The multiplier of the client's plan, at least 1.
    pub(super) plan_factor: u32,
    /// Whether the networks around the address are counted too.
    pub(super) counts_networks: bool,
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

/// A key whose permits gateways share, for a look at what other gateways hold.
pub(crate) struct SharedPermitKey {
    /// The index among the findings of limits on open requests.
    pub(crate) index: usize,
    pub(crate) key: PermitKey,
    limit: Concurrency,
    plan_factor: u32,
    pub(crate) is_shadow: bool,
}

impl SharedPermitKey {
    /// The finding of one more request while `open_count` requests are open at all gateways.
    pub(crate) fn assess(&self, open_count: u32) -> LimitFinding {
        self.limit.assess(open_count, self.plan_factor)
    }
}

impl Admission {
    /// Collects the keys by which a request is counted, of all rules that apply to its client. They are written to
    /// `keys`, which must be empty, because a returned value would be copied.
    pub(crate) fn find_keys(&self, request: &AdmissionRequest<'_>, keys: &mut RequestKeys) {
        for (index, rule) in request.rules.iter().enumerate() {
            // A client must not evade the limit by an unclear address.
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
            let Some(rule_ref) = request.identifier.rule_ref(index as u16, rule, key) else {
                // An override makes the key unlimited.
                continue;
            };
            let rule = rule_ref.resolve(request.rules);
            // Without a network's count, a client could change its address for each request.
            // The limit of a single key must not count against its neighbours, whose limit is another.
            // Credits belong to the keys to which they were added.
            let counts_networks = rule_ref.override_number == 0
                && identities == IdentitySet::from_iter([Identity::Ip])
                && !rule.limit.is_credits();
            let plan_factor = client_plan_factor(request.identifier, rule, request.client);
            match (&rule.limit, self.counter(rule)) {
                (RuleLimit::Rate(limit), Some(RuleCounter::Rate(registered, _))) => {
                    let slot = registered.slot();
                    if let Some(place) = self.store.cell_place(limit, slot, key, plan_factor) {
                        // The count is loaded while the next key is hashed.
                        self.store.prefetch(&place);
                        keys.cell_places.push(place);
                    }
                    keys.rate_rules.push(KeyedRule {
                        rule: rule_ref,
                        counters: slot,
                        key,
                        plan_factor,
                        counts_networks,
                    });
                }
                (RuleLimit::Open(_), Some(RuleCounter::Open(counter))) => {
                    keys.open_rules.push(KeyedRule {
                        rule: rule_ref,
                        counters: *counter,
                        key,
                        plan_factor,
                        counts_networks,
                    })
                }
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
            let rule = keyed_rule.rule.resolve(request.rules);
            let Some(limit) = rule.limit.rate() else {
                continue;
            };
            self.has_reservations |= limit.reserves;
            self.items.push(LimitItem {
                limit,
                slot: keyed_rule.counters,
                key: keyed_rule.key,
                cost: units_at_admission(request, rule, usize::from(keyed_rule.rule.index)),
                scale: Scale {
                    plan_factor: keyed_rule.plan_factor,
                    lent: lent_thousandths(rule, request.pressure),
                },
                is_shadow: rule.shadow,
                parents: parents(keyed_rule.counts_networks),
            });
        }
        for keyed_rule in &self.keys.open_rules {
            let rule = keyed_rule.rule.resolve(request.rules);
            let Some(limit) = rule.limit.open() else {
                continue;
            };
            self.permit_requests.push(PermitRequest {
                limit,
                scope: keyed_rule.counters.scope,
                key: keyed_rule.key,
                plan_factor: keyed_rule.plan_factor,
                is_shadow: rule.shadow,
                parents: parents(keyed_rule.counts_networks),
                shared: keyed_rule.counters.shared,
            });
        }
    }

    /// Whether gateways share some of the permits.
    pub(crate) fn shares_permits(&self) -> bool {
        let mut requests = self.permit_requests.iter();
        requests.any(|request| request.shared.is_some())
    }

    /// The keys whose permits gateways share, without networks around them.
    pub(crate) fn shared_permit_keys(&self) -> SmallVec<[SharedPermitKey; 2]> {
        let requests = self.permit_requests.iter().enumerate();
        let shared = requests.filter(|(_, request)| request.shared.is_some());
        let keys = shared.map(|(index, request)| SharedPermitKey {
            index,
            key: request.permit_key(),
            limit: *request.limit,
            plan_factor: request.plan_factor,
            is_shadow: request.is_shadow,
        });
        keys.collect()
    }

    /// Each item with its rule.
    #[inline]
    pub(crate) fn items_with_rules(&self) -> impl Iterator<Item = (&LimitItem<'a>, RuleRef)> {
        let rules = self.keys.rate_rules.iter();
        self.items
            .iter()
            .zip(rules.map(|keyed_rule| keyed_rule.rule))
    }

    /// Adds the store's findings of the items to a verdict, and sets whether it admits. [`Verdict::choose_decider`] comes
    /// later.
    #[inline]
    pub(crate) fn add_findings(
        &self,
        findings: &[LimitFinding],
        is_admitted: bool,
        verdict: &mut Verdict,
    ) {
        verdict.is_admitted = is_admitted;
        for ((item, rule), finding) in self.items_with_rules().zip(findings) {
            verdict.findings.push(RuleFinding {
                rule,
                key: item.key,
                finding: *finding,
            });
        }
    }

    /// The findings of the permit requests, each with its rule and key.
    pub(crate) fn open_findings<'r>(
        &'r self,
        findings: &'r [LimitFinding],
    ) -> impl Iterator<Item = RuleFinding> + 'r {
        let keyed_findings = self.keys.open_rules.iter().zip(findings);
        keyed_findings.map(|(keyed_rule, finding)| RuleFinding {
            rule: keyed_rule.rule,
            key: keyed_rule.key,
            finding: *finding,
        })
    }

    /// Adds [`Demand::open_findings`] to a verdict, in the order of the rules.
    pub(crate) fn add_open_findings(&self, verdict: &mut Verdict, findings: &[LimitFinding]) {
        verdict.findings.extend(self.open_findings(findings));
        verdict
            .findings
            .sort_by_key(|rule_finding| rule_finding.rule.index);
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
    let lent_share = pressure.lending_factor().get() - 1.0;
    if lent_share <= 0.0 {
        return 0;
    }
    // The cast saturates.
    (lent_share * condition.headroom(&pressure.figures()) * 1000.0) as u32
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
