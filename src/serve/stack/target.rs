//! Finds the route of a request by its target, in every reading that servers and frameworks make of the target. Where the
//! readings lead to several routes, the strictest route counts the request, or all of them together.
//!
//! `routing.rs` has checked host and method before. `method_override.rs` and `query_path.rs` find what the request names
//! beside them. Nothing is rewritten here: the target is forwarded as it came.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use http::{Method, Uri};
use smallvec::SmallVec;

use super::matched_route::MatchedRoute;
use super::method_override::{self, MethodInBody};
use super::query_path::{self, PathInQuery};
use super::refusal::RefusalCause;
use super::route_choice::{route_as_strict, route_with_all_limits, strict_enough_route};
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::policy::Ruleset;
use crate::route::pattern::Segment;
use crate::route::{
    PathError, PathMatching, Route, RouteMatch, RouteTable, is_common_spelling, literal_readings,
    normalise, path_after_authority, with_encoded_slashes,
};

/// Why a request is refused if its path is too long to be read in several ways.
const LONG_PATH: &str = "the path has more than 2 KiB and servers read it in several ways: send it without `;`, `\\`, `%2F`, `//`, dot segments and needless escapes";

/// Why a request is refused if its query names more paths than are looked up.
const TOO_MANY_PATHS: &str = "the query has too many fields that may name a path, or too long ones (`r`, `route`, `q`, `s`, `url`, `_url`, `PATH_INFO`, `rest_route`): send less of them";

/// Why a request is refused if it names more methods than are looked up.
const TOO_MANY_METHODS: &str = "the request names more than four other methods (`X-HTTP-Method-Override`, `_method`): name one";

/// Finds the route of a request by its head.
///
/// # Errors
///
/// The request is refused before it has a route: 400, 404 or 405.
pub fn find_route_by_head(
    head: &Head,
    host: Option<&str>,
    table: &RouteTable,
    ruleset: &Ruleset,
) -> Result<MatchedRoute, RefusalCause> {
    let target = RequestTarget::new(head, host, table)?;
    let matched_route = target.find_route(&head.method, ruleset)?;
    if table.named_methods().is_empty() {
        return Ok(matched_route);
    }
    // The upstream takes the request's own method or one that the request names, and nothing tells which. So every
    // method must be allowed, and the limits of all count.
    let methods = method_override::find_methods_in_head(head, target.query_in_path())
        .map_err(|_| RefusalCause::Bad(TOO_MANY_METHODS))?;
    methods
        .iter()
        .try_fold(matched_route, |matched_route, method| {
            matched_route.held_to(target.find_route(method, ruleset)?, ruleset)
        })
}

/// The host, path and query of a request, without its method.
pub struct RequestTarget<'h> {
    /// The host in canonical form; `None` if a request of HTTP/1.0 names none.
    host: Option<&'h str>,
    /// The routes of the listener.
    table: &'h RouteTable,
    /// The path and the query as the client wrote them.
    uri: &'h Uri,
    /// The path in normal form.
    path: Cow<'h, str>,
    /// Other readings of the path, computed once for all methods. Index 0 holds those where escaped slashes split the path,
    /// index 1 those where they do not. `None` if the path is too long.
    path_readings: [OnceCell<Option<Vec<String>>>; 2],
    /// The paths that the query names, with the same two indices; `None` if there are too many.
    paths_in_query: [OnceCell<Option<Vec<PathInQuery>>>; 2],
}

