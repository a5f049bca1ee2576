//! Finds the route of a request in one trie of path segments for each host that policies name. The cost of a lookup
//! depends on the length of the path and not on the number of routes, and a lookup allocates nothing.
//!
//! The most specific pattern that takes the request wins: an exact host before the longest
//! `*.suffix` before any host; then, segment by segment from the left, a literal before one of any
//! name (`*`, `{name}`) before `**`; then a named method before any method. A pattern that does not
//! take the method is passed over for a less specific one that does, so `POST /login` leaves
//! `GET /login` to `/**`.

use std::collections::HashMap;

use http::Method;
use smallvec::SmallVec;

use super::host::without_port;
use super::pattern::{HostPattern, Pattern};

mod fold;
mod readings;
mod trie;

use fold::is_plain;
pub use readings::is_usual;
use readings::may_name_action;
use trie::{Trie, TrieNode, segments_of};

/// All routes, by the place of their pattern in what the table was built from.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    exact: HashMap<Box<str>, Trie>,
    below: HashMap<Box<str>, Trie>,
    any: Trie,
    loose: Loose,
    /// Methods that patterns name.
    methods: Vec<Method>,
}

/// Which requests may have another reading.
#[derive(Clone, Debug, Default)]
struct Loose {
    /// By pattern: whether there are literal segments where it takes any.
    patterns: Vec<bool>,
    /// Whether some literal is not plain, so that a plain path may be another spelling of it.
    odd: bool,
}

/// Two patterns that match the same requests equally well.
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
        let mut search = trie::ExactSearch {
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
        let search = readings::FoldedSearch {
            method,
            accepts: |place| place == exact || counts(place),
        };
        let found = self.tries(host, |trie| {
            trie.find_folded(
                Trie::ROOT,
                segments_of(normal_path),
                readings::SearchState::default(),
                &search,
            )
        });
        found.unwrap_or(exact)
    }

    /// Notes which patterns have literal segments beside them.
    fn note_loose(&mut self, patterns: &[&Pattern]) {
        let by_host = !self.exact.is_empty() || !self.below.is_empty();
        let tries = self.exact.values().chain(self.below.values());
        let mut tries = tries.chain([&self.any]);
        self.loose.odd = tries.any(|trie| trie.nodes.iter().any(TrieNode::has_odd_literals));
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

    /// Searches the tries of this host, the most specific first, until one has a result.
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

#[cfg(test)]
mod tests;
