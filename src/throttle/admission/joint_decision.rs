//! Decides about the parts of one request together: each part has a client and limits of its own, and either all parts take
//! their units or none does. Envoy's rate limit service asks so, with a descriptor for each part.
//!
//! Two parts that count in one counter take the units of both from it. Limits on open requests and on costs of responses
//! are left out, because nothing tells when such a request ends. The parts that take no units are only looked at.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::counters::{Admission, RuleCounter, SharedConnection, SharedCounter};
use super::demand::RequestKeys;
use super::request::AdmissionRequest;
use super::verdict::{RuleFinding, Verdict};
use crate::base::clock::Nanos;
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::{Fingerprint, LimitFinding, LimitStanding, Rate, Rule, RuleRef, Rules, Scale};
use crate::store::shared::pending_call::FirstStep;
use crate::store::shared::shared_item::{SharedItem, SharedItems};
use crate::store::{LimitItem, LimitSlot, ParentNetwork, Taking};

/// Maximum number of counters of one request, those of networks included, because calls to shared stores number them with
/// eight bits.
pub const MAX_JOINT_COUNTERS: usize = 250;

/// Maximum number of units that are counted for one key. No rate has so many, so they are refused.
const MAX_UNITS: u32 = Rate::MAX_QUOTA + 1;

/// One part of a request.
#[derive(Clone, Copy, Debug)]
pub struct JointPart<'a> {
    /// The limits of the part.
    pub rules: &'a [Arc<Rule>],
    /// The client that they count.
    pub client: &'a ClientIdentity,
    /// The units that the part takes of each limit. A part with 0 is refused only while a limit has no unit of its rate left;
    /// what a soft limit adds is for units that are reported later.
    pub units: u32,
}

/// Why the parts of a request cannot be decided together. Nothing is counted then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JointError {
    /// They have more than [`MAX_JOINT_COUNTERS`] counters.
    TooManyCounters,
    /// A shared store has the counts, and two keys of one limit are in one network with a budget.
    SharedNetwork,
}

/// The verdict about all parts of a request.
#[derive(Debug, Default)]
pub struct JointVerdict {
    /// The limits of all parts, each of them once.
    pub rules: Rules,
    /// What all counters say. Its findings refer to `rules`.
    pub verdict: Verdict,
    /// For each part, the indexes of its findings in `verdict`. Parts that share a counter share the finding.
    pub findings_by_part: Vec<SmallVec<[usize; 4]>>,
}

/// A counter of which a request takes units.
struct Counter {
    rule: RuleRef,
    slot: LimitSlot,
    key: Fingerprint,
    plan_factor: u32,
    units: u32,
    parents: SmallVec<[ParentNetwork; 3]>,
}

/// The counters of a request, those that are only looked at apart from the others.
#[derive(Default)]
struct JointDemand {
    rules: Vec<Arc<Rule>>,
    taken: Vec<Counter>,
    looked_at: Vec<Counter>,
    /// For each part, its counters: whether they are taken, and the index among those of their kind.
    by_part: Vec<SmallVec<[(bool, usize); 4]>>,
}

/// When a part of the decision begins, and how long it may wait for a shared store. Looking at some counters and taking of
/// others have one budget.
#[derive(Clone, Copy)]
struct DecisionTime {
    now: Nanos,
    budget: Duration,
}

impl DecisionTime {
    /// The time `now`, with what is left of the budget then.
    fn after(self, now: Nanos) -> DecisionTime {
        let elapsed = Duration::from(now.since(self.now));
        DecisionTime {
            now,
            budget: self.budget.saturating_sub(elapsed),
        }
    }
}

/// What the counters of one kind say.
#[derive(Default)]
struct CounterFindings {
    findings: SmallVec<[LimitFinding; 4]>,
    is_admitted: bool,
    is_alone: bool,
}

