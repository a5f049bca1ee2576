//! The route that a request is held to, that is, whose limits count it. Where servers may read the request in several
//! ways, the limits of several routes count it together.
//!
//! `target.rs` finds the routes, and `route_choice.rs` chooses between two; this file only combines them.

use std::sync::Arc;

use super::refusal::RefusalCause;
use crate::policy::Ruleset;
use crate::route::Route;

/// Maximum number of limits that count one request. A request that more limits would count is refused, because each of
/// them costs time.
const MAX_LIMITS: usize = 64;

/// Why a request is refused if more than [`MAX_LIMITS`] would count it.
const TOO_MANY_LIMITS: &str = "servers read the request in several ways, and more than 64 limits would count it: send the path in its plain form and the method as it is";

/// The route of a request, together with the routes that a server may take the request for.
#[derive(Clone, Debug)]
pub struct MatchedRoute {
    /// The index of the route among the ruleset's routes.
    pub route_index: usize,
    /// The route combined with the other routes whose limits count too; `None` if the route counts alone.
    combined_route: Option<Arc<Route>>,
}

impl MatchedRoute {
    /// The route with all limits that count the request.
    #[inline]
    pub fn route<'r>(&'r self, ruleset: &'r Ruleset) -> &'r Route {
        match &self.combined_route {
            Some(combined_route) => combined_route,
            None => &ruleset.routes[self.route_index],
        }
    }

    /// Holds the request to the limits of `other_match` as well. This route counts alone if it covers the other one, or if
    /// the gateway answers its requests. The other one counts alone if it covers this route and is on the same upstream.
    ///
    /// # Errors
    ///
    /// More than [`MAX_LIMITS`] would count the request: 400.
    pub(crate) fn combined_with(
        self,
        other_match: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let own_route = self.route(ruleset);
        if own_route.server_group().is_none() || self.covers(&other_match, ruleset) {
            return Ok(self);
        }
        let other_route = other_match.route(ruleset);
        if own_route.server_group() == other_route.server_group()
            && !other_route.forwards_elsewhere_than(own_route)
            && other_match.covers(&self, ruleset)
        {
            return Ok(other_match);
        }
        let combined_route = own_route.combined_with(other_route);
        // Candidate rates refuse nothing, and each belongs to a limit that is counted here.
        let limits = combined_route.rules.iter();
        if limits.filter(|rule| !rule.is_candidate).count() > MAX_LIMITS {
            return Err(RefusalCause::Bad(TOO_MANY_LIMITS));
        }
        Ok(MatchedRoute {
            route_index: self.route_index,
            combined_route: Some(Arc::new(combined_route)),
        })
    }

    /// Holds the request to a route that a server may certainly take it for. If the gateway answers the requests of that
    /// route, it answers this one too. Otherwise they are combined as in [`MatchedRoute::combined_with`].
    ///
    /// # Errors
    ///
    /// More than [`MAX_LIMITS`] would count the request: 400.
    pub(crate) fn held_to(
        self,
        other_match: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let other_route = other_match.route(ruleset);
        match other_route.answers_in_place_of(self.route(ruleset)) {
            true => Ok(other_match),
            false => self.combined_with(other_match, ruleset),
        }
    }

    /// Whether the gateway answers the request by itself, so that no server reads it.
    pub(crate) fn is_answered_here(&self, ruleset: &Ruleset) -> bool {
        self.route(ruleset).server_group().is_none()
    }

    /// Holds the request to the route that `choose` finds strict enough for both readings. `choose` gets the indices of
    /// this route and of `other_match`, and returns one of them, or `None`. After `None`, or where one of the two is a
    /// combination already, this route is [held to](MatchedRoute::held_to) the other one.
    ///
    /// # Errors
    ///
    /// More than [`MAX_LIMITS`] would count the request: 400.
    pub(crate) fn choose_or_combine(
        self,
        other_match: MatchedRoute,
        ruleset: &Ruleset,
        choose: impl FnOnce(usize, usize, &Ruleset) -> Option<usize>,
    ) -> Result<MatchedRoute, RefusalCause> {
        let route_indexes = self
            .single_route_index()
            .zip(other_match.single_route_index());
        let goes_elsewhere = other_match
            .route(ruleset)
            .forwards_elsewhere_than(self.route(ruleset));
        let chosen_index = route_indexes
            .and_then(|(own_index, other_index)| choose(own_index, other_index, ruleset))
            .filter(|_| !goes_elsewhere);
        match chosen_index {
            Some(chosen_index) => Ok(chosen_index.into()),
            None => self.held_to(other_match, ruleset),
        }
    }

    /// Whether this route has every limit, requires every identity and takes no larger bodies than `other_match`: see
    /// [`Route::has_all_limits_of`].
    pub fn covers(&self, other_match: &MatchedRoute, ruleset: &Ruleset) -> bool {
        self.route(ruleset)
            .has_all_limits_of(other_match.route(ruleset))
    }

    /// The index of the route; `None` if several routes are combined.
    #[inline]
    pub fn single_route_index(&self) -> Option<usize> {
        match &self.combined_route {
            Some(_) => None,
            None => Some(self.route_index),
        }
    }
}

impl From<usize> for MatchedRoute {
    /// The route with this index among the ruleset's routes, alone.
    fn from(route_index: usize) -> MatchedRoute {
        MatchedRoute {
            route_index,
            combined_route: None,
        }
    }
}
