//! Hashes the keys that have overrides, and finds the override of a key: another limit than that of its rule, or no limit.

use std::sync::Arc;

use super::{ClientIdentity, Identifier};
use crate::identity::key::Domain;
use crate::identity::override_table::{OverrideCache, OverrideTable};
use crate::limit::{Fingerprint, KeyLimit, Rule, RuleRef};

impl Identifier {
    /// Adds the overrides of these rules to the identifier. `cache` must be that of the same rules. Hashing many keys takes
    /// long, unless the cache has their table.
    pub fn with_overrides(self, rules: &[Arc<Rule>], cache: &OverrideCache) -> Identifier {
        if rules.iter().all(|rule| rule.overrides.is_none()) {
            return self;
        }
        let secret_mark = self.keyer.fingerprint(Domain::Everyone, &[]);
        let overrides = cache.get_or_build(secret_mark, || self.build_override_table(rules));
        Identifier { overrides, ..self }
    }

    /// Adds the keys that have grants, which were hashed under the identifier's secret.
    pub fn with_grants(self, grants: &Arc<OverrideTable>) -> Identifier {
        Identifier {
            grants: grants.clone(),
            ..self
        }
    }

    /// Hashes the keys of all overrides under the identifier's secret.
    fn build_override_table(&self, rules: &[Arc<Rule>]) -> OverrideTable {
        let mut table = OverrideTable::default();
        for rule in rules {
            let Some(overrides) = &rule.overrides else {
                continue;
            };
            let set = &overrides.set;
            // The rules of one limit share a set, which is added once.
            if table.has_keys_of(set) {
                continue;
            }
            for (text, limit) in &set.keys {
                // Every key parses here: a policy with one that does not is refused when it is loaded.
                let client = self.parse_key(text, &rule.key).ok();
                let key = client.and_then(|client| self.key(&client, &rule.key));
                if let Some(key) = key {
                    table.insert(set.index, key, *limit);
                }
            }
        }
        table
    }

    /// Refers to the limit that holds for a key: that of `rule`, whose index is `rule_index`, an override or a grant. `None`
    /// if an override makes the key unlimited.
    pub fn rule_ref(&self, rule_index: u16, rule: &Rule, key: Fingerprint) -> Option<RuleRef> {
        let overrides = rule.overrides.as_ref();
        let key_limit = overrides.and_then(|overrides| {
            let granted_set = overrides.granted_set;
            let granted = granted_set.and_then(|set_index| self.grants.find(set_index, key));
            granted.or_else(|| self.overrides.find(overrides.set.index, key))
        });
        let override_number = match key_limit {
            // The rule's own limit.
            None => 0,
            Some(KeyLimit::Override(number)) => number,
            Some(KeyLimit::Unlimited) => return None,
        };
        Some(RuleRef {
            index: rule_index,
            override_number,
        })
    }

    /// Whether an override makes the client's key unlimited.
    pub fn is_unlimited(&self, client: &ClientIdentity, rule: &Rule) -> bool {
        let key = self.key(client, &rule.key);
        key.is_some_and(|key| self.rule_ref(0, rule, key).is_none())
    }
}