impl<'h> RequestTarget<'h> {
    /// The target of this head, for a host in canonical form.
    ///
    /// # Errors
    ///
    /// The path has no normal form: 400.
    pub fn new(
        head: &'h Head,
        host: Option<&'h str>,
        table: &'h RouteTable,
    ) -> Result<RequestTarget<'h>, RefusalCause> {
        let path = normalise(head.uri.path());
        Ok(RequestTarget {
            host,
            table,
            uri: &head.uri,
            path: path.map_err(|error| RefusalCause::Bad(path_error_detail(error)))?,
            path_readings: Default::default(),
            paths_in_query: Default::default(),
        })
    }

    /// The part of the path after its first `;`, which Fastify takes for a query; `None` if the path has no `;`.
    #[inline]
    fn query_in_path(&self) -> Option<&'h str> {
        match self.path {
            Cow::Borrowed(_) => None,
            Cow::Owned(_) => self.uri.path().split_once(';').map(|(_, query)| query),
        }
    }

    /// Finds the route for this method. Where the exact spelling leads only to a broad route with fewer limits, the route
    /// that frameworks would take counts instead. Where servers read the path in several ways and no single route
    /// is strict enough, several routes count together.
    ///
    /// # Errors
    ///
    /// The request is refused: 400, 404 or 405.
    pub fn find_route(
        &self,
        method: &Method,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let is_rewritten = matches!(self.path, Cow::Owned(_));
        let kept_slashes_match = match is_rewritten {
            true => self.find_with_escaped_slashes(method, ruleset)?,
            false => None,
        };
        let keeps_slashes = kept_slashes_match.is_some();
        let slash_index = usize::from(keeps_slashes);
        let (path, mut matched_route) = match kept_slashes_match {
            Some((path, matched_route)) => (Cow::Owned(path), matched_route),
            None => (
                Cow::Borrowed(&*self.path),
                self.find_by_normal_path(method, ruleset)?,
            ),
        };
        if ruleset.path_matching == PathMatching::Exact || ruleset.has_one_request_route {
            return Ok(matched_route);
        }
        if is_rewritten {
            let readings = self.path_readings[slash_index]
                .get_or_init(|| literal_readings(self.uri.path(), keeps_slashes));
            let readings = readings.as_ref().ok_or(RefusalCause::Bad(LONG_PATH))?;
            matched_route =
                self.hold_to_readings(method, &path, readings, matched_route, ruleset)?;
            if let Some(Ok(path)) = path_after_authority(self.uri.path()).map(normalise)
                && let Some(other_route) =
                    self.find_by_reading(method, &path, &matched_route, ruleset)?
            {
                matched_route =
                    matched_route.choose_or_combine(other_route, ruleset, strict_enough_route)?;
            }
        }
        if let Some(query) = self.uri.query()
            && let Some(strip) = stripped_prefix(matched_route.route(ruleset))
        {
            // What the server reads begins behind the prefix.
            let paths = query_path::find_paths_below(strip, &path, query);
            let paths = paths.ok_or(RefusalCause::Bad(TOO_MANY_PATHS))?;
            matched_route = self.hold_to_named_paths(method, &paths, matched_route, ruleset)?;
        } else if let Some(query) = self.uri.query()
            && query_path::may_name_path(&path, query)
        {
            let paths = self.paths_in_query[slash_index]
                .get_or_init(|| query_path::find_paths_in_query(&path, query));
            let paths = paths.as_ref().ok_or(RefusalCause::Bad(TOO_MANY_PATHS))?;
            matched_route = self.hold_to_named_paths(method, paths, matched_route, ruleset)?;
        }
        Ok(matched_route)
    }

    /// The route that takes the path in normal form.
    ///
    /// # Errors
    ///
    /// No route takes the path with this method, or too many limits would count the request: 400, 404 or 405.
    #[inline]
    fn find_by_normal_path(
        &self,
        method: &Method,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let table = self.table;
        match table.find(self.host, method, &self.path) {
            RouteMatch::Route(exact_index) if ruleset.path_matching == PathMatching::Exact => {
                Ok(exact_index.into())
            }
            RouteMatch::Route(exact_index) => {
                self.find_by_folding(method, &self.path, exact_index, ruleset)
            }
            RouteMatch::OtherMethod => Err(RefusalCause::WrongMethod(
                table.allowed_methods(self.host, &self.path),
            )),
            RouteMatch::None => Err(RefusalCause::NoRoute),
        }
    }

    /// Also holds a request to the route of the method in its body. `possible_routes` are the routes that such a method
    /// may lead to and that `matched_route` does not cover; they all count if the method is unclear.
    ///
    /// # Errors
    ///
    /// The request is refused: 400, 404 or 405.
    pub fn hold_to_method_in_body(
        &self,
        method_in_body: &MethodInBody,
        matched_route: MatchedRoute,
        possible_routes: Vec<MatchedRoute>,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        match method_in_body {
            MethodInBody::Absent => Ok(matched_route),
            MethodInBody::Named(method) => {
                matched_route.held_to(self.find_route(method, ruleset)?, ruleset)
            }
            MethodInBody::Unclear => {
                let mut possible_routes = possible_routes.into_iter();
                possible_routes.try_fold(matched_route, |matched_route, possible_route| {
                    matched_route.combined_with(possible_route, ruleset)
                })
            }
        }
    }

    /// The route for a path that the route `exact_index` takes as it is spelled. Frameworks may take the path for another
    /// route on the same upstream, with more limits. Then that route counts, or both count.
    #[inline]
    fn find_by_folding(
        &self,
        method: &Method,
        path: &str,
        exact_index: usize,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let routes = &ruleset.routes;
        // Another route counts if it has further limits, unless this route is as strict.
        let must_count = |other_index: usize| {
            routes[other_index].has_limits_beyond(&routes[exact_index])
                && route_as_strict(other_index, exact_index, ruleset) != Some(exact_index)
        };
        let folded_index = self
            .table
            .find_folded(self.host, method, path, exact_index, must_count);
        if folded_index == exact_index {
            return Ok(exact_index.into());
        }
        let mut matched_route = choose_folded_or_both(path, folded_index, exact_index, ruleset)?;
        // One path may stand for several routes of which none is broader: `/index.php/login` is the script and `/login`.
        let mut counted_indexes: SmallVec<[usize; 4]> = SmallVec::from_slice(&[folded_index]);
        loop {
            let must_count_too = |other_index: usize| {
                let is_broader = routes[other_index]
                    .pattern
                    .is_broader_than(&routes[folded_index].pattern);
                must_count(other_index) && !is_broader && !counted_indexes.contains(&other_index)
            };
            let other_index =
                self.table
                    .find_folded(self.host, method, path, exact_index, must_count_too);
            if other_index == exact_index {
                return Ok(matched_route);
            }
            counted_indexes.push(other_index);
            let other_route = MatchedRoute::from(other_index);
            matched_route =
                matched_route.choose_or_combine(other_route, ruleset, strict_enough_route)?;
        }
    }

    /// The path with each `%2F` as part of a segment, and its route; `None` unless the policy of that route keeps escaped
    /// slashes. The only error is that of too many limits.
    #[cold]
    fn find_with_escaped_slashes(
        &self,
        method: &Method,
        ruleset: &Ruleset,
    ) -> Result<Option<(String, MatchedRoute)>, RefusalCause> {
        if !ruleset.keeps_slashes {
            return Ok(None);
        }
        let Some(path) = with_encoded_slashes(self.uri.path()) else {
            return Ok(None);
        };
        let Some(exact_index) = self.table.find(self.host, method, &path).route_index() else {
            return Ok(None);
        };
        let matched_route = match ruleset.path_matching {
            PathMatching::Exact => exact_index.into(),
            PathMatching::Fold => self.find_by_folding(method, &path, exact_index, ruleset)?,
        };
        let keeps_slashes = matched_route.route(ruleset).keeps_slashes;
        Ok(keeps_slashes.then_some((path, matched_route)))
    }

    /// Also holds a request to the routes of the other `readings` of its path; `matched_route` takes its normal path. Of
    /// each two routes, the route that is strict enough for both readings counts, or else both count.
    #[cold]
    fn hold_to_readings(
        &self,
        method: &Method,
        normal_path: &str,
        readings: &[String],
        matched_route: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        // Clients join paths carelessly. So doubled slashes alone never make two routes count together, nor does the gateway
        // answer for them.
        let has_only_doubled_slashes = collapse_slashes(self.uri.path()) == normal_path;
        let mut matched_route = matched_route;
        for path in readings.iter().filter(|path| **path != normal_path) {
            let Some(other_route) = self.find_by_reading(method, path, &matched_route, ruleset)?
            else {
                continue;
            };
            let route_before = matched_route.clone();
            matched_route =
                matched_route.choose_or_combine(other_route, ruleset, strict_enough_route)?;
            let is_replaced = matched_route.single_route_index().is_none()
                || matched_route.is_answered_here(ruleset);
            if has_only_doubled_slashes && is_replaced {
                matched_route = route_before;
            }
        }
        Ok(matched_route)
    }

    /// The route that takes another reading of the path on the upstream of `matched_route`, or instead of that upstream:
    /// the gateway answers its requests, and its pattern is no broader. `None` if no route does so.
    #[cold]
    fn find_by_reading(
        &self,
        method: &Method,
        path: &str,
        matched_route: &MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<Option<MatchedRoute>, RefusalCause> {
        let Some(exact_index) = self.table.find(self.host, method, path).route_index() else {
            return Ok(None);
        };
        let other_route = self.find_by_folding(method, path, exact_index, ruleset)?;
        let [own, other] = [matched_route, &other_route].map(|matched| matched.route(ruleset));
        let may_serve = match (own.server_group(), other.server_group()) {
            (None, _) => false,
            (Some(_), None) => other.has_limits_beyond(own),
            (own_index, other_index) => own_index == other_index,
        };
        Ok(may_serve.then_some(other_route))
    }
}

