//! The target of a request, by every reading that servers and frameworks make of it. Where the readings lead to several
//! routes, the strictest route counts the request, or all of them together. Host and method must be checked before.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use http::{Method, Uri};
use smallvec::SmallVec;

use super::matched_route::MatchedRoute;
use super::method_override::{self, MethodInBody};
use super::query_path::{self, PathInQuery};
use super::refusal::RefusalCause;
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::policy::Ruleset;
use crate::route::pattern::Segment;
use crate::route::{
    PathError, PathMatching, Route, RouteMatch, is_common_spelling, literal_readings, normalise,
    path_after_authority, with_encoded_slashes,
};

/// Why a request is refused whose path is too long to be read in several ways.
const LONG_PATH: &str = "the path has more than 2 KiB and servers read it in several ways: send it without `;`, `\\`, `%2F`, `//`, dot segments and needless escapes";

/// Why a request is refused whose query names more paths than are looked up.
const TOO_MANY_PATHS: &str = "the query has too many fields that may name a path, or too long ones (`r`, `route`, `q`, `s`, `url`, `_url`, `PATH_INFO`, `rest_route`): send less of them";

/// Why a request is refused that names more methods than are looked up.
const TOO_MANY_METHODS: &str = "the request names more than four other methods (`X-HTTP-Method-Override`, `_method`): name one";

/// Matches a request by its head.
///
/// # Errors
///
/// The request is refused before it has a route: 400, 404 or 405.
pub fn match_route(
    head: &Head,
    host: Option<&str>,
    ruleset: &Ruleset,
) -> Result<MatchedRoute, RefusalCause> {
    let target = RequestTarget::new(head, host)?;
    let matched = target.look_up(&head.method, ruleset)?;
    if ruleset.table.named_methods().is_empty() {
        return Ok(matched);
    }
    // The upstream takes the request's own method or one that the request names, and nothing tells which. So every
    // method must be allowed, and the limits of all count.
    let methods = method_override::named_methods(head, target.query_in_path())
        .map_err(|_| RefusalCause::Bad(TOO_MANY_METHODS))?;
    methods.iter().try_fold(matched, |matched, method| {
        matched.combined_with(target.look_up(method, ruleset)?, ruleset)
    })
}

/// The one of two routes whose limits include all limits of the other. None on different upstreams, or if neither does.
fn route_with_all_limits(first: usize, second: usize, ruleset: &Ruleset) -> Option<usize> {
    let (one, other) = (&ruleset.routes[first], &ruleset.routes[second]);
    match (
        one.upstream_index == other.upstream_index,
        other.has_limits_beyond(one),
    ) {
        (true, false) => Some(first),
        (true, true) if !one.has_limits_beyond(other) => Some(second),
        _ => None,
    }
}

/// The one of two routes that admits no client more than the other does; the first, if both do. None if neither does.
fn route_as_strict(first: usize, second: usize, ruleset: &Ruleset) -> Option<usize> {
    let (one, other) = (&ruleset.routes[first], &ruleset.routes[second]);
    match (one.is_as_strict_as(other), other.is_as_strict_as(one)) {
        (true, _) => Some(first),
        (false, true) => Some(second),
        (false, false) => None,
    }
}

/// The host, path and query of a request, without its method.
pub struct RequestTarget<'h> {
    host: Option<&'h str>,
    /// The path and the query as the client wrote them.
    uri: &'h Uri,
    /// The path in normal form.
    path: Cow<'h, str>,
    /// Other readings of the path, computed once for all methods: where escaped slashes split it, and where they do
    /// not. None if the path is too long.
    readings: [OnceCell<Option<Vec<String>>>; 2],
    /// The paths that the query names, computed in the same two ways; none if there are too many.
    paths_in_query: [OnceCell<Option<Vec<PathInQuery>>>; 2],
}

