//! [`Granting`]: the rules of a ruleset while grants are added to them. The key of a grant gets a rule of its own, as with
//! an override of a file: a copy of the rule that holds for the key, with more units. Its counts are those of the rule.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::grant_mistake::{GrantMistake, MAX_GRANTED_KEYS};
use super::settings::{Ruleset, UnroutedLimits};
use crate::identity::key_text::KeyError;
use crate::identity::override_table::OverrideTable;
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::{
    AppliedGrant, Fingerprint, Identity, KeyLimit, KeySpec, LimitGrant, OverrideSet, Overrides,
    Rule, Rules,
};
use crate::operator::{EntryKind, GrantTerms};
use crate::route::{OwnResponseRules, Route, RouteAction, UsageList};

/// The most copies of rules that grants make. Grants of one limit with the same terms share one.
const MAX_GRANTED_RULES: usize = 20_000;

/// A rule while grants are added to it.
struct GrantedRule {
    /// The copies for keys of overrides and grants.
    rules: Vec<Arc<Rule>>,
    /// The numbers of the copies for grants: by the number of the override that holds without the grant.
    numbers: HashMap<(u16, AppliedGrant), u16>,
}

/// What a grant adds to one rule.
struct Addition<'a> {
    rule: &'a Arc<Rule>,
    key: Fingerprint,
    /// The number of the override that holds without the grant.
    override_number: u16,
    /// The copy of the rule; `None` if another grant has made it.
    copy: Option<Rule>,
}

/// The rules of a ruleset while grants are added to them.
pub(super) struct Granting<'a> {
    ruleset: &'a Ruleset,
    /// Finds the overrides of files, but no grants.
    identifier: &'a Identifier,
    /// By [`Rule::index`].
    granted_rules: BTreeMap<usize, GrantedRule>,
    keys: OverrideTable,
    rule_count: usize,
    key_count: usize,
}
impl<'a> Granting<'a> {
    pub(super) fn new(ruleset: &'a Ruleset, identifier: &'a Identifier) -> Granting<'a> {
        Granting {
            ruleset,
            identifier,
            granted_rules: BTreeMap::new(),
            keys: OverrideTable::default(),
            rule_count: 0,
            key_count: 0,
        }
    }

    /// Adds a grant or an account to all rules of its limit, or to none.
    pub(super) fn add(
        &mut self,
        kind: EntryKind,
        terms: &GrantTerms,
        key: &str,
        fingerprint: Option<Fingerprint>,
    ) -> Result<(), GrantMistake> {
        let rules = self.ruleset.find_granted_limit(&terms.limit)?;
        if rules.is_empty() {
            return Err(self.ruleset.unknown_limit(&terms.limit));
        }
        let has_credits = rules.iter().all(|rule| rule.limit.is_credits());
        match (kind == EntryKind::Credit, has_credits) {
            (true, false) => return Err(GrantMistake::NoCredits(terms.limit.clone())),
            (false, true) => return Err(GrantMistake::OfCredits(terms.limit.clone())),
            (true, true) | (false, false) => {}
        }
        let grant = AppliedGrant {
            limit: terms.limit.as_str().into(),
            amount: LimitGrant {
                times: terms.times,
                add: terms.add,
            },
        };
        let mut additions = Vec::new();
        for rule in rules {
            let fingerprint = match fingerprint {
                Some(fingerprint) => Some(fingerprint),
                None => {
                    let client = parse_key(key, rule, self.identifier)?;
                    self.identifier.key(&client, &rule.key)
                }
            };
            let fingerprint = fingerprint.ok_or(KeyError::MissingEquals(key.to_owned()))?;
            additions.extend(self.addition(rule, fingerprint, &grant)?);
        }
        if additions.is_empty() {
            return Err(GrantMistake::Unlimited(key.to_owned()));
        }
        let copies = additions.iter().filter(|addition| addition.copy.is_some());
        if self.rule_count + copies.count() > MAX_GRANTED_RULES
            || self.key_count + additions.len() > MAX_GRANTED_KEYS
        {
            return Err(GrantMistake::Full);
        }
        for addition in additions {
            self.apply(addition, &grant);
        }
        Ok(())
    }

    /// What a grant adds to a rule; `None` if the key has no limit there.
    fn addition(
        &self,
        rule: &'a Arc<Rule>,
        key: Fingerprint,
        grant: &AppliedGrant,
    ) -> Result<Option<Addition<'a>>, GrantMistake> {
        let Some(held) = self.identifier.rule_ref(0, rule, key) else {
            return Ok(None);
        };
        let override_number = held.override_number;
        let granted_rule = self.granted_rules.get(&rule.index);
        let has_copy = granted_rule.is_some_and(|granted_rule| {
            let numbers = &granted_rule.numbers;
            numbers.contains_key(&(override_number, grant.clone()))
        });
        let copy = match has_copy {
            true => None,
            false => {
                let base = held.resolve(std::slice::from_ref(rule));
                let limit = base.limit.granted(grant.amount)?;
                let overrides = rule.overrides.as_ref();
                let count = match granted_rule {
                    Some(granted_rule) => granted_rule.rules.len(),
                    None => overrides.map_or(0, |overrides| overrides.rules.len()),
                };
                let number = u16::try_from(count + 1).map_err(|_| GrantMistake::Full)?;
                Some(Rule {
                    limit,
                    overrides: None,
                    override_number: number,
                    grant: Some(grant.clone()),
                    ..(**base).clone()
                })
            }
        };
        Ok(Some(Addition {
            rule,
            key,
            override_number,
            copy,
        }))
    }

    fn apply(&mut self, addition: Addition<'a>, grant: &AppliedGrant) {
        let Addition {
            rule,
            key,
            override_number,
            copy,
        } = addition;
        let granted_rule = self
            .granted_rules
            .entry(rule.index)
            .or_insert_with(|| GrantedRule {
                rules: match &rule.overrides {
                    Some(overrides) => overrides.rules.clone(),
                    None => Vec::new(),
                },
                numbers: HashMap::new(),
            });
        let number_key = (override_number, grant.clone());
        let number = match copy {
            Some(copy) => {
                let number = copy.override_number;
                granted_rule.rules.push(Arc::new(copy));
                granted_rule.numbers.insert(number_key, number);
                self.rule_count += 1;
                number
            }
            // Without a copy there is a number already.
            None => match granted_rule.numbers.get(&number_key) {
                Some(number) => *number,
                None => return,
            },
        };
        self.key_count += 1;
        self.keys
            .insert(rule.index, key, KeyLimit::Override(number));
    }

    /// The ruleset with the copies of rules.
    pub(super) fn finish(self) -> Ruleset {
        let no_overrides = Arc::new(OverrideSet {
            index: usize::MAX,
            keys: Vec::new(),
        });
        let mut rules = self.ruleset.rules.clone();
        for (index, granted) in self.granted_rules {
            let Some(rule) = rules.get_mut(index) else {
                continue;
            };
            let set = rule.overrides.as_ref().map(|overrides| &overrides.set);
            let overrides = Overrides {
                set: set.unwrap_or(&no_overrides).clone(),
                rules: granted.rules,
                granted_set: Some(index),
            };
            *rule = Arc::new(Rule {
                overrides: Some(Arc::new(overrides)),
                ..(**rule).clone()
            });
        }
        let routes = self.ruleset.routes.iter();
        let UnroutedLimits {
            rules: unrouted_rules,
            ..
        } = &self.ruleset.unrouted;
        Ruleset {
            routes: routes
                .map(|route| replace_in_route(route, &rules))
                .collect(),
            unrouted: UnroutedLimits {
                rules: replace(unrouted_rules, &rules),
                ..self.ruleset.unrouted.clone()
            },
            granted_keys: Arc::new(self.keys),
            rules,
            ..self.ruleset.clone()
        }
    }
}