impl RequestTarget<'_> {
    /// Also holds a request to the route of the path that its body names to WordPress. If the path is unclear, all routes
    /// of the REST API on the same listener and upstream count.
    ///
    /// # Errors
    ///
    /// The path is too long, or too many limits would count the request: 400.
    #[cold]
    pub fn hold_to_path_in_body(
        &self,
        method: &Method,
        value: &FieldValue<'_>,
        matched_route: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        match value {
            FieldValue::Absent => Ok(matched_route),
            FieldValue::Single(value) => {
                let paths = query_path::read_rest_route(value);
                let paths = paths.ok_or(RefusalCause::Bad(LONG_PATH))?;
                self.hold_to_named_paths(method, &paths, matched_route, ruleset)
            }
            FieldValue::Ambiguous => {
                let server_group = matched_route.route(ruleset).server_group();
                let is_wordpress_api = |route: &&Arc<Route>| {
                    route.is_wordpress_api()
                        && route.server_group() == server_group
                        && self.table.has_route(route.index)
                };
                let mut routes = ruleset.routes.iter().filter(is_wordpress_api);
                routes.try_fold(matched_route, |matched_route, route| {
                    matched_route.combined_with(route.index.into(), ruleset)
                })
            }
        }
    }

    /// Also holds a request to the routes of the paths that its query or form names.
    #[cold]
    fn hold_to_named_paths(
        &self,
        method: &Method,
        paths: &[PathInQuery],
        matched_route: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        paths
            .iter()
            .try_fold(matched_route, |matched_route, named_path| {
                let mut readings = named_path.readings.iter();
                readings.try_fold(matched_route, |matched_route, path| {
                    self.hold_to_named_path(method, named_path, path, matched_route, ruleset)
                })
            })
    }

    /// Also holds a request to the route of one reading of a named path. A word that is not certainly a path counts only
    /// where the route's pattern has a literal segment for it.
    fn hold_to_named_path(
        &self,
        method: &Method,
        named_path: &PathInQuery,
        path: &str,
        matched_route: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let Some(other_route) = self.find_by_reading(method, path, &matched_route, ruleset)? else {
            return Ok(matched_route);
        };
        let segments = other_route.route(ruleset).pattern.segments();
        let mut word_segments = segments.iter().skip(named_path.folder_depth);
        let mut has_literal =
            || word_segments.any(|segment| matches!(segment, Segment::Literal(_)));
        // A word to search for must not end a request either.
        if !named_path.is_certain && (!has_literal() || other_route.is_answered_here(ruleset)) {
            return Ok(matched_route);
        }
        matched_route.choose_or_combine(other_route, ruleset, |own_index, other_index, ruleset| {
            route_with_all_limits(own_index, other_index, ruleset)
                .or_else(|| route_as_strict(other_index, own_index, ruleset))
        })
    }
}