impl<'h> RequestTarget<'h> {
    /// The target of this head. `host` is the host in canonical form.
    ///
    /// # Errors
    ///
    /// The path has no normal form: 400.
    pub fn new(head: &'h Head, host: Option<&'h str>) -> Result<RequestTarget<'h>, RefusalCause> {
        let path = normalise(head.uri.path());
        Ok(RequestTarget {
            host,
            uri: &head.uri,
            path: path.map_err(|error| RefusalCause::Bad(path_error_detail(error)))?,
            readings: Default::default(),
            paths_in_query: Default::default(),
        })
    }

    /// The part of the path after its first `;`, which Fastify takes for a query.
    #[inline]
    fn query_in_path(&self) -> Option<&'h str> {
        match self.path {
            Cow::Borrowed(_) => None,
            Cow::Owned(_) => self.uri.path().split_once(';').map(|(_, text)| text),
        }
    }

    /// Looks up the route for this method. Where the exact spelling only meets a broad route with fewer limits, the
    /// route that frameworks would take counts instead. Where servers read the path in several ways and no single route
    /// is strict enough, several routes count together.
    ///
    /// # Errors
    ///
    /// The request is refused: 400, 404 or 405.
    pub fn look_up(
        &self,
        method: &Method,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let is_rewritten = matches!(self.path, Cow::Owned(_));
        let with_slashes = match is_rewritten {
            true => self.look_up_with_slashes(method, ruleset)?,
            false => None,
        };
        let keeps_slashes = with_slashes.is_some();
        let (path, mut matched) = match with_slashes {
            Some((path, matched)) => (Cow::Owned(path), matched),
            None => (
                Cow::Borrowed(&*self.path),
                self.look_up_normal(method, ruleset)?,
            ),
        };
        if ruleset.paths == PathMatching::Exact || ruleset.routes.len() == 1 {
            return Ok(matched);
        }
        if is_rewritten {
            let readings = self.readings[usize::from(keeps_slashes)]
                .get_or_init(|| literal_readings(self.uri.path(), keeps_slashes));
            let readings = readings.as_ref().ok_or(RefusalCause::Bad(LONG_PATH))?;
            matched = self.look_up_readings(method, &path, readings, matched, ruleset)?;
            if let Some(Ok(path)) = path_after_authority(self.uri.path()).map(normalise)
                && let Some(other) = self.look_up_reading(method, &path, &matched, ruleset)?
            {
                matched = matched.choose_or_combine(other, ruleset, strict_enough_route)?;
            }
        }
        if let Some(query) = self.uri.query()
            && query_path::may_name_path(&path, query)
        {
            let paths = self.paths_in_query[usize::from(keeps_slashes)]
                .get_or_init(|| query_path::find_in_query(&path, query));
            let paths = paths.as_ref().ok_or(RefusalCause::Bad(TOO_MANY_PATHS))?;
            matched = self.look_up_named_paths(method, paths, matched, ruleset)?;
        }
        Ok(matched)
    }

    /// The route that takes the path in normal form.
    #[inline]
    fn look_up_normal(
        &self,
        method: &Method,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let table = &ruleset.table;
        match table.find(self.host, method, &self.path) {
            RouteMatch::Route(exact) if ruleset.paths == PathMatching::Exact => Ok(exact.into()),
            RouteMatch::Route(exact) => self.fold(method, &self.path, exact, ruleset),
            RouteMatch::OtherMethod => Err(RefusalCause::WrongMethod(
                table.allowed_methods(self.host, &self.path),
            )),
            RouteMatch::None => Err(RefusalCause::NoRoute),
        }
    }

    /// Holds a request to the route of the method in its body as well. `others` are all routes that such a method may
    /// lead to; they all count if the method is unclear.
    ///
    /// # Errors
    ///
    /// The request is refused: 400, 404 or 405.
    pub fn match_method_in_body(
        &self,
        in_body: &MethodInBody,
        matched: MatchedRoute,
        others: Vec<MatchedRoute>,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        match in_body {
            MethodInBody::Absent => Ok(matched),
            MethodInBody::Named(method) => {
                matched.combined_with(self.look_up(method, ruleset)?, ruleset)
            }
            MethodInBody::Unclear => {
                let mut others = others.into_iter();
                others.try_fold(matched, |matched, other| {
                    matched.combined_with(other, ruleset)
                })
            }
        }
    }

    /// The route for a path that `exact` takes as it is spelled. Frameworks may take the path for that of another route
    /// on the same upstream, with more limits. Then that route counts, or both.
    #[inline]
    fn fold(
        &self,
        method: &Method,
        path: &str,
        exact: usize,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let Ruleset { table, routes, .. } = ruleset;
        let counts = |other: usize| {
            routes[other].has_limits_beyond(&routes[exact])
                && route_as_strict(other, exact, ruleset) != Some(exact)
        };
        let folded = table.find_folded(self.host, method, path, exact, counts);
        if folded == exact {
            return Ok(exact.into());
        }
        let mut matched = match_folded(path, folded, exact, ruleset)?;
        // Other readings may lead to more routes than broader ones: `/index.php/login` is the script and `/login`.
        let mut counted: SmallVec<[usize; 4]> = SmallVec::from_slice(&[folded]);
        loop {
            let counts = |other: usize| {
                let is_broader = routes[other]
                    .pattern
                    .is_broader_than(&routes[folded].pattern);
                counts(other) && !is_broader && !counted.contains(&other)
            };
            let other = table.find_folded(self.host, method, path, exact, counts);
            if other == exact {
                return Ok(matched);
            }
            counted.push(other);
            matched = matched.choose_or_combine(other.into(), ruleset, strict_enough_route)?;
        }
    }

    /// The path with each `%2F` as part of a segment, and its route, if the policy of that route keeps escaped slashes.
    #[cold]
    fn look_up_with_slashes(
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
        let Some(exact) = ruleset.table.find(self.host, method, &path).route_index() else {
            return Ok(None);
        };
        let matched = match ruleset.paths {
            PathMatching::Exact => exact.into(),
            PathMatching::Fold => self.fold(method, &path, exact, ruleset)?,
        };
        let keeps = matched.route(ruleset).keeps_slashes;
        Ok(keeps.then_some((path, matched)))
    }

    /// Holds a request that `matched` takes by its `normal` path to the routes of the other `readings` too. Of each two
    /// routes the one that is strict enough for both readings counts, or else both.
    #[cold]
    fn look_up_readings(
        &self,
        method: &Method,
        normal: &str,
        readings: &[String],
        matched: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        // Clients join paths carelessly. So doubled slashes alone never make two routes count together.
        let has_only_doubled_slashes = collapse_slashes(self.uri.path()) == normal;
        let mut matched = matched;
        for path in readings.iter().filter(|path| **path != normal) {
            let Some(other) = self.look_up_reading(method, path, &matched, ruleset)? else {
                continue;
            };
            let before = matched.clone();
            matched = matched.choose_or_combine(other, ruleset, strict_enough_route)?;
            if has_only_doubled_slashes && matched.single_index().is_none() {
                matched = before;
            }
        }
        Ok(matched)
    }

    /// The route that takes another reading of the path; none if it is not on the upstream of `matched`.
    #[cold]
    fn look_up_reading(
        &self,
        method: &Method,
        path: &str,
        matched: &MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<Option<MatchedRoute>, RefusalCause> {
        let Some(exact) = ruleset.table.find(self.host, method, path).route_index() else {
            return Ok(None);
        };
        let other = self.fold(method, path, exact, ruleset)?;
        let is_on_upstream =
            other.route(ruleset).upstream_index == matched.route(ruleset).upstream_index;
        Ok(is_on_upstream.then_some(other))
    }
}

