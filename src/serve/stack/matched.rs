//! Which route's limits count a request, or which routes' together.

use std::sync::Arc;

use super::refusal::RefusalCause;
use crate::policy::Ruleset;
use crate::route::Route;

/// Most limits that count one request.
const MAX_LIMITS: usize = 64;

/// Why a request is refused that more limits would count.
const MANY_LIMITS: &str = "servers read the request in several ways, and more than 64 limits would count it: send the path in its plain form and the method as it is";

/// The route of a request, and those whose limits count it too because a server may take the request for one of theirs.
#[derive(Clone, Debug)]
pub struct MatchedRoute {
    /// The route's place among the running policies' routes.
    pub index: usize,
    /// Made of it and of others whose limits count too.
    combined: Option<Arc<Route>>,
}

impl MatchedRoute {
    /// What it is held to.
    #[inline]
    pub fn route<'r>(&'r self, ruleset: &'r Ruleset) -> &'r Route {
        match &self.combined {
            Some(combined) => combined,
            None => &ruleset.routes[self.index],
        }
    }

    /// The same, held to what `other` is held to as well.
    ///
    /// # Errors
    ///
    /// More than [`MAX_LIMITS`] would count the request: 400.
    pub(crate) fn with(
        self,
        other: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        if self.counts(&other, ruleset) {
            return Ok(self);
        }
        let (own, added) = (self.route(ruleset), other.route(ruleset));
        if own.upstream == added.upstream && other.counts(&self, ruleset) {
            return Ok(other);
        }
        let combined = own.combined_with(added);
        if combined.rules.len() > MAX_LIMITS {
            return Err(RefusalCause::Bad(MANY_LIMITS));
        }
        Ok(MatchedRoute {
            index: self.index,
            combined: Some(Arc::new(combined)),
        })
    }

    /// The one of both routes that `choose` finds enough for two readings; both, where it finds none.
    pub(crate) fn enough_of(
        self,
        other: MatchedRoute,
        ruleset: &Ruleset,
        choose: impl FnOnce(usize, usize, &Ruleset) -> Option<usize>,
    ) -> Result<MatchedRoute, RefusalCause> {
        let both = self.alone().zip(other.alone());
        match both.and_then(|(one, two)| choose(one, two, ruleset)) {
            Some(enough) => Ok(enough.into()),
            None => self.with(other, ruleset),
        }
    }

    /// Whether a request is held to whatever `other` would hold it to.
    pub fn counts(&self, other: &MatchedRoute, ruleset: &Ruleset) -> bool {
        self.route(ruleset).counts_all_of(other.route(ruleset))
    }

    /// The route's place, where no other counts.
    #[inline]
    pub fn alone(&self) -> Option<usize> {
        match &self.combined {
            Some(_) => None,
            None => Some(self.index),
        }
    }
}

impl From<usize> for MatchedRoute {
    fn from(index: usize) -> MatchedRoute {
        MatchedRoute {
            index,
            combined: None,
        }
    }
}
