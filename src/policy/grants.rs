//! Applies grants to the limits of a ruleset. The key of a grant gets a rule of its own, as with an override of a file: a copy
//! of the rule that holds for the key, with more units. Its counts are those of the rule.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::settings::{Ruleset, UnroutedLimits};
use crate::base::suggest::{list_words, nearest_word};
use crate::identity::key_text::KeyError;
use crate::identity::override_table::OverrideTable;
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::{
    Fingerprint, GrantError, Identity, KeyLimit, KeySpec, LimitGrant, OverrideSet, Overrides, Rule,
    Rules,
};
use crate::operator::{GrantOrderError, GrantTerms, ListedGrant};
use crate::route::{OwnResponseRules, Route, RouteAction, UsageList};

/// The most copies of rules that grants make. Grants of one limit with the same terms share one.
const MAX_GRANTED_RULES: usize = 20_000;
/// The most keys of rules that have grants. A limit that counts each route for itself has a rule for each.
const MAX_GRANTED_KEYS: usize = 100_000;

/// Why a grant cannot hold, or is not ordered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantMistake {
    /// No policy has the limit.
    #[error("no limit is named `{0}`; {1}")]
    UnknownLimit(String, String),
    /// Several limits have the name.
    #[error("several limits are named `{0}`; write one of {1}")]
    AmbiguousLimit(String, String),
    /// The text is no key of the limit.
    #[error("{0}; write the key as `tollgate explain` shows it, for instance `user=alice`")]
    Key(#[from] KeyError),
    /// The key has a plan, by which the limit does not count.
    #[error("`plan` is no part of the key of `{0}`; remove it, the grant holds whatever the plan")]
    Plan(String),
    /// An override makes the key unlimited.
    #[error("`{0}` is unlimited by the file of `overrides`; there is nothing to grant")]
    Unlimited(String),
    /// The number would be too large.
    #[error(transparent)]
    Limit(#[from] GrantError),
    /// There are too many grants for the limits that they are of.
    #[error("the grants are about too many limits at once; revoke some")]
    Full,
    /// The order is wrong by itself.
    #[error(transparent)]
    Order(#[from] GrantOrderError),
}

/// A limit and a key that an operator names, in the form in which they always have the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantSubject {
    /// The limit: its scope, or its name if it counts each route for itself.
    pub limit: String,
    /// The key.
    pub key: String,
    /// The hash of the key, if the text does not lead to it.
    pub fingerprint: Option<Fingerprint>,
}

/// A rule while grants are added to it.
struct GrantedRule {
    /// The copies for keys of overrides and grants.
    rules: Vec<Arc<Rule>>,
    /// The numbers of the copies for grants: by the number of the override that holds without the grant.
    numbers: HashMap<(u16, LimitGrant), u16>,
}

/// The rules of a ruleset while grants are added to them.
struct Granting<'a> {
    ruleset: &'a Ruleset,
    /// Finds the overrides of files, but no grants.
    identifier: &'a Identifier,
    /// By [`Rule::index`].
    granted_rules: BTreeMap<usize, GrantedRule>,
    keys: OverrideTable,
    rule_count: usize,
    key_count: usize,
}

impl Ruleset {
    /// Reads the limit and the key of a grant. `identifier` must be that of the ruleset without grants.
    ///
    /// # Errors
    ///
    /// No limit or several limits have this name, or the text is no key of the limit.
    pub fn grant_subject(
        &self,
        limit: &str,
        key: &str,
        identifier: &Identifier,
    ) -> Result<GrantSubject, GrantMistake> {
        let (limit, key) = (limit.trim(), key.trim());
        let rules = self.find_limit(limit)?;
        let Some(first_rule) = rules.first() else {
            return Err(self.unknown_limit(limit));
        };
        let client = parse_key(key, first_rule, identifier)?;
        let spec = &first_rule.key;
        let text = identifier.format_key(&client, spec);
        let fingerprint = identifier.key(&client, spec);
        let reparsed = identifier.parse_key(&text, spec).ok();
        let is_readable =
            reparsed.is_some_and(|client| identifier.key(&client, spec) == fingerprint);
        let scope = first_rule.limit_scope();
        let has_one_scope = rules.iter().all(|rule| rule.limit_scope() == scope);
        Ok(GrantSubject {
            limit: match has_one_scope {
                true => scope.to_owned(),
                false => first_rule.name.to_string(),
            },
            key: text,
            fingerprint: fingerprint.filter(|_| !is_readable),
        })
    }

    /// Checks that a grant can hold beside no others.
    ///
    /// # Errors
    ///
    /// See [`GrantMistake`].
    pub fn check_grant(
        &self,
        subject: &GrantSubject,
        grant: LimitGrant,
        identifier: &Identifier,
    ) -> Result<(), GrantMistake> {
        let terms = GrantTerms {
            limit: subject.limit.clone(),
            times: grant.times,
            add: grant.add,
        };
        let mut granting = Granting::new(self, identifier);
        granting.add(&terms, &subject.key, subject.fingerprint)
    }