impl Admission {
    /// Decides about all parts of a request.
    ///
    /// Waits for a shared store as [`Admission::decide`] does, and no longer, even if it must ask twice.
    ///
    /// # Errors
    ///
    /// See [`JointError`].
    pub async fn decide_jointly(
        &self,
        identifier: &Identifier,
        parts: &[JointPart<'_>],
        now: Nanos,
    ) -> Result<JointVerdict, JointError> {
        let demand = self.joint_demand(identifier, parts, now)?;
        let shared = self.shared.as_ref();
        let budget = shared.map_or(Duration::ZERO, |shared| shared.store.budget());
        let time = DecisionTime { now, budget };
        let mut looked_at = self
            .decide_counters(&demand.rules, &demand.looked_at, Taking::Nothing, time)
            .await;
        looked_at.refuse_above_rates(&demand.rules, &demand.looked_at);
        let time = match demand.looked_at.is_empty() {
            true => time,
            false => time.after(self.clock.now()),
        };
        // A part that only looks refuses the others too. Shadows take their units as they do where another limit refuses.
        let taking = match looked_at.is_admitted {
            true => Taking::All,
            false => Taking::Shadows,
        };
        let taken = self
            .decide_counters(&demand.rules, &demand.taken, taking, time)
            .await;
        Ok(demand.conclude(&taken, &looked_at))
    }

    /// Collects the counters of all parts.
    fn joint_demand(
        &self,
        identifier: &Identifier,
        parts: &[JointPart<'_>],
        now: Nanos,
    ) -> Result<JointDemand, JointError> {
        let mut demand = JointDemand::default();
        let mut counter_count = 0;
        for part in parts {
            let request = AdmissionRequest {
                rules: part.rules,
                client: part.client,
                identifier,
                now,
                pressure: None,
                reserved_units: &[],
            };
            let mut keys = RequestKeys::default();
            self.find_keys(&request, &mut keys);
            let parents = identifier.parent_networks(part.client);
            let mut counters = SmallVec::new();
            for keyed in &keys.rate_rules {
                let rule = keyed.rule.base(part.rules);
                if rule.count.is_settled_later() {
                    continue;
                }
                let counter = Counter {
                    rule: RuleRef {
                        // Each rule has a counter, so there are too many of these first.
                        index: demand.index_of(rule).ok_or(JointError::TooManyCounters)?,
                        override_number: keyed.rule.override_number,
                    },
                    slot: keyed.counters,
                    key: keyed.key,
                    plan_factor: keyed.plan_factor,
                    // A look asks whether one unit is left.
                    units: part.units.clamp(1, MAX_UNITS),
                    parents: match keyed.counts_networks {
                        true => parents.clone(),
                        false => SmallVec::new(),
                    },
                };
                let (place, is_new_with) = demand.add(counter, part.units > 0);
                counter_count += is_new_with;
                counters.push(place);
            }
            demand.by_part.push(counters);
            if counter_count > MAX_JOINT_COUNTERS {
                return Err(JointError::TooManyCounters);
            }
        }
        // A shared store would count the units of one part in the network that several have.
        if self.shared.is_some() && demand.shares_networks() {
            return Err(JointError::SharedNetwork);
        }
        Ok(demand)
    }

    /// Decides about counters of one kind. Counters that do not exist admit.
    async fn decide_counters(
        &self,
        rules: &[Arc<Rule>],
        counters: &[Counter],
        taking: Taking,
        time: DecisionTime,
    ) -> CounterFindings {
        let DecisionTime { now, budget } = time;
        if counters.is_empty() {
            return CounterFindings {
                is_admitted: true,
                ..CounterFindings::default()
            };
        }
        let Some(SharedConnection {
            store,
            connection_index,
        }) = &self.shared
        else {
            return self.decide_counters_in_memory(rules, counters, taking, now);
        };
        let items: SharedItems = counters
            .iter()
            .filter_map(|counter| self.shared_item(rules, counter))
            .collect();
        let decision = match store.begin_decision(*connection_index, items, taking, now) {
            FirstStep::Decided(decision) => decision,
            FirstStep::AskStore(call) => {
                let deciding = store.decide(*connection_index, *call, budget);
                deciding.await
            }
        };
        CounterFindings {
            findings: decision.findings,
            is_admitted: decision.is_admitted,
            is_alone: decision.is_alone,
        }
    }

    fn decide_counters_in_memory(
        &self,
        rules: &[Arc<Rule>],
        counters: &[Counter],
        taking: Taking,
        now: Nanos,
    ) -> CounterFindings {
        let items: Vec<LimitItem<'_>> = counters
            .iter()
            .filter_map(|counter| {
                let rule = counter.rule.resolve(rules);
                Some(LimitItem {
                    limit: rule.limit.rate()?,
                    slot: counter.slot,
                    key: counter.key,
                    cost: counter.units,
                    scale: Scale::plan(counter.plan_factor),
                    is_shadow: rule.shadow,
                    parents: &counter.parents,
                })
            })
            .collect();
        let mut findings = SmallVec::new();
        let is_admitted = match taking {
            Taking::All => self.store.take(&items, now, &mut findings),
            Taking::Nothing => self.store.peek(&items, now, &mut findings),
            Taking::Shadows => {
                self.store.take_for_shadows(&items, now, &mut findings);
                false
            }
        };
        CounterFindings {
            findings,
            is_admitted,
            is_alone: false,
        }
    }

    fn shared_item(&self, rules: &[Arc<Rule>], counter: &Counter) -> Option<SharedItem> {
        let rule = counter.rule.resolve(rules);
        let RuleCounter::Rate(_, Some(SharedCounter { limit, plan })) = self.counter(rule)? else {
            return None;
        };
        Some(SharedItem {
            plan: plan.clone(),
            limit: limit.clone(),
            slot: counter.slot,
            key: counter.key,
            cost: counter.units,
            scale: Scale::plan(counter.plan_factor),
            is_shadow: rule.shadow,
            parents: counter.parents.clone(),
        })
    }
}

impl CounterFindings {
    /// Refuses where a limit has no unit of its rate left, and would admit one more only because it is soft. Refuses also where
    /// a gateway alone admits nothing, which a decision that takes no units does not say.
    fn refuse_above_rates(&mut self, rules: &[Arc<Rule>], counters: &[Counter]) {
        for (counter, finding) in counters.iter().zip(&mut self.findings) {
            if finding.standing == LimitStanding::Over {
                finding.standing = LimitStanding::Refused;
                finding.wait = finding.reset;
            }
            self.is_admitted &= finding.standing.admits() || counter.rule.base(rules).shadow;
        }
    }
}

impl JointDemand {
    /// The index of a rule among those of the request, to which it is added if it is new. `None` if there are too many.
    fn index_of(&mut self, rule: &Arc<Rule>) -> Option<u16> {
        let mut rules = self.rules.iter();
        let position = rules.position(|other| other.index == rule.index);
        let position = position.unwrap_or_else(|| {
            self.rules.push(rule.clone());
            self.rules.len() - 1
        });
        u16::try_from(position).ok()
    }

    /// Adds a counter, or its units to those of an equal one. Returns its place, and by how much the number of counters
    /// grows.
    fn add(&mut self, counter: Counter, is_taken: bool) -> ((bool, usize), usize) {
        let counters = match is_taken {
            true => &mut self.taken,
            false => &mut self.looked_at,
        };
        let is_same = |other: &Counter| {
            (other.rule, other.slot, other.key) == (counter.rule, counter.slot, counter.key)
        };
        if let Some(position) = counters.iter().position(is_same) {
            if let Some(other) = counters.get_mut(position) {
                // A store keeps one count of the key, whatever plans the parts name.
                other.plan_factor = other.plan_factor.min(counter.plan_factor);
                if is_taken {
                    other.units = other.units.saturating_add(counter.units).min(MAX_UNITS);
                }
            }
            return ((is_taken, position), 0);
        }
        let counter_count = 1 + counter.parents.len();
        counters.push(counter);
        ((is_taken, counters.len() - 1), counter_count)
    }

    /// Whether two keys of one limit are in one network that has a budget.
    fn shares_networks(&self) -> bool {
        let mut networks = HashSet::new();
        [&self.taken, &self.looked_at].into_iter().any(|counters| {
            networks.clear();
            let mut parents = counters.iter().flat_map(|counter| {
                let parents = counter.parents.iter();
                parents.map(|parent| (counter.rule.index, parent.key))
            });
            parents.any(|network| !networks.insert(network))
        })
    }

    /// The verdict, with the findings of the counters that are taken first.
    fn conclude(self, taken: &CounterFindings, looked_at: &CounterFindings) -> JointVerdict {
        let mut verdict = Verdict {
            is_admitted: taken.is_admitted && looked_at.is_admitted,
            is_without_store: taken.is_alone || looked_at.is_alone,
            ..Verdict::default()
        };
        for (counters, found) in [(&self.taken, taken), (&self.looked_at, looked_at)] {
            let findings = counters.iter().zip(&found.findings);
            verdict
                .findings
                .extend(findings.map(|(counter, finding)| RuleFinding {
                    rule: counter.rule,
                    key: counter.key,
                    finding: *finding,
                }));
        }
        verdict.choose_decider(&self.rules);
        let taken_count = self.taken.len();
        let index = |(is_taken, position): &(bool, usize)| match is_taken {
            true => *position,
            false => taken_count + *position,
        };
        let by_part = self.by_part.iter();
        JointVerdict {
            findings_by_part: by_part
                .map(|places| places.iter().map(index).collect())
                .collect(),
            rules: self.rules.into_iter().collect(),
            verdict,
        }
    }
}

impl JointVerdict {
    /// The verdict about one part alone, by its index. It is refused only if a limit of its own refuses it.
    pub fn of_part(&self, part_index: usize) -> Verdict {
        let indexes = self.findings_by_part.get(part_index);
        let findings = indexes
            .into_iter()
            .flatten()
            .filter_map(|index| self.verdict.findings.get(*index));
        let mut verdict = Verdict {
            findings: findings.copied().collect(),
            is_without_store: self.verdict.is_without_store,
            ..Verdict::default()
        };
        let is_refused = !verdict.refusing_rules(&self.rules).is_empty();
        verdict.is_admitted = !is_refused;
        verdict.choose_decider(&self.rules);
        verdict
    }

    /// The index of the first part with the finding that decides; `None` if no limit applies.
    pub fn deciding_part(&self) -> Option<usize> {
        let deciding = self.verdict.deciding?;
        let mut parts = self.findings_by_part.iter();
        parts.position(|indexes| indexes.contains(&deciding))
    }

    /// The verdict with one finding for each limit, the one that decides among those of several keys. Response fields have
    /// room for one.
    pub fn one_finding_each(&self) -> Verdict {
        let mut verdict = Verdict {
            is_admitted: self.verdict.is_admitted,
            is_without_store: self.verdict.is_without_store,
            ..Verdict::default()
        };
        for index in 0..self.rules.len() {
            let mut of_rule = Verdict::default();
            let findings = self.verdict.findings.iter();
            of_rule.findings = findings
                .filter(|keyed| usize::from(keyed.rule.index) == index)
                .copied()
                .collect();
            of_rule.choose_decider(&self.rules);
            let finding = of_rule.findings.get(of_rule.deciding.unwrap_or(0)).copied();
            verdict.findings.extend(finding);
        }
        verdict.choose_decider(&self.rules);
        verdict
    }
}
