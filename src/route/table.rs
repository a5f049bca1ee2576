//! Finds the route of a request in a trie of path segments; each host that policies name has one. A lookup by the exact
//! spelling allocates nothing. Its cost depends on the length of the path. The number of routes matters only where a
//! literal and a wildcard take the same segment.
//!
//! Tries and the exact lookup are in `trie.rs`; lookups by other readings are in `readings.rs` and `fold.rs`.
//!
//! The most specific pattern that takes the request wins:
//!
//! - an exact host before the longest `*.suffix` before any host;
//! - then, segment by segment from the left, a literal before `*` or `{name}` before `**`;
//! - then a named method before any method.
//!
//! A pattern that does not take the method is skipped for a less specific one that does. So a route for `POST /login`
//! leaves `GET /login` to `/**`.

use std::collections::HashMap;

use http::Method;
use smallvec::SmallVec;

use super::canonical_host::without_port;
use super::pattern::{HostPattern, Pattern};

mod fold;
mod readings;
mod trie;

use fold::is_plain;
pub use readings::is_common_spelling;
use readings::may_have_action;
use trie::{LeafPattern, Trie, TrieNode, segments_of};

/// The patterns of all routes on one listener, or on all listeners that no policy names. A route is identified by the
/// index that [`RouteTable::build`] was given with its pattern.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    /// Tries of [`HostPattern::Exact`], by host.
    exact_hosts: HashMap<Box<str>, Trie>,
    /// Tries of [`HostPattern::Below`], by the host above.
    hosts_below: HashMap<Box<str>, Trie>,
    /// The trie of [`HostPattern::Any`].
    any_host: Trie,
    other_readings: OtherReadings,
    /// The methods that some pattern names, with HEAD if one names GET.
    named_methods: Vec<Method>,
    /// The indexes of the table's routes, in ascending order.
    indexes: Vec<usize>,
}

/// Shows which requests may have a reading that another route takes. Most requests have none, and are searched only
/// once.
#[derive(Clone, Debug, Default)]
struct OtherReadings {
    /// For each pattern by its index, whether another one has a literal segment where this one takes any, or may have a
    /// narrower host.
    may_have_readings: Vec<bool>,
    /// Whether some literal is not plain, so that a plain path may be another spelling of it.
    has_ambiguous_literals: bool,
}

/// Two patterns that take some of the same requests equally specifically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Index of the earlier pattern.
    pub first_index: usize,
    /// Index of the later pattern.
    pub second_index: usize,
}

/// The result of a search for the route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMatch {
    /// The pattern with this index takes the request.
    Route(usize),
    /// Only patterns with other methods take this host and path: 405, see [`RouteTable::allowed_methods`].
    OtherMethod,
    /// No pattern takes this host and path: 404.
    None,
}

impl RouteMatch {
    /// The index of the pattern that takes the request; `None` if none does.
    pub fn route_index(self) -> Option<usize> {
        match self {
            RouteMatch::Route(index) => Some(index),
            RouteMatch::OtherMethod | RouteMatch::None => None,
        }
    }
}

impl RouteTable {
    /// Builds the table of these patterns, each with the index of its route, in ascending order.
    ///
    /// # Errors
    ///
    /// Every pair of patterns with the same host and path that name the same method, or that both take any method. The
    /// names of segments make no difference.
    pub fn build<'p>(
        patterns: impl IntoIterator<Item = (usize, &'p Pattern)>,
    ) -> Result<RouteTable, Vec<Conflict>> {
        let mut table = RouteTable::default();
        let mut conflicts = Vec::new();
        let patterns: Vec<(usize, &Pattern)> = patterns.into_iter().collect();
        for (index, pattern) in patterns.iter().copied() {
            let trie = match pattern.host() {
                HostPattern::Any => &mut table.any_host,
                HostPattern::Exact(name) => table.exact_hosts.entry(name.clone()).or_default(),
                HostPattern::Below(name) => table.hosts_below.entry(name.clone()).or_default(),
            };
            for method in pattern.methods().iter() {
                if !table.named_methods.contains(method) {
                    table.named_methods.push(method.clone());
                }
            }
            let leaf = trie.leaf_mut(pattern.segments());
            let conflicting = leaf
                .iter()
                .filter(|earlier| earlier.methods.has_conflict_with(pattern.methods()));
            conflicts.extend(conflicting.map(|earlier| Conflict {
                first_index: earlier.index,
                second_index: index,
            }));
            table.indexes.push(index);
            leaf.push(LeafPattern {
                methods: pattern.methods().clone(),
                index,
            });
        }
        if conflicts.is_empty() {
            table.other_readings = table.find_other_readings(&patterns);
            Ok(table)
        } else {
            Err(conflicts)
        }
    }

    /// Finds the route of a request. `host` comes from [`super::canonical_host::canonical_host`], with or without a port.
    /// `normal_path` comes from [`super::normalise`].
    pub fn find(&self, host: Option<&str>, method: &Method, normal_path: &str) -> RouteMatch {
        let mut search = trie::ExactSearch {
            method,
            has_path: false,
        };
        let route = self.search_tries(host, |trie| {
            trie.find(Trie::ROOT, segments_of(normal_path), &mut search)
        });
        match route {
            Some(index) => RouteMatch::Route(index),
            None if search.has_path => RouteMatch::OtherMethod,
            None => RouteMatch::None,
        }
    }

