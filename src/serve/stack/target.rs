//! What a request is for, by every reading of it that servers and frameworks make: which of the routes counts it that it
//! may lead to.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use http::{Method, Uri};
use smallvec::SmallVec;

use super::matched::MatchedRoute;
use super::overrides::{self, InBody};
use super::query_path::{self, PathInQuery};
use super::refusal::RefusalCause;
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::policy::Ruleset;
use crate::route::pattern::Segment;
use crate::route::{
    PathError, Paths, Route, RouteMatch, behind_authority, is_usual, literal_readings, normalise,
    with_encoded_slashes,
};

/// Why a request is refused with a path that is too long to be read in several ways.
const LONG_PATH: &str = "the path has more than 2 KiB and servers read it in several ways: send it without `;`, `\\`, `%2F`, `//`, dot segments and needless escapes";

/// Why a request is refused whose query names more paths than are looked at.
const MANY_PATHS: &str = "the query has too many fields that may name a path, or too long ones (`r`, `route`, `q`, `s`, `url`, `_url`, `PATH_INFO`, `rest_route`): send less of them";

/// Why a request is refused that names more methods than are looked at.
const MANY_METHODS: &str = "the request names more than four other methods (`X-HTTP-Method-Override`, `_method`): name one";

/// What counts a request by its head.
///
/// # Errors
///
/// Why it is refused before it has a route: 400, 404 or 405.
pub fn match_route(
    head: &Head,
    host: Option<&str>,
    ruleset: &Ruleset,
) -> Result<MatchedRoute, RefusalCause> {
    let target = RequestTarget::of(head, host)?;
    let matched = target.look_up(&head.method, ruleset)?;
    if ruleset.table.methods().is_empty() {
        return Ok(matched);
    }
    // The upstream takes the request's own method or another that is named in it, and nothing tells which. So all of
    // them must be allowed, and the limits of all count.
    let methods = overrides::methods(head, target.query_in_path())
        .map_err(|_| RefusalCause::Bad(MANY_METHODS))?;
    methods.iter().try_fold(matched, |matched, method| {
        matched.with(target.look_up(method, ruleset)?, ruleset)
    })
}

/// That of two routes on one upstream which counts whatever the other counts.
fn stricter(one: usize, two: usize, ruleset: &Ruleset) -> Option<usize> {
    let (first, second) = (&ruleset.routes[one], &ruleset.routes[two]);
    match (
        first.upstream == second.upstream,
        second.holds_more_than(first),
    ) {
        (true, false) => Some(one),
        (true, true) if !first.holds_more_than(second) => Some(two),
        _ => None,
    }
}

/// That of two routes which leaves nobody more than the other; the first, if both do.
fn as_strict(one: usize, two: usize, ruleset: &Ruleset) -> Option<usize> {
    let (first, second) = (&ruleset.routes[one], &ruleset.routes[two]);
    match (first.is_as_strict_as(second), second.is_as_strict_as(first)) {
        (true, _) => Some(one),
        (false, true) => Some(two),
        (false, false) => None,
    }
}

/// What a request is for but for its method.
pub struct RequestTarget<'h> {
    host: Option<&'h str>,
    /// The path and the query as the client wrote them.
    uri: &'h Uri,
    /// The path, normal.
    path: Cow<'h, str>,
    /// Other readings of the path, worked out once for all methods; where escaped slashes split it and where they do not.
    /// None where the path is too long.
    readings: [OnceCell<Option<Vec<String>>>; 2],
    /// The same of the paths that the query names; none where there are too many.
    named: [OnceCell<Option<Vec<PathInQuery>>>; 2],
}