impl RequestTarget<'_> {
    /// Holds a request to the route of the path that its body names to WordPress as well. All routes of the REST API
    /// count if the path is unclear.
    ///
    /// # Errors
    ///
    /// The path is too long, or too many limits would count the request: 400.
    #[cold]
    pub fn match_path_in_body(
        &self,
        method: &Method,
        value: &FieldValue<'_>,
        matched: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        match value {
            FieldValue::Absent => Ok(matched),
            FieldValue::One(value) => {
                let paths = query_path::read_rest_route(value);
                let paths = paths.ok_or(RefusalCause::Bad(LONG_PATH))?;
                self.look_up_named_paths(method, &paths, matched, ruleset)
            }
            FieldValue::Ambiguous => {
                let upstream = matched.route(ruleset).upstream_index;
                let is_wordpress_api = |route: &&Arc<Route>| {
                    route.is_wordpress_api() && route.upstream_index == upstream
                };
                let mut routes = ruleset.routes.iter().filter(is_wordpress_api);
                routes.try_fold(matched, |matched, route| {
                    matched.combined_with(route.index.into(), ruleset)
                })
            }
        }
    }

    /// Holds a request to the routes of the paths that its query or form names as well.
    #[cold]
    fn look_up_named_paths(
        &self,
        method: &Method,
        paths: &[PathInQuery],
        matched: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        paths.iter().try_fold(matched, |matched, named| {
            let mut readings = named.readings.iter();
            readings.try_fold(matched, |matched, path| {
                self.look_up_named_path(method, named, path, matched, ruleset)
            })
        })
    }

    /// Holds a request to the route of one reading of a named path as well. A word that is not certainly a path counts
    /// only where the route's pattern has a literal segment for it.
    fn look_up_named_path(
        &self,
        method: &Method,
        named: &PathInQuery,
        path: &str,
        matched: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let Some(other) = self.look_up_reading(method, path, &matched, ruleset)? else {
            return Ok(matched);
        };
        let segments = other.route(ruleset).pattern.segments();
        let mut own_segments = segments.iter().skip(named.depth);
        let mut has_literal = || own_segments.any(|segment| matches!(segment, Segment::Literal(_)));
        if !named.is_certain && !has_literal() {
            return Ok(matched);
        }
        matched.choose_or_combine(other, ruleset, |own, other, ruleset| {
            route_with_all_limits(own, other, ruleset)
                .or_else(|| route_as_strict(other, own, ruleset))
        })
    }
}

