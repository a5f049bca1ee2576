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
//! Slashes, dot segments, escapes and `;parameters` are gone before: [`crate::route::normalise`]. At most one index or
//! session is left out of a path, so that a search is bounded by the patterns and not by the path.

use http::Method;
use smallvec::SmallVec;

use super::{Leaf, Node, RouteTable, Trie, segments_of};
use crate::route::pattern::{HostPattern, Pattern, Segment};

/// Most dots of a segment at which it may end, from the left.
const MAX_DOTS: usize = 8;

/// The segment by which a controller's default action goes where no other is named.
const ACTION: &[u8] = b"index";

/// A segment without what frameworks overlook in it.
pub(super) type Folded = SmallVec<[u8; 64]>;

/// Which requests may have another reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Loose {
    /// By pattern: whether there are literal segments where it takes any.
    patterns: Vec<bool>,
    /// Whether some literal is not plain, so that a plain path may be another spelling of it.
    odd: bool,
}

impl RouteTable {
    /// The most specific pattern that takes some reading of a request which `exact` takes as it is spelled: one of those
    /// that `counts` names, or `exact` itself. `host` and `normal_path` are those of [`RouteTable::find`].
    pub fn find_folded(
        &self,
        host: Option<&str>,
        method: &Method,
        normal_path: &str,
        exact: usize,
        counts: impl Fn(usize) -> bool,
    ) -> usize {
        let loose = self.loose.patterns.get(exact).is_some_and(|loose| *loose);
        let one_reading =
            || !self.loose.odd && is_plain(normal_path) && !may_name_action(normal_path);
        if !loose || one_reading() {
            return exact;
        }
        let search = Search {
            method,
            accepts: |place| place == exact || counts(place),
        };
        let found = self.tries(host, |trie| {
            trie.find_folded(
                Trie::ROOT,
                segments_of(normal_path),
                Place::default(),
                &search,
            )
        });
        found.unwrap_or(exact)
    }

    /// Notes which patterns have literal segments beside them.
    pub(super) fn note_loose(&mut self, patterns: &[&Pattern]) {
        let by_host = !self.exact.is_empty() || !self.below.is_empty();
        let tries = self.exact.values().chain(self.below.values());
        let mut tries = tries.chain([&self.any]);
        self.loose.odd = tries.any(|trie| trie.nodes.iter().any(Node::has_odd_literals));
        let loose = |pattern: &&Pattern| {
            let trie = match pattern.host() {
                HostPattern::Any => Some(&self.any),
                HostPattern::Exact(name) => self.exact.get(name),
                HostPattern::Below(name) => self.below.get(name),
            };
            let beside = trie.is_some_and(|trie| trie.has_literals_beside(pattern.segments()));
            beside || (by_host && !matches!(pattern.host(), HostPattern::Exact(_)))
        };
        self.loose.patterns = patterns.iter().map(loose).collect();
    }
}

/// Whether clients that mean no harm write this path, though only frameworks find the pattern by it: letters in another
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

/// How a search has come to a node.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Something was left out of the path.
    skipped: bool,
    /// By a literal.
    named: bool,
}

/// A literal that a segment may stand for.
struct Reading {
    child: u32,
    /// Nothing of the path comes after it.
    ends: bool,
}

struct Search<'r, F> {
    method: &'r Method,
    accepts: F,
}

impl<F: Fn(usize) -> bool> Search<'_, F> {
    fn pick(&self, leaf: &Leaf) -> Option<usize> {
        let accepted = leaf.iter().filter(|(_, place)| (self.accepts)(*place));
        let fits = accepted.filter_map(|(set, place)| Some((set.fit(self.method)?, *place)));
        fits.min_by_key(|(fit, _)| *fit).map(|(_, place)| place)
    }
}

