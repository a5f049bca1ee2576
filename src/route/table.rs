//! Finds the route of a request: one trie of path segments for each host that policies name. What a
//! lookup costs depends on the length of the path, not on how many routes there are, and it
//! allocates nothing.
//!
//! The most specific pattern that takes the request wins: an exact host before the longest
//! `*.suffix` before any host; then, segment by segment from the left, a literal before one of any
//! name (`*`, `{name}`) before `**`; then a named method before any method. A pattern that does not
//! take the method is passed over for a less specific one that does, so `POST /login` leaves
//! `GET /login` to `/**`.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use http::Method;
use smallvec::SmallVec;

use super::host::without_port;
use super::pattern::{Fit, HostPattern, MethodSet, Pattern, Segment};

mod fold;

pub use fold::is_usual;

/// All routes, by the place of their pattern in what the table was built from.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    exact: HashMap<Box<str>, Trie>,
    below: HashMap<Box<str>, Trie>,
    any: Trie,
    loose: fold::Loose,
    /// Methods that patterns name.
    methods: Vec<Method>,
}

/// Two patterns that take the same requests with nothing to prefer one by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Place of the earlier pattern.
    pub first: usize,
    /// Place of the later pattern.
    pub second: usize,
}

/// The pattern that takes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMatch {
    /// The place of the pattern that takes it.
    Route(usize),
    /// Only patterns with other methods take this host and path: 405, see [`RouteTable::allow`].
    OtherMethod,
    /// No pattern takes this host and path: 404.
    None,
}

impl RouteMatch {
    /// The place of the pattern that takes the request.
    pub fn route(self) -> Option<usize> {
        match self {
            RouteMatch::Route(place) => Some(place),
            RouteMatch::OtherMethod | RouteMatch::None => None,
        }
    }
}

impl RouteTable {
    /// A table of all `patterns`; [`RouteTable::find`] answers with their places.
    ///
    /// # Errors
    ///
    /// Every pair of patterns with the same host and path of which both name some method or neither
    /// names any.
    pub fn build<'p>(
        patterns: impl IntoIterator<Item = &'p Pattern>,
    ) -> Result<RouteTable, Vec<Conflict>> {
        let mut table = RouteTable::default();
        let mut conflicts = Vec::new();
        let patterns: Vec<&Pattern> = patterns.into_iter().collect();
        for (place, pattern) in patterns.iter().enumerate() {
            let trie = match pattern.host() {
                HostPattern::Any => &mut table.any,
                HostPattern::Exact(name) => table.exact.entry(name.clone()).or_default(),
                HostPattern::Below(name) => table.below.entry(name.clone()).or_default(),
            };
            for method in pattern.methods().iter() {
                if !table.methods.contains(method) {
                    table.methods.push(method.clone());
                }
            }
            let leaf = trie.leaf(pattern.segments());
            let clash = leaf
                .iter()
                .filter(|(methods, _)| methods.conflicts(pattern.methods()));
            conflicts.extend(clash.map(|&(_, first)| Conflict {
                first,
                second: place,
            }));
            leaf.push((pattern.methods().clone(), place));
        }
        if conflicts.is_empty() {
            table.note_loose(&patterns);
            Ok(table)
        } else {
            Err(conflicts)
        }
    }

    /// The route of a request. `host` comes from [`super::host::canonical`], with or without a port;
    /// `normal_path` comes from [`super::normalise`].
    pub fn find(&self, host: Option<&str>, method: &Method, normal_path: &str) -> RouteMatch {
        let mut search = Search {
            method,
            path_known: false,
        };
        let route = self.tries(host, |trie| {
            trie.find(Trie::ROOT, segments_of(normal_path), &mut search)
        });
        match route {
            Some(place) => RouteMatch::Route(place),
            None if search.path_known => RouteMatch::OtherMethod,
            None => RouteMatch::None,
        }
    }

    /// Whether the route of a request depends on its host.
    pub fn looks_at_hosts(&self) -> bool {
        !self.exact.is_empty() || !self.below.is_empty()
    }

    /// Whether requests for the two hosts take the same routes, whatever their paths and methods.
    pub fn takes_alike(&self, host: Option<&str>, other: &str) -> bool {
        let tries = |host: Option<&str>| {
            let mut all: SmallVec<[*const Trie; 4]> = SmallVec::new();
            let none: Option<()> = self.tries(host, |trie| {
                all.push(trie);
                None
            });
            debug_assert!(none.is_none());
            all
        };
        tries(host) == tries(Some(other))
    }

    /// The methods on which the route of a request may depend: those that some pattern names.
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The methods that some pattern takes at this host and path, as an `Allow` header lists them:
    /// what a 405 must carry. Empty where no pattern takes the path.
    pub fn allow(&self, host: Option<&str>, normal_path: &str) -> String {
        let mut methods: Vec<Method> = Vec::new();
        let none: Option<()> = self.tries(host, |trie| {
            trie.each_leaf(Trie::ROOT, segments_of(normal_path), &mut |leaf| {
                for (set, _) in leaf {
                    for method in set.iter() {
                        if !methods.contains(method) {
                            methods.push(method.clone());
                        }
                    }
                }
            });
            None
        });
        debug_assert!(none.is_none());
        methods
            .iter()
            .map(Method::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Asks the tries of this host, the most specific first, until one answers.
    fn tries<T>(&self, host: Option<&str>, mut ask: impl FnMut(&Trie) -> Option<T>) -> Option<T> {
        if !self.looks_at_hosts() {
            return ask(&self.any);
        }
        if let Some(host) = host.map(without_port) {
            if let Some(found) = self.exact.get(host).and_then(&mut ask) {
                return Some(found);
            }
            // `.example.com` is not below example.com, so the search begins behind one character.
            let mut from = 1;
            while let Some(dot) = host.get(from..).and_then(|rest| rest.find('.')) {
                from += dot + 1;
                if let Some(found) = self.below.get(&host[from..]).and_then(&mut ask) {
                    return Some(found);
                }
            }
        }
        ask(&self.any)
    }
}

/// The path without the slashes at its ends; empty has no segments.
fn segments_of(normal_path: &str) -> &str {
    let path = normal_path.strip_prefix('/').unwrap_or(normal_path);
    path.strip_suffix('/').unwrap_or(path)
}

type Leaf = SmallVec<[(MethodSet, usize); 1]>;

#[derive(Clone, Debug)]
struct Trie {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, u32, BuildHasherDefault<SegmentHasher>>,
    /// The same by what is left of them when they are folded.
    folded: HashMap<fold::Folded, SmallVec<[u32; 1]>, BuildHasherDefault<SegmentHasher>>,
    /// Those of them that stand for their folder.
    indexes: SmallVec<[u32; 1]>,
    one: Option<u32>,
    /// Patterns that end here.
    end: Leaf,
    /// Patterns that end here with `**`.
    rest: Leaf,
}

/// A short hash, after rustc's. No secret is needed: only policies put segments into the table, so
/// nobody outside can make them collide.
#[derive(Clone, Copy, Default)]
struct SegmentHasher(u64);

impl Hasher for SegmentHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let last = rest
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        self.write_u64(last);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = self.0.rotate_left(5) ^ word;
        self.0 = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn finish(&self) -> u64 {
        // The map takes its place from the low bits, the product is best in the high ones.
        self.0.rotate_left(26)
    }
}