    /// The ruleset with these grants in force, and why single grants do not hold, by their limits and keys. `identifier` must
    /// be that of the ruleset without grants.
    pub fn with_grants(
        &self,
        mut grants: Vec<ListedGrant>,
        identifier: &Identifier,
    ) -> (Ruleset, HashMap<(String, String), String>) {
        // Of two grants of one key the later one counts.
        grants.sort_by_key(|grant| grant.entry.change());
        let mut granting = Granting::new(self, identifier);
        let mut obstacles = HashMap::new();
        for ListedGrant { entry, terms, .. } in grants {
            if let Err(mistake) = granting.add(&terms, &entry.key, entry.fingerprint()) {
                obstacles.insert((terms.limit, entry.key), mistake.to_string());
            }
        }
        (granting.finish(), obstacles)
    }

    /// The rules of a limit: of the scope `text`, or else of the name `text`. None if there is no such limit.
    fn find_limit(&self, text: &str) -> Result<Vec<&Arc<Rule>>, GrantMistake> {
        let rules_with = |has_text: &dyn Fn(&Rule) -> bool| -> Vec<&Arc<Rule>> {
            self.rules.iter().filter(|rule| has_text(rule)).collect()
        };
        let rules = rules_with(&|rule| rule.limit_scope() == text);
        if !rules.is_empty() {
            return Ok(rules);
        }
        let rules = rules_with(&|rule| rule.name.as_str() == text);
        let origins: HashSet<&str> = rules.iter().map(|rule| &*rule.origin).collect();
        if origins.len() > 1 {
            let mut scopes: Vec<&str> = rules.iter().map(|rule| rule.limit_scope()).collect();
            scopes.sort_unstable();
            scopes.dedup();
            let scopes = list_words(scopes);
            return Err(GrantMistake::AmbiguousLimit(text.to_owned(), scopes));
        }
        Ok(rules)
    }

    fn unknown_limit(&self, limit: &str) -> GrantMistake {
        let names: HashSet<&str> = self.rules.iter().map(|rule| rule.name.as_str()).collect();
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        let help = match nearest_word(limit, names.iter().copied()) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None if names.is_empty() => "the policies have no limits".to_owned(),
            None => "`tollgate check` lists the limits".to_owned(),
        };
        GrantMistake::UnknownLimit(limit.to_owned(), help)
    }
}

impl<'a> Granting<'a> {
    fn new(ruleset: &'a Ruleset, identifier: &'a Identifier) -> Granting<'a> {
        Granting {
            ruleset,
            identifier,
            granted_rules: BTreeMap::new(),
            keys: OverrideTable::default(),
            rule_count: 0,
            key_count: 0,
        }
    }

    /// Adds a grant to all rules of its limit.
    fn add(
        &mut self,
        terms: &GrantTerms,
        key: &str,
        fingerprint: Option<Fingerprint>,
    ) -> Result<(), GrantMistake> {
        let rules = self.ruleset.find_limit(&terms.limit)?;
        if rules.is_empty() {
            return Err(self.ruleset.unknown_limit(&terms.limit));
        }
        let grant = LimitGrant {
            times: terms.times,
            add: terms.add,
        };
        let mut outcome = Err(GrantMistake::Unlimited(key.to_owned()));
        for rule in rules {
            let fingerprint = match fingerprint {
                Some(fingerprint) => Some(fingerprint),
                None => {
                    let client = parse_key(key, rule, self.identifier)?;
                    self.identifier.key(&client, &rule.key)
                }
            };
            let fingerprint = fingerprint.ok_or(KeyError::MissingEquals(key.to_owned()))?;
            if self.add_to_rule(rule, fingerprint, grant)? {
                outcome = Ok(());
            }
        }
        outcome
    }

    /// Adds a grant to a rule. Returns whether the key has a limit there.
    fn add_to_rule(
        &mut self,
        rule: &Arc<Rule>,
        key: Fingerprint,
        grant: LimitGrant,
    ) -> Result<bool, GrantMistake> {
        let Some(held) = self.identifier.rule_ref(0, rule, key) else {
            return Ok(false);
        };
        if self.key_count == MAX_GRANTED_KEYS {
            return Err(GrantMistake::Full);
        }
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
        let number = match granted_rule.numbers.get(&(held.override_number, grant)) {
            Some(number) => *number,
            None => {
                let base = held.resolve(std::slice::from_ref(rule));
                let limit = base.limit.granted(grant)?;
                let number = u16::try_from(granted_rule.rules.len() + 1).ok();
                let has_room = self.rule_count < MAX_GRANTED_RULES;
                let number = number.filter(|_| has_room).ok_or(GrantMistake::Full)?;
                granted_rule.rules.push(Arc::new(Rule {
                    limit,
                    overrides: None,
                    override_number: number,
                    grant: Some(grant),
                    ..(**base).clone()
                }));
                granted_rule
                    .numbers
                    .insert((held.override_number, grant), number);
                self.rule_count += 1;
                number
            }
        };
        self.key_count += 1;
        self.keys
            .insert(rule.index, key, KeyLimit::Override(number));
        Ok(true)
    }

    /// The ruleset with the copies of rules.
    fn finish(self) -> Ruleset {
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
fn parse_key(
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
