//! Finds the pattern that takes another reading of a path than its exact spelling. These readings are defaults of
//! widely used frameworks and servers:
//!
//! - the case of letters (Express, Koa, ASP.NET Core, IIS), and dots and blanks at a segment's end (Windows);
//! - a format behind the last segment: `/login.json` is `/login` (Rails, Grape, Django REST framework, Spring before
//!   5.3);
//! - segments behind a script: `/login.php/x` is `/login.php`, `PATH_INFO` of CGI (RFC 3875 section 4.1.5);
//! - the index of a folder: `/admin/index.php` is `/admin`, and the other way round (Apache, nginx, IIS), and
//!   `/index.php/login` is `/login` (the front controllers of Symfony, Laravel and CodeIgniter);
//! - the default action of a controller and its arguments: `/login/index/x` is `/login` (CodeIgniter, ASP.NET MVC,
//!   Yii);
//! - a session in the path: `/(S(x))/login` is `/login` (ASP.NET).
//!
//! [`crate::route::normalise`] has resolved slashes, dot segments, escapes and `;parameters` before. A search skips at
//! most one index or session of a path. So the patterns bound the number of nodes that it visits, however long the path
//! is.

use http::Method;
use smallvec::SmallVec;

use super::fold::{
    FoldedSegment, fold_segment, is_extension, is_index_document, is_plain, is_session, trim_end,
};
use super::trie::{Leaf, NodeIndex, Trie, TrieNode, segments_of};
use crate::route::pattern::{Pattern, Segment};

/// Maximum number of dots of a segment, from the left, at which a format may begin.
const MAX_DOTS: usize = 8;

/// The segment that names a controller's default action.
const DEFAULT_ACTION: &[u8] = b"index";

/// Whether honest clients write the path in this way, although only frameworks match the pattern with it. Such a path
/// differs only in case, or is plain: the folder of an index, or a default action.
pub fn is_common_spelling(pattern: &Pattern, normal_path: &str) -> bool {
    is_plain(normal_path) || differs_in_case(pattern, normal_path)
}

/// Whether the pattern takes the path, apart from the case of its letters.
fn differs_in_case(pattern: &Pattern, normal_path: &str) -> bool {
    let mut path_segments = segments_of(normal_path).split('/');
    for segment in pattern.segments() {
        let is_match = match (segment, path_segments.next()) {
            (Segment::Rest, _) => return true,
            (Segment::Literal(text), Some(segment)) => {
                trim_end(segment) == segment && fold_segment(segment) == fold_segment(text)
            }
            (Segment::One(_), Some(_)) => true,
            (_, None) => false,
        };
        if !is_match {
            return false;
        }
    }
    path_segments.next().is_none()
}

/// What a search remembers of its way to a node.
#[derive(Clone, Copy, Default)]
pub(super) struct SearchState {
    /// Whether the search has skipped an index or a session of the path.
    has_skipped: bool,
    /// Whether a literal led to this node.
    is_after_literal: bool,
}

/// A child by a literal that a segment of a path may mean.
struct LiteralReading {
    child: NodeIndex,
    /// Whether this reading ends the path at the segment.
    ends_path: bool,
}

/// A search for the pattern that takes any reading of a path.
pub(super) struct FoldedSearch<'r, F> {
    pub(super) method: &'r Method,
    /// Whether the pattern with this index may be the result.
    pub(super) is_eligible: F,
}

impl<F: Fn(usize) -> bool> FoldedSearch<'_, F> {
    /// The index of the eligible pattern in `leaf` that takes the method most specifically; `None` if none takes it.
    fn choose_pattern(&self, leaf: &Leaf) -> Option<usize> {
        let eligible = leaf
            .iter()
            .filter(|pattern| (self.is_eligible)(pattern.index));
        let fits =
            eligible.filter_map(|pattern| Some((pattern.methods.fit(self.method)?, pattern.index)));
        fits.min_by_key(|(fit, _)| *fit).map(|(_, index)| index)
    }
}

impl Trie {
    /// Finds the most specific eligible pattern below a node that takes any reading of `path`; `None` if none does.
    pub(super) fn find_folded<F>(
        &self,
        index: NodeIndex,
        path: &str,
        state: SearchState,
        search: &FoldedSearch<'_, F>,
    ) -> Option<usize>
    where
        F: Fn(usize) -> bool,
    {
        let node = self.node(index)?;
        if path.is_empty() {
            return self.find_at_end(node, search);
        }
        let (segment, below) = path.split_once('/').unwrap_or((path, ""));
        let folded = fold_segment(segment);
        for reading in node.literal_readings(segment, &folded, below.is_empty()) {
            let below = if reading.ends_path { "" } else { below };
            let state = SearchState {
                is_after_literal: true,
                ..state
            };
            let route = self.find_folded(reading.child, below, state, search);
            if route.is_some() {
                return route;
            }
        }
        // A front controller or a session is skipped: the rest of the path is searched below the same node.
        if !state.has_skipped && (is_index_document(&folded) || is_session(segment)) {
            let state = SearchState {
                has_skipped: true,
                ..state
            };
            let route = self.find_folded(index, below, state, search);
            if route.is_some() {
                return route;
            }
        }
        // The default action of a controller, with any arguments, stands for the controller.
        if state.is_after_literal && *folded == *DEFAULT_ACTION {
            let route = search.choose_pattern(&node.end_leaf);
            if route.is_some() {
                return route;
            }
        }
        let state = SearchState {
            is_after_literal: false,
            ..state
        };
        node.any_segment
            .and_then(|child| self.find_folded(child, below, state, search))
            .or_else(|| search.choose_pattern(&node.rest_leaf))
    }

