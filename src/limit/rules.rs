//! The limits of a route.

use std::ops::Deref;
use std::sync::Arc;

use super::Rule;
use super::texts::Once;

/// The limits of one route, in the order of findings.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    each: Box<[Arc<Rule>]>,
    /// The value of `RateLimit-Policy` for clients whose plans multiply nothing: the first window of each limit.
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
