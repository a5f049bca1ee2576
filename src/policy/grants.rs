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
    AppliedGrant, Fingerprint, GrantError, Identity, KeyLimit, KeySpec, LimitGrant, OverrideSet,
    Overrides, Rule, Rules,
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
    #[error(
        "all grants together would raise more than {MAX_GRANTED_KEYS} keys of routes, or have too many different numbers; \
         revoke some, or grant a limit of single routes"
    )]
    Full,
    /// The order is wrong by itself.
    #[error(transparent)]
    Order(#[from] GrantOrderError),
}

/// A limit and a key that an operator names, in the form in which they always have the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantSubject {
    /// The limit: see [`Rule::granted_limit`]. The scope of one of the routes that count for themselves, too.
    pub limit: String,
    /// The key.
    pub key: String,
    /// The hash of the key, if the text does not lead to it.
    pub fingerprint: Option<Fingerprint>,
}

/// Why single grants do not hold, by their limits and keys.
pub type GrantObstacles = HashMap<(String, String), String>;

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
        let (limit, rules) = self.find_limit(limit)?;
        let Some(first_rule) = rules.first() else {
            return Err(self.unknown_limit(&limit));
        };
        let client = parse_key(key, first_rule, identifier)?;
        let spec = &first_rule.key;
        let text = identifier.format_key(&client, spec);
        let fingerprint = identifier.key(&client, spec);
        let reparsed = identifier.parse_key(&text, spec).ok();
        let is_readable =
            reparsed.is_some_and(|client| identifier.key(&client, spec) == fingerprint);
        Ok(GrantSubject {
            limit,
            key: text,
            fingerprint: fingerprint.filter(|_| !is_readable),
        })
    }

    /// Checks that a grant can hold beside these others, of which it replaces that of the same subject.
    ///
    /// # Errors
    ///
    /// See [`GrantMistake`].
    pub fn check_grant(
        &self,
        subject: &GrantSubject,
        amount: LimitGrant,
        mut others: Vec<ListedGrant>,
        identifier: &Identifier,
    ) -> Result<(), GrantMistake> {
        let terms = GrantTerms {
            limit: subject.limit.clone(),
            times: amount.times,
            add: amount.add,
        };
        others.retain(|ListedGrant { entry, terms, .. }| {
            (&terms.limit, &entry.key) != (&subject.limit, &subject.key)
        });
        let (mut granting, _) = self.granting(others, identifier);
        granting.add(&terms, &subject.key, subject.fingerprint)
    }

    /// The ruleset with these grants in force, and why single grants do not hold, by their limits and keys. `identifier` must
    /// be that of the ruleset without grants.
    pub fn with_grants(
        &self,
        grants: Vec<ListedGrant>,
        identifier: &Identifier,
    ) -> (Ruleset, GrantObstacles) {
        let (granting, obstacles) = self.granting(grants, identifier);
        (granting.finish(), obstacles)
    }

    /// The grants that can hold, and why others cannot.
    fn granting<'a>(
        &'a self,
        mut grants: Vec<ListedGrant>,
        identifier: &'a Identifier,
    ) -> (Granting<'a>, GrantObstacles) {
        // Of two grants of one key the later one counts.
        grants.sort_by_key(|grant| grant.entry.change());
        let mut granting = Granting::new(self, identifier);
        let mut obstacles = HashMap::new();
        for ListedGrant { entry, terms, .. } in grants {
            if let Err(mistake) = granting.add(&terms, &entry.key, entry.fingerprint()) {
                obstacles.insert((terms.limit, entry.key), mistake.to_string());
            }
        }
        (granting, obstacles)
    }

    /// The limit that an operator names as grants name it, or by its name alone, and its rules. None if there is no such
    /// limit.
    fn find_limit(&self, text: &str) -> Result<(String, Vec<&Arc<Rule>>), GrantMistake> {
        let rules = self.find_granted_limit(text)?;
        if !rules.is_empty() {
            return Ok((text.to_owned(), rules));
        }
        let rules = self.rules_of_one(text, |rule| rule.name.as_str() == text)?;
        let limit = rules
            .first()
            .map_or_else(|| text.to_owned(), |rule| rule.granted_limit());
        Ok((limit, rules))
    }

    /// The rules of the limit that grants name so; none if there is no such limit. A name alone is not enough: after an edit
    /// it could be that of another limit.
    fn find_granted_limit(&self, limit: &str) -> Result<Vec<&Arc<Rule>>, GrantMistake> {
        match limit.strip_prefix(Rule::EACH_ROUTE_PREFIX) {
            Some(name) => {
                let is_named = |rule: &Rule| rule.counts_each_route && rule.name.as_str() == name;
                self.rules_of_one(limit, is_named)
            }
            None => {
                let rules = self.rules.iter();
                Ok(rules.filter(|rule| rule.limit_scope() == limit).collect())
            }
        }
    }

    /// The rules that are chosen. They must be of one limit.
    fn rules_of_one(
        &self,
        text: &str,
        is_chosen: impl Fn(&Rule) -> bool,
    ) -> Result<Vec<&Arc<Rule>>, GrantMistake> {
        let rules = self.rules.iter().filter(|rule| is_chosen(rule));
        let rules: Vec<&Arc<Rule>> = rules.collect();
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

    /// Adds a grant to all rules of its limit, or to none.
    fn add(
        &mut self,
        terms: &GrantTerms,
        key: &str,
        fingerprint: Option<Fingerprint>,
    ) -> Result<(), GrantMistake> {
        let rules = self.ruleset.find_granted_limit(&terms.limit)?;
        if rules.is_empty() {
            return Err(self.ruleset.unknown_limit(&terms.limit));
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