    /// Finds the most specific pattern that takes any reading of a request, among `exact_index` and the patterns that
    /// `is_eligible` accepts. The pattern `exact_index` takes the request as it is spelled, and is the result if no
    /// other is more specific. `host` and `normal_path` are those of [`RouteTable::find`].
    pub fn find_folded(
        &self,
        host: Option<&str>,
        method: &Method,
        normal_path: &str,
        exact_index: usize,
        is_eligible: impl Fn(usize) -> bool,
    ) -> usize {
        let may_have_readings = self.other_readings.may_have_readings.get(exact_index);
        let may_have_readings =
            may_have_readings.is_some_and(|may_have_readings| *may_have_readings);
        let has_one_reading = || {
            !self.other_readings.has_ambiguous_literals
                && is_plain(normal_path)
                && !may_have_action(normal_path)
        };
        if !may_have_readings || has_one_reading() {
            return exact_index;
        }
        let search = readings::FoldedSearch {
            method,
            is_eligible: |index| index == exact_index || is_eligible(index),
        };
        let route = self.search_tries(host, |trie| {
            trie.find_folded(
                Trie::ROOT,
                segments_of(normal_path),
                readings::SearchState::default(),
                &search,
            )
        });
        route.unwrap_or(exact_index)
    }

    /// Computes which requests may have another reading.
    fn find_other_readings(&self, patterns: &[(usize, &Pattern)]) -> OtherReadings {
        let tries = self.exact_hosts.values().chain(self.hosts_below.values());
        let mut tries = tries.chain([&self.any_host]);
        let has_ambiguous_literals =
            tries.any(|trie| trie.nodes.iter().any(TrieNode::has_ambiguous_literals));
        let may_have_readings = |pattern: &Pattern| {
            let trie = match pattern.host() {
                HostPattern::Any => Some(&self.any_host),
                HostPattern::Exact(name) => self.exact_hosts.get(name),
                HostPattern::Below(name) => self.hosts_below.get(name),
            };
            let has_literals =
                trie.is_some_and(|trie| trie.has_literals_beside(pattern.segments()));
            let may_have_narrower_host =
                self.depends_on_host() && !matches!(pattern.host(), HostPattern::Exact(_));
            has_literals || may_have_narrower_host
        };
        let index_count = patterns.iter().map(|(index, _)| index + 1).max();
        let mut other_readings = OtherReadings {
            may_have_readings: vec![false; index_count.unwrap_or(0)],
            has_ambiguous_literals,
        };
        for (index, pattern) in patterns {
            other_readings.may_have_readings[*index] = may_have_readings(pattern);
        }
        other_readings
    }

    /// Whether the route of a request depends on its host.
    pub fn depends_on_host(&self) -> bool {
        !self.exact_hosts.is_empty() || !self.hosts_below.is_empty()
    }

    /// Whether requests for the two hosts have the same routes, whatever their paths and methods.
    pub fn has_same_routes(&self, host: Option<&str>, other_host: &str) -> bool {
        let tries_of = |host: Option<&str>| {
            let mut tries: SmallVec<[*const Trie; 4]> = SmallVec::new();
            let no_result: Option<()> = self.search_tries(host, |trie| {
                tries.push(trie);
                None
            });
            debug_assert!(no_result.is_none());
            tries
        };
        tries_of(host) == tries_of(Some(other_host))
    }

    /// Whether the table has the pattern with this index.
    pub fn has_route(&self, index: usize) -> bool {
        self.indexes.binary_search(&index).is_ok()
    }

    /// The methods on which the route of a request may depend: those that some pattern names.
    pub fn named_methods(&self) -> &[Method] {
        &self.named_methods
    }

    /// The methods that patterns name at this host and path, with HEAD beside GET, as the value of `Allow` in a 405.
    /// Empty if no pattern that takes the path names a method.
    pub fn allowed_methods(&self, host: Option<&str>, normal_path: &str) -> String {
        let mut methods: Vec<Method> = Vec::new();
        let no_result: Option<()> = self.search_tries(host, |trie| {
            trie.visit_leaves(Trie::ROOT, segments_of(normal_path), &mut |leaf| {
                for pattern in leaf {
                    for method in pattern.methods.iter() {
                        if !methods.contains(method) {
                            methods.push(method.clone());
                        }
                    }
                }
            });
            None
        });
        debug_assert!(no_result.is_none());
        methods
            .iter()
            .map(Method::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Searches the tries of this host, the most specific first, until `search` has a result.
    fn search_tries<T>(
        &self,
        host: Option<&str>,
        mut search: impl FnMut(&Trie) -> Option<T>,
    ) -> Option<T> {
        if !self.depends_on_host() {
            return search(&self.any_host);
        }
        if let Some(host) = host.map(without_port) {
            if let Some(result) = self.exact_hosts.get(host).and_then(&mut search) {
                return Some(result);
            }
            // `.example.com` is not below example.com, so the first label has at least one character.
            let mut suffix_start = 1;
            while let Some(dot) = host.get(suffix_start..).and_then(|suffix| suffix.find('.')) {
                suffix_start += dot + 1;
                let trie = self.hosts_below.get(&host[suffix_start..]);
                if let Some(result) = trie.and_then(&mut search) {
                    return Some(result);
                }
            }
        }
        search(&self.any_host)
    }
}

#[cfg(test)]
mod tests;