/// Parses a key of a rule.
pub(super) fn parse_key(
    key: &str,
    rule: &Rule,
    identifier: &Identifier,
) -> Result<ClientIdentity, GrantMistake> {
    let spec: &KeySpec = &rule.key;
    let client = identifier.parse_key(key, spec)?;
    match client.plan.is_some() && !spec.has(Identity::Plan) {
        true => Err(GrantMistake::Plan(rule.name.to_string())),
        false => Ok(client),
    }
}

/// The rules of `all` with the indexes of these ones.
fn replace(rules: &[Arc<Rule>], all: &[Arc<Rule>]) -> Rules {
    let current = |rule: &Arc<Rule>| all.get(rule.index).unwrap_or(rule).clone();
    rules.iter().map(current).collect()
}

/// The route with the rules of `all`; the route itself if its rules are those already.
fn replace_in_route(route: &Arc<Route>, all: &[Arc<Rule>]) -> Arc<Route> {
    let is_current = |rule: &Arc<Rule>| {
        all.get(rule.index)
            .is_none_or(|current| Arc::ptr_eq(current, rule))
    };
    let listed_rules = match &route.action {
        RouteAction::Usage(list) => list.limits.as_slice(),
        _ => &[],
    };
    let own = &route.own_response_rules;
    if route.rules.iter().chain(own.all.iter()).all(is_current)
        && listed_rules.iter().all(|limit| is_current(&limit.rule))
    {
        return route.clone();
    }
    let action = match &route.action {
        RouteAction::Usage(list) => {
            let mut list = UsageList::clone(list);
            for limit in &mut list.limits {
                if let Some(current) = all.get(limit.rule.index) {
                    limit.rule = current.clone();
                }
            }
            RouteAction::Usage(Arc::new(list))
        }
        action => action.clone(),
    };
    Arc::new(Route {
        own_response_rules: OwnResponseRules {
            all: replace(&own.all, all),
            by_ip: replace(&own.by_ip, all),
            without: own
                .without
                .iter()
                .map(|rules| replace(rules, all))
                .collect(),
            for_preflights: replace(&own.for_preflights, all),
        },
        rules: replace(&route.rules, all),
        action,
        ..(**route).clone()
    })
}