impl<'h> RequestTarget<'h> {
    /// Of a request whose host is this one.
    ///
    /// # Errors
    ///
    /// Why it is refused: 400.
    pub fn of(head: &'h Head, host: Option<&'h str>) -> Result<RequestTarget<'h>, RefusalCause> {
        let path =
            normalise(head.uri.path()).map_err(|error| RefusalCause::Bad(unreadable(error)))?;
        Ok(RequestTarget {
            host,
            uri: &head.uri,
            path,
            readings: Default::default(),
            named: Default::default(),
        })
    }

    /// What follows the first `;` of the path.
    #[inline]
    fn query_in_path(&self) -> Option<&'h str> {
        match self.path {
            Cow::Borrowed(_) => None,
            Cow::Owned(_) => self.uri.path().split_once(';').map(|(_, text)| text),
        }
    }

    /// The route by this method; where the exact spelling only meets a broad route that counts less, the one that
    /// frameworks would take. Where servers read the path in several ways and no route is enough for all, those count
    /// together.
    ///
    /// # Errors
    ///
    /// Why the request is refused: 400, 404 or 405.
    pub fn look_up(
        &self,
        method: &Method,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let is_rewritten = matches!(self.path, Cow::Owned(_));
        let kept = match is_rewritten {
            true => self.look_up_kept(method, ruleset)?,
            false => None,
        };
        let slashes_kept = kept.is_some();
        let (path, mut matched) = match kept {
            Some((path, matched)) => (Cow::Owned(path), matched),
            None => (
                Cow::Borrowed(&*self.path),
                self.look_up_normal(method, ruleset)?,
            ),
        };
        if ruleset.paths == Paths::Exact || ruleset.routes.len() == 1 {
            return Ok(matched);
        }
        if is_rewritten {
            let readings = self.readings[usize::from(slashes_kept)]
                .get_or_init(|| literal_readings(self.uri.path(), slashes_kept));
            let readings = readings.as_ref().ok_or(RefusalCause::Bad(LONG_PATH))?;
            matched = self.look_up_literally(method, &path, readings, matched, ruleset)?;
            if let Some(Ok(path)) = behind_authority(self.uri.path()).map(normalise)
                && let Some(other) = self.look_up_beside(method, &path, &matched, ruleset)?
            {
                matched = matched.enough_of(other, ruleset, coarser)?;
            }
        }
        if let Some(query) = self.uri.query()
            && query_path::is_looked_for(&path, query)
        {
            let named = self.named[usize::from(slashes_kept)]
                .get_or_init(|| query_path::find(&path, query));
            let named = named.as_ref().ok_or(RefusalCause::Bad(MANY_PATHS))?;
            matched = self.look_up_in_query(method, named, matched, ruleset)?;
        }
        Ok(matched)
    }

    #[inline]
    fn look_up_normal(
        &self,
        method: &Method,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let table = &ruleset.table;
        match table.find(self.host, method, &self.path) {
            RouteMatch::Route(exact) if ruleset.paths == Paths::Exact => Ok(exact.into()),
            RouteMatch::Route(exact) => self.fold(method, &self.path, exact, ruleset),
            RouteMatch::OtherMethod => Err(RefusalCause::WrongMethod(
                table.allow(self.host, &self.path),
            )),
            RouteMatch::None => Err(RefusalCause::NoRoute),
        }
    }

    /// What counts a request that `matched` counts by its head, by what its body says too. `others` are all those to which
    /// a method in the body may lead.
    ///
    /// # Errors
    ///
    /// Why the request is refused: 400, 404 or 405.
    pub fn by_body(
        &self,
        in_body: &InBody,
        matched: MatchedRoute,
        others: Vec<MatchedRoute>,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        match in_body {
            InBody::Silent => Ok(matched),
            InBody::Named(method) => matched.with(self.look_up(method, ruleset)?, ruleset),
            InBody::Unclear => {
                let mut others = others.into_iter();
                others.try_fold(matched, |matched, other| matched.with(other, ruleset))
            }
        }
    }

    /// `exact`, which takes this path as it is spelled, or a route on its upstream that frameworks take it for, that
    /// holds requests to more and leaves nobody more, or both.
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
            routes[other].holds_more_than(&routes[exact])
                && as_strict(other, exact, ruleset) != Some(exact)
        };
        let found = table.find_folded(self.host, method, path, exact, counts);
        if found == exact {
            return Ok(exact.into());
        }
        let mut matched = folded(path, found, exact, ruleset)?;
        // Another reading may lead elsewhere, not only to a broader pattern: `/index.php/login` is the script and `/login`.
        let mut seen: SmallVec<[usize; 4]> = SmallVec::from_slice(&[found]);
        loop {
            let counts = |other: usize| {
                let is_broader = routes[other]
                    .pattern
                    .is_broader_than(&routes[found].pattern);
                counts(other) && !is_broader && !seen.contains(&other)
            };
            let other = table.find_folded(self.host, method, path, exact, counts);
            if other == exact {
                return Ok(matched);
            }
            seen.push(other);
            matched = matched.enough_of(other.into(), ruleset, coarser)?;
        }
    }

    /// The path with `%2F` as part of a segment and the route that takes it, where its policy says so.
    #[cold]
    fn look_up_kept(
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
        let Some(exact) = ruleset.table.find(self.host, method, &path).route() else {
            return Ok(None);
        };
        let matched = match ruleset.paths {
            Paths::Exact => exact.into(),
            Paths::Fold => self.fold(method, &path, exact, ruleset)?,
        };
        let keeps = matched.route(ruleset).keeps_slashes;
        Ok(keeps.then_some((path, matched)))
    }

    /// `matched`, which takes `normal`, or another on its upstream that counts more and that frameworks find by other
    /// `readings` of the path. Where one of the two patterns is around the other, the one that leaves nobody more. Else both.
    #[cold]
    fn look_up_literally(
        &self,
        method: &Method,
        normal: &str,
        readings: &[String],
        matched: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        // Clients join paths carelessly: what differs in this only does not count as another route too.
        let has_doubles_only = without_doubles(self.uri.path()) == normal;
        let mut matched = matched;
        for path in readings.iter().filter(|path| **path != normal) {
            let Some(other) = self.look_up_beside(method, path, &matched, ruleset)? else {
                continue;
            };
            let before = matched.clone();
            matched = matched.enough_of(other, ruleset, coarser)?;
            if has_doubles_only && matched.alone().is_none() {
                matched = before;
            }
        }
        Ok(matched)
    }

    /// What takes another reading of the path, on the upstream of `matched`.
    #[cold]
    fn look_up_beside(
        &self,
        method: &Method,
        path: &str,
        matched: &MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<Option<MatchedRoute>, RefusalCause> {
        let Some(exact) = ruleset.table.find(self.host, method, path).route() else {
            return Ok(None);
        };
        let other = self.fold(method, path, exact, ruleset)?;
        let is_beside = other.route(ruleset).upstream == matched.route(ruleset).upstream;
        Ok(is_beside.then_some(other))
    }
}