/// The route for a path that the route `exact_index` takes as it is spelled, and that frameworks take for the route
/// `folded_index`. Both count where neither is as strict as the other.
///
/// The folded route alone counts for spellings that are usual, and beside the pattern `/**`, which expects any name.
#[cold]
fn choose_folded_or_both(
    path: &str,
    folded_index: usize,
    exact_index: usize,
    ruleset: &Ruleset,
) -> Result<MatchedRoute, RefusalCause> {
    let [folded_pattern, exact_pattern] =
        [folded_index, exact_index].map(|index| &ruleset.routes[index].pattern);
    let counts_alone = route_as_strict(folded_index, exact_index, ruleset).is_some()
        || matches!(exact_pattern.segments(), [Segment::Rest])
        || is_common_spelling(folded_pattern, path);
    let matched_route = MatchedRoute::from(folded_index);
    let [folded_route, exact_route] =
        [folded_index, exact_index].map(|index| &ruleset.routes[index]);
    if folded_route.forwards_elsewhere_than(exact_route) {
        return MatchedRoute::from(exact_index).combined_with(matched_route, ruleset);
    }
    match counts_alone {
        true => Ok(matched_route),
        false => matched_route.combined_with(exact_index.into(), ruleset),
    }
}

/// The prefix that the route takes off paths before they are forwarded; `None` if it takes nothing off.
fn stripped_prefix(route: &Route) -> Option<&str> {
    let path_change = route.path_change.as_ref()?;
    Some(&*path_change.strip).filter(|strip| !strip.is_empty())
}

/// Why a request is refused if its path has no normal form.
fn path_error_detail(error: PathError) -> &'static str {
    match error {
        PathError::NotAbsolute => "the path does not begin with `/`",
        PathError::ControlCharacter => {
            "the path has a control character, perhaps escaped: leave it out"
        }
        PathError::InvalidEscape => {
            "the path has a `%` without two hexadecimal digits: write `%25` for the character"
        }
        PathError::AmbiguousDots => {
            "the path has a dot segment with `;`, which is a step to some servers and a name to others: leave it out"
        }
    }
}

/// Replaces each run of slashes by one slash.
fn collapse_slashes(path: &str) -> String {
    let mut collapsed = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !collapsed.ends_with('/') {
            collapsed.push(character);
        }
    }
    collapsed
}

#[cfg(test)]
mod tests;