    /// Finds the pattern of a path that ends at this node: one that ends here too, or at a folder's index below, or has
    /// `**` here.
    fn find_at_end<F>(&self, node: &TrieNode, search: &FoldedSearch<'_, F>) -> Option<usize>
    where
        F: Fn(usize) -> bool,
    {
        let index_nodes = node
            .index_documents
            .iter()
            .filter_map(|child| self.node(*child));
        let mut index_routes =
            index_nodes.filter_map(|child| search.choose_pattern(&child.end_leaf));
        search
            .choose_pattern(&node.end_leaf)
            .or_else(|| index_routes.next())
            .or_else(|| search.choose_pattern(&node.rest_leaf))
    }

    /// Whether some other pattern has a literal, or an end, where a path takes `*` or `**` of these segments.
    pub(super) fn has_literals_beside(&self, segments: &[Segment]) -> bool {
        let mut index = Some(Trie::ROOT);
        for segment in segments {
            let Some(node) = index.and_then(|index| self.node(index)) else {
                return false;
            };
            index = match segment {
                Segment::Literal(text) => node.literal_children.get(text).copied(),
                Segment::Rest => return !node.end_leaf.is_empty() || self.has_literals_below(node),
                Segment::One(_)
                    if !node.end_leaf.is_empty() || !node.literal_children.is_empty() =>
                {
                    return true;
                }
                Segment::One(_) => node.any_segment,
            };
        }
        false
    }

    /// Whether this node, or one that `*` leads to, has literals.
    fn has_literals_below(&self, node: &TrieNode) -> bool {
        let any_segment = node.any_segment.and_then(|child| self.node(child));
        !node.literal_children.is_empty()
            || any_segment.is_some_and(|child| self.has_literals_below(child))
    }
}

impl TrieNode {
    /// The literals that a segment may mean, the one that is spelled like it first. A literal comes twice with the same
    /// remaining path only where dots or blanks follow each other in the segment.
    fn literal_readings(
        &self,
        segment: &str,
        folded: &FoldedSegment,
        is_last: bool,
    ) -> SmallVec<[LiteralReading; 4]> {
        let mut readings = SmallVec::new();
        if self.literal_children.is_empty() {
            return readings;
        }
        let reading = |child: &NodeIndex| LiteralReading {
            child: *child,
            ends_path: false,
        };
        let ending_path = |child: &NodeIndex| LiteralReading {
            child: *child,
            ends_path: true,
        };
        let folded_children = self.children_by_folded(folded);
        let exact_child = self.literal_children.get(segment);
        let other_children = folded_children
            .iter()
            .filter(|child| Some(*child) != exact_child);
        readings.extend(exact_child.into_iter().chain(other_children).map(reading));
        let trimmed = trim_end(segment);
        let dots = trimmed.match_indices('.').take(MAX_DOTS);
        let stems_and_extensions = dots.map(|(dot, _)| (&trimmed[..dot], &trimmed[dot + 1..]));
        for (stem, extension) in stems_and_extensions.filter(|(stem, _)| !stem.is_empty()) {
            if is_last || is_extension(extension) {
                let children = self.children_by_folded(&fold_segment(stem));
                readings.extend(children.iter().map(ending_path));
            }
            if !is_last && is_extension(extension) {
                readings.extend(folded_children.iter().map(ending_path));
            }
        }
        readings
    }

    /// The children whose literal folds to these bytes.
    fn children_by_folded(&self, folded: &FoldedSegment) -> &[NodeIndex] {
        self.folded_children
            .get(folded)
            .map_or(&[], |children| children)
    }

    /// Whether a plain path may mean some literal that is spelled in another way.
    pub(super) fn has_ambiguous_literals(&self) -> bool {
        !self.index_documents.is_empty()
            || !self
                .literal_children
                .keys()
                .all(|literal| is_plain(literal))
    }
}

/// Whether a plain path may have [`DEFAULT_ACTION`] as a segment. The scan is for its `x`, which few words have.
pub(super) fn may_have_action(path: &str) -> bool {
    memchr::memchr_iter(b'x', path.as_bytes()).any(|position| path[..position].ends_with("/inde"))
}
