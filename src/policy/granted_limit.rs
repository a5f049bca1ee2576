//! Finds the limits that operators name.

use std::collections::HashSet;
use std::sync::Arc;

use super::grant_mistake::GrantMistake;
use super::settings::Ruleset;
use crate::base::suggest::{list_words, nearest_word};
use crate::limit::Rule;

impl Ruleset {
    /// The limit that an operator names as grants name it, or by its name alone, and its rules. None if there is no such
    /// limit.
    pub(super) fn find_limit(&self, text: &str) -> Result<(String, Vec<&Arc<Rule>>), GrantMistake> {
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

    /// The rules of the limit that grants name so; none if there is no such limit. A name alone is not enough: after an
    /// edit it could be that of another limit.
    pub(super) fn find_granted_limit(&self, limit: &str) -> Result<Vec<&Arc<Rule>>, GrantMistake> {
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

    pub(super) fn unknown_limit(&self, limit: &str) -> GrantMistake {
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