impl Trie {
    /// As [`Trie::find`], by all readings.
    fn find_folded<F>(
        &self,
        at: u32,
        path: &str,
        place: Place,
        search: &Search<'_, F>,
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
            let place = Place {
                named: true,
                ..place
            };
            let found = self.find_folded(reading.child, below, place, search);
            if found.is_some() {
                return found;
            }
        }
        if !place.skipped && (is_index(&folded) || is_session(segment)) {
            let skipped = Place {
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
        let place = Place {
            named: false,
            ..place
        };
        let any = node.one;
        any.and_then(|child| self.find_folded(child, below, place, search))
            .or_else(|| search.pick(&node.rest))
    }

    /// Whether a path that these segments take could have taken a literal where they have none.
    fn has_literals_beside(&self, segments: &[Segment]) -> bool {
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

    fn node(&self, at: u32) -> Option<&Node> {
        self.nodes.get(at as usize)
    }

    fn has_literals_below(&self, node: &Node) -> bool {
        let one = node.one.and_then(|child| self.node(child));
        !node.literals.is_empty() || one.is_some_and(|child| self.has_literals_below(child))
    }
}

impl Node {
    /// Adds a literal segment to what other spellings are looked up in.
    pub(super) fn add_folded(&mut self, literal: &str, child: u32) {
        let folded = fold(literal);
        if is_index(&folded) {
            self.indexes.push(child);
        }
        self.folded.entry(folded).or_default().push(child);
    }

    /// The literals that a segment may stand for, as it is spelled first; none of them twice with the same rest.
    fn readings(&self, segment: &str, folded: &Folded, last: bool) -> SmallVec<[Reading; 4]> {
        let mut readings = SmallVec::new();
        if self.literals.is_empty() {
            return readings;
        }
        let alike = self.children(folded);
        let exact = self.literals.get(segment);
        let others = alike.iter().filter(|child| Some(*child) != exact);
        let whole = exact.into_iter().chain(others);
        readings.extend(whole.map(|child| Reading {
            child: *child,
            ends: false,
        }));
        let end = |child: &u32| Reading {
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

    fn has_odd_literals(&self) -> bool {
        !self.indexes.is_empty() || !self.literals.keys().all(|literal| is_plain(literal))
    }
}

/// Whether a path has one reading only, but for folders' indexes.
fn is_plain(path: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'/');
    path.bytes().all(plain)
}

/// Whether a plain path may have a segment that is [`ACTION`]. Few words have an `x`, and that is found fast.
fn may_name_action(path: &str) -> bool {
    memchr::memchr_iter(b'x', path.as_bytes()).any(|at| path[..at].ends_with("/inde"))
}

/// A normal segment with escapes decoded, without case, and without dots and blanks at its end.
fn fold(segment: &str) -> Folded {
    let mut folded = Folded::new();
    let mut bytes = trim(segment).bytes();
    while let Some(byte) = bytes.next() {
        let escaped = (byte == b'%').then(|| (bytes.next(), bytes.next()));
        folded.push(match escaped {
            Some((Some(high), Some(low))) => digit(high) << 4 | digit(low),
            _ => byte.to_ascii_lowercase(),
        });
    }
    match std::str::from_utf8(&folded) {
        Ok(text) if !text.is_ascii() => {
            // By way of capitals, for several small letters may have one.
            let folded = text
                .chars()
                .flat_map(char::to_uppercase)
                .flat_map(char::to_lowercase);
            folded.collect::<String>().into_bytes().into()
        }
        _ => folded,
    }
}

fn trim(mut segment: &str) -> &str {
    while let Some(shorter) = segment
        .strip_suffix('.')
        .or_else(|| segment.strip_suffix("%20"))
    {
        segment = shorter;
    }
    segment
}

/// A hexadecimal digit of a normal path.
fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => {
            byte.to_ascii_uppercase()
                .wrapping_sub(b'A')
                .wrapping_add(10)
                & 15
        }
    }
}

/// Whether this is what scripts have behind their dot, and versions such as `1.0` have not.
fn is_extension(text: &str) -> bool {
    let letters = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    letters && text.len() <= 8 && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Whether ASP.NET takes this for a session and what follows it for the path.
fn is_session(segment: &str) -> bool {
    segment.starts_with('(') && segment.ends_with("))")
}

/// Whether this is a document that stands for its folder.
fn is_index(folded: &[u8]) -> bool {
    let extension = folded
        .strip_prefix(b"index.")
        .or_else(|| folded.strip_prefix(b"default."));
    extension
        .and_then(|rest| std::str::from_utf8(rest).ok())
        .is_some_and(is_extension)
}