impl Default for Trie {
    fn default() -> Trie {
        Trie {
            nodes: vec![Node::default()],
        }
    }
}

struct Search<'r> {
    method: &'r Method,
    /// Some pattern takes the path, be it with another method.
    path_known: bool,
}

impl Search<'_> {
    fn pick(&mut self, leaf: &Leaf) -> Option<usize> {
        self.path_known |= !leaf.is_empty();
        let fits = leaf
            .iter()
            .filter_map(|(set, place)| Some((set.fit(self.method)?, *place)));
        fits.min_by_key(|(fit, _): &(Fit, usize)| *fit)
            .map(|(_, place)| place)
    }
}

impl Trie {
    const ROOT: u32 = 0;

    /// Where patterns with these segments are kept.
    fn leaf(&mut self, segments: &[Segment]) -> &mut Leaf {
        let mut at = Trie::ROOT as usize;
        let mut rest = false;
        for segment in segments {
            let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            let node = &mut self.nodes[at];
            let child = match segment {
                Segment::Literal(text) => *node.literals.entry(text.clone()).or_insert(next),
                Segment::One(_) => *node.one.get_or_insert(next),
                Segment::Rest => {
                    rest = true;
                    break;
                }
            };
            if child == next {
                if let Segment::Literal(text) = segment {
                    node.add_folded(text, child);
                }
                self.nodes.push(Node::default());
            }
            at = child as usize;
        }
        let node = &mut self.nodes[at];
        if rest { &mut node.rest } else { &mut node.end }
    }

    /// Depth is bounded by the longest pattern, and no node is visited twice.
    fn find(&self, at: u32, path: &str, search: &mut Search<'_>) -> Option<usize> {
        let node = self.nodes.get(at as usize)?;
        if path.is_empty() {
            return search.pick(&node.end).or_else(|| search.pick(&node.rest));
        }
        let (segment, below) = path.split_once('/').unwrap_or((path, ""));
        let literal = node
            .literals
            .get(segment)
            .and_then(|&child| self.find(child, below, search));
        literal
            .or_else(|| node.one.and_then(|child| self.find(child, below, search)))
            .or_else(|| search.pick(&node.rest))
    }

    fn each_leaf(&self, at: u32, path: &str, see: &mut impl FnMut(&Leaf)) {
        let Some(node) = self.nodes.get(at as usize) else {
            return;
        };
        see(&node.rest);
        if path.is_empty() {
            see(&node.end);
            return;
        }
        let (segment, below) = path.split_once('/').unwrap_or((path, ""));
        for child in node
            .literals
            .get(segment)
            .copied()
            .into_iter()
            .chain(node.one)
        {
            self.each_leaf(child, below, see);
        }
    }
}

#[cfg(test)]
mod tests;
