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