/// The one of two routes that is strict enough for two readings of one path; none if both must count. The more specific
/// pattern is preferred where one is broader than the other.
fn strict_enough_route(first: usize, second: usize, ruleset: &Ruleset) -> Option<usize> {
    route_with_all_limits(first, second, ruleset).or_else(|| {
        let [one, other] = [first, second].map(|index| &ruleset.routes[index].pattern);
        if other.is_broader_than(one) {
            route_as_strict(first, second, ruleset)
        } else if one.is_broader_than(other) {
            route_as_strict(second, first, ruleset)
        } else {
            None
        }
    })
}

/// The route for a path that `exact` takes as it is spelled and that frameworks take for that of `folded`. Both count
/// where neither is as strict as the other. `folded` alone counts for spellings that are usual, and beside the pattern
/// `/**`, which expects any name.
#[cold]
fn match_folded(
    path: &str,
    folded: usize,
    exact: usize,
    ruleset: &Ruleset,
) -> Result<MatchedRoute, RefusalCause> {
    let [pattern, broader] = [folded, exact].map(|index| &ruleset.routes[index].pattern);
    let is_enough = route_as_strict(folded, exact, ruleset).is_some()
        || matches!(broader.segments(), [Segment::Rest])
        || is_common_spelling(pattern, path);
    let matched = MatchedRoute::from(folded);
    match is_enough {
        true => Ok(matched),
        false => matched.combined_with(exact.into(), ruleset),
    }
}

/// Why a request is refused whose path has no normal form.
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
    let mut text = String::with_capacity(path.len());
    for letter in path.chars() {
        if letter != '/' || !text.ends_with('/') {
            text.push(letter);
        }
    }
    text
}

#[cfg(test)]
mod tests;