impl RequestTarget<'_> {
    /// What counts a request that `matched` counts, by the path that its body names to WordPress too.
    ///
    /// # Errors
    ///
    /// Why the request is refused: 400.
    #[cold]
    pub fn by_path_in_body(
        &self,
        method: &Method,
        value: &FieldValue<'_>,
        matched: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        match value {
            FieldValue::Absent => Ok(matched),
            FieldValue::One(value) => {
                let named = query_path::of_wordpress(value).ok_or(RefusalCause::Bad(LONG_PATH))?;
                self.look_up_in_query(method, &named, matched, ruleset)
            }
            FieldValue::Ambiguous => {
                let upstream = matched.route(ruleset).upstream;
                let any = |route: &&Arc<Route>| route.is_rest_api() && route.upstream == upstream;
                let mut routes = ruleset.routes.iter().filter(any);
                routes.try_fold(matched, |matched, route| {
                    matched.with(route.index.into(), ruleset)
                })
            }
        }
    }

    /// The same by the paths that the query names: `matched`, or a route on its upstream by such a path which leaves nobody
    /// more, or both.
    #[cold]
    fn look_up_in_query(
        &self,
        method: &Method,
        named: &[PathInQuery],
        matched: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        named.iter().try_fold(matched, |matched, named| {
            let mut readings = named.readings.iter();
            readings.try_fold(matched, |matched, path| {
                self.look_up_named(method, named, path, matched, ruleset)
            })
        })
    }

    /// The same by one reading of one of these paths.
    fn look_up_named(
        &self,
        method: &Method,
        named: &PathInQuery,
        path: &str,
        matched: MatchedRoute,
        ruleset: &Ruleset,
    ) -> Result<MatchedRoute, RefusalCause> {
        let Some(other) = self.look_up_beside(method, path, &matched, ruleset)? else {
            return Ok(matched);
        };
        let segments = other.route(ruleset).pattern.segments();
        let mut own = segments.iter().skip(named.depth);
        if !named.surely && !own.any(|segment| matches!(segment, Segment::Literal(_))) {
            return Ok(matched);
        }
        matched.enough_of(other, ruleset, |own, other, ruleset| {
            stricter(own, other, ruleset).or_else(|| as_strict(other, own, ruleset))
        })
    }
}

/// Of two routes to which two readings of a path lead, the one that counts it.
fn coarser(one: usize, two: usize, ruleset: &Ruleset) -> Option<usize> {
    stricter(one, two, ruleset).or_else(|| {
        let [first, second] = [one, two].map(|at| &ruleset.routes[at].pattern);
        if second.is_broader_than(first) {
            as_strict(one, two, ruleset)
        } else if first.is_broader_than(second) {
            as_strict(two, one, ruleset)
        } else {
            None
        }
    })
}

/// See [`RequestTarget::fold`]: what counts a path that `exact` takes as it is spelled and that frameworks take for that of
/// `found`. Where neither is as strict as the other, both count, but not for spellings that are usual, nor behind `/**`,
/// where no more than a name is expected.
#[cold]
fn folded(
    path: &str,
    found: usize,
    exact: usize,
    ruleset: &Ruleset,
) -> Result<MatchedRoute, RefusalCause> {
    let [route, broader] = [found, exact].map(|at| &ruleset.routes[at].pattern);
    let counts = as_strict(found, exact, ruleset).is_some()
        || matches!(broader.segments(), [Segment::Rest])
        || is_usual(route, path);
    let found = MatchedRoute::from(found);
    match counts {
        true => Ok(found),
        false => found.with(exact.into(), ruleset),
    }
}

/// Why a request is refused whose path has no normal form.
fn unreadable(error: PathError) -> &'static str {
    match error {
        PathError::NotAbsolute => "the path does not begin with `/`",
        PathError::Control => "the path has a control character, perhaps escaped: leave it out",
        PathError::Escape => {
            "the path has a `%` without two hexadecimal digits: write `%25` for the character"
        }
        PathError::Ambiguous => {
            "the path has a dot segment with `;`, which is a step to some servers and a name to others: leave it out"
        }
    }
}

/// A path with one slash for several.
fn without_doubles(path: &str) -> String {
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
