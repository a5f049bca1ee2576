//! Readings of a path that are defaults of large frameworks and servers, for paths whose exact spelling only a broad
//! pattern takes:
//!
//! - the case of letters (Express, Koa, ASP.NET Core, IIS), and dots and blanks at a segment's end (Windows);
//! - a format behind the last segment: `/login.json` is `/login` (Rails, Grape, Django REST framework, Spring before 5.3);
//! - what follows a script: `/login.php/x` is `/login.php`, `PATH_INFO` of CGI (RFC 3875 section 4.1.5);
//! - the index of a folder: `/admin/index.php` is `/admin`, and the other way round (Apache, nginx, IIS), and
//!   `/index.php/login` is `/login` (the front controllers of Symfony, Laravel and CodeIgniter);
//! - the default action of a controller and its arguments: `/login/index/x` is `/login` (CodeIgniter, ASP.NET MVC, Yii);
//! - a session in the path: `/(S(x))/login` is `/login` (ASP.NET).
//!
//! Slashes, dot segments, escapes and `;parameters` are gone before: [`crate::route::normalise`]. At most one index
//! or session is left out of a path. So the patterns bound a search, not the path.

use http::Method;
use smallvec::SmallVec;

use super::fold::{Folded, fold, is_extension, is_index, is_plain, is_session, trim};
use super::trie::{Leaf, Trie, TrieNode, segments_of};
use crate::route::pattern::{Pattern, Segment};

/// Most dots of a segment at which it may end, from the left.
const MAX_DOTS: usize = 8;

/// The segment by which a controller's default action goes where no other is named.
const ACTION: &[u8] = b"index";

/// Whether well-meaning clients write this path, though only frameworks match the pattern with it: letters in another
/// case, or the folder of an index.
pub fn is_usual(pattern: &Pattern, normal_path: &str) -> bool {
    is_plain(normal_path) || differs_in_case(pattern, normal_path)
}

fn differs_in_case(pattern: &Pattern, normal_path: &str) -> bool {
    let mut given = segments_of(normal_path).split('/');
    for segment in pattern.segments() {
        let same = match (segment, given.next()) {
            (Segment::Rest, _) => return true,
            (Segment::Literal(text), Some(given)) => {
                trim(given) == given && fold(given) == fold(text)
            }
            (Segment::One(_), Some(_)) => true,
            (_, None) => false,
        };
        if !same {
            return false;
        }
    }
    given.next().is_none()
}

/// How a search reached a node.
#[derive(Clone, Copy, Default)]
pub(super) struct SearchState {
    /// It left an index or a session out of the path.
    skipped: bool,
    /// A literal led to this node.
    named: bool,
}

/// A literal that a segment may stand for.
struct LiteralReading {
    child: u32,
    /// Nothing of the path comes after it.
    ends: bool,
}

pub(super) struct FoldedSearch<'r, F> {
    pub(super) method: &'r Method,
    pub(super) accepts: F,
}

impl<F: Fn(usize) -> bool> FoldedSearch<'_, F> {
    fn pick(&self, leaf: &Leaf) -> Option<usize> {
        let accepted = leaf.iter().filter(|(_, place)| (self.accepts)(*place));
        let fits = accepted.filter_map(|(set, place)| Some((set.fit(self.method)?, *place)));
        fits.min_by_key(|(fit, _)| *fit).map(|(_, place)| place)
    }
}

