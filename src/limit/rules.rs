//! The limits that a request meets.

use std::ops::Deref;
use std::sync::Arc;

use super::Rule;
use super::texts::Once;

/// The limits of one route, in the order in which they are asked.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    each: Box<[Arc<Rule>]>,
    /// What is promised by all of them together, each by its first window, to clients whose plans multiply nothing.
    pub promised: Once<Box<str>>,
}

impl Deref for Rules {
    type Target = [Arc<Rule>];

    #[inline]
    fn deref(&self) -> &[Arc<Rule>] {
        &self.each
    }
}

impl FromIterator<Arc<Rule>> for Rules {
    fn from_iter<I: IntoIterator<Item = Arc<Rule>>>(rules: I) -> Rules {
        Rules {
            each: rules.into_iter().collect(),
            promised: Once::default(),
        }
    }
}
