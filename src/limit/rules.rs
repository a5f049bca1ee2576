//! The rules of one route, references to them, and the header field that most of its responses have in common.

use std::ops::Deref;
use std::sync::Arc;

use super::Rule;
use super::header_texts::UnclonedCell;

/// The rules of one route, in the order of findings.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Box<[Arc<Rule>]>,
    /// The value of `RateLimit-Policy` for clients whose plans multiply nothing: the first window of each disclosed
    /// limit.
    pub usual_policy_field: UnclonedCell<Box<str>>,
}

/// Refers to a rule among the rules of a request, or to an override of that rule for the key of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleRef {
    /// The index of the rule among the rules of the request.
    pub index: u16,
    /// The number of the override that holds, as in [`Rule::override_number`]; 0 if none does.
    pub override_number: u16,
}

impl RuleRef {
    /// The rule with the limit that holds for the key. `rules` must be those that the reference was made for.
    #[inline]
    pub fn resolve(self, rules: &[Arc<Rule>]) -> &Arc<Rule> {
        let rule = self.base(rules);
        match self.override_number {
            0 => rule,
            number => rule.override_rule(number),
        }
    }

    /// The rule itself, also if an override holds. It has the same name, key and filter as the rule of
    /// [`RuleRef::resolve`], and is cheaper to look up.
    #[inline]
    pub fn base(self, rules: &[Arc<Rule>]) -> &Arc<Rule> {
        &rules[usize::from(self.index)]
    }
}

impl Deref for Rules {
    type Target = [Arc<Rule>];

    #[inline]
    fn deref(&self) -> &[Arc<Rule>] {
        &self.rules
    }
}

impl FromIterator<Arc<Rule>> for Rules {
    fn from_iter<I: IntoIterator<Item = Arc<Rule>>>(rules: I) -> Rules {
        Rules {
            rules: rules.into_iter().collect(),
            usual_policy_field: UnclonedCell::default(),
        }
    }
}