impl Trie {
    /// As [`Trie::find`], by all readings.
    pub(super) fn find_folded<F>(
        &self,
        at: u32,
        path: &str,
        place: SearchState,
        search: &FoldedSearch<'_, F>,
    ) -> Option<usize>
    where
        F: Fn(usize) -> bool,
    {
        let node = self.node(at)?;
        if path.is_empty() {
            let ends = node.indexes.iter().filter_map(|child| self.node(*child));
            let mut ends = ends.filter_map(|child| search.pick(&child.end));
            let found = search.pick(&node.end).or_else(|| ends.next());
            return found.or_else(|| search.pick(&node.rest));
        }
        let (segment, below) = path.split_once('/').unwrap_or((path, ""));
        let folded = fold(segment);
        for reading in node.readings(segment, &folded, below.is_empty()) {
            let below = if reading.ends { "" } else { below };
            let place = SearchState {
                named: true,
                ..place
            };
            let found = self.find_folded(reading.child, below, place, search);
            if found.is_some() {
                return found;
            }
        }
        if !place.skipped && (is_index(&folded) || is_session(segment)) {
            let skipped = SearchState {
                skipped: true,
                ..place
            };
            let found = self.find_folded(at, below, skipped, search);
            if found.is_some() {
                return found;
            }
        }
        if place.named && *folded == *ACTION {
            let found = search.pick(&node.end);
            if found.is_some() {
                return found;
            }
        }
        let place = SearchState {
            named: false,
            ..place
        };
        let any = node.one;
        any.and_then(|child| self.find_folded(child, below, place, search))
            .or_else(|| search.pick(&node.rest))
    }

    /// Whether a path that these segments take could have taken a literal where they have none.
    pub(super) fn has_literals_beside(&self, segments: &[Segment]) -> bool {
        let mut at = Some(Trie::ROOT);
        for segment in segments {
            let Some(node) = at.and_then(|at| self.node(at)) else {
                return false;
            };
            at = match segment {
                Segment::Literal(text) => node.literals.get(text).copied(),
                Segment::Rest => return !node.end.is_empty() || self.has_literals_below(node),
                Segment::One(_) if !node.end.is_empty() || !node.literals.is_empty() => {
                    return true;
                }
                Segment::One(_) => node.one,
            };
        }
        false
    }

    fn has_literals_below(&self, node: &TrieNode) -> bool {
        let one = node.one.and_then(|child| self.node(child));
        !node.literals.is_empty() || one.is_some_and(|child| self.has_literals_below(child))
    }
}

impl TrieNode {
    /// The literals that a segment may stand for, as it is spelled first; none of them twice with the same rest.
    fn readings(
        &self,
        segment: &str,
        folded: &Folded,
        last: bool,
    ) -> SmallVec<[LiteralReading; 4]> {
        let mut readings = SmallVec::new();
        if self.literals.is_empty() {
            return readings;
        }
        let alike = self.children(folded);
        let exact = self.literals.get(segment);
        let others = alike.iter().filter(|child| Some(*child) != exact);
        let whole = exact.into_iter().chain(others);
        readings.extend(whole.map(|child| LiteralReading {
            child: *child,
            ends: false,
        }));
        let end = |child: &u32| LiteralReading {
            child: *child,
            ends: true,
        };
        let trimmed = trim(segment);
        let dots = trimmed.match_indices('.').take(MAX_DOTS);
        let parts = dots.map(|(at, _)| (&trimmed[..at], &trimmed[at + 1..]));
        for (start, rest) in parts.filter(|(start, _)| !start.is_empty()) {
            if last || is_extension(rest) {
                readings.extend(self.children(&fold(start)).iter().map(end));
            }
            if !last && is_extension(rest) {
                readings.extend(alike.iter().map(end));
            }
        }
        readings
    }

    fn children(&self, folded: &Folded) -> &[u32] {
        self.folded.get(folded).map_or(&[], |children| children)
    }

    pub(super) fn has_odd_literals(&self) -> bool {
        !self.indexes.is_empty() || !self.literals.keys().all(|literal| is_plain(literal))
    }
}

/// Whether a plain path may have a segment that is [`ACTION`]. Few words have an `x`, and that is found fast.
pub(super) fn may_name_action(path: &str) -> bool {
    memchr::memchr_iter(b'x', path.as_bytes()).any(|at| path[..at].ends_with("/inde"))
}
