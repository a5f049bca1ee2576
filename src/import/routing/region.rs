//! The requests that a rule takes, as hosts, paths and methods that policies can name, and how exactly.

use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;

use ipnet::IpNet;

use crate::import::report::printable;
use crate::route::pattern::{HostPattern, MethodSet, Pattern, Segment, have_common_path};

/// Maximum number of notes of a region.
const MAX_NOTES: usize = 12;
/// Maximum number of segments of a path.
const MAX_PATH_SEGMENTS: usize = 32;
/// Maximum number of methods.
const MAX_METHODS: usize = 16;
/// Maximum number of characters of a reason, which becomes the body of responses.
const MAX_REASON_CHARS: usize = 200;

/// How exactly a region says what a rule takes. The order is that of doubt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The rule takes these requests.
    Exact,
    /// The rule takes about these requests, and hardly any others.
    Approximate,
    /// The rule takes only some of these requests: why policies cannot say which.
    Superset(String),
}

/// A set of requests: those that match a host, a path and a method each.
#[derive(Clone, Debug)]
pub struct Region {
    /// The hosts that requests name; any one of them.
    pub hosts: Vec<HostPattern>,
    /// Segments of paths.
    pub paths: Vec<Vec<Segment>>,
    /// Methods; empty for any.
    pub methods: Vec<String>,
    /// The only networks of clients; `None` for all.
    pub clients: Option<Vec<IpNet>>,
    /// How exact this is.
    pub fit: Fit,
    /// What differs.
    pub notes: Vec<String>,
}

impl Region {
    /// All requests.
    pub fn everything() -> Region {
        Region {
            hosts: vec![HostPattern::Any],
            paths: vec![vec![Segment::Rest]],
            methods: Vec::new(),
            clients: None,
            fit: Fit::Exact,
            notes: Vec::new(),
        }
    }

    /// All requests, of which the rule takes only some.
    pub fn some_of_everything(reason: &str) -> Region {
        Region {
            fit: Fit::Superset(printable(reason, MAX_REASON_CHARS)),
            ..Region::everything()
        }
    }

    /// Requests of these methods, in any case of letters.
    pub fn of_methods<'a>(methods: impl IntoIterator<Item = &'a str>) -> Region {
        let methods: BTreeSet<String> = methods.into_iter().map(str::to_ascii_uppercase).collect();
        if methods.len() > MAX_METHODS {
            return Region::some_of_everything("it has too many methods for a match");
        }
        if !methods
            .iter()
            .all(|method| MethodSet::parse(method).is_ok())
        {
            return Region::some_of_everything("its method has no counterpart in a match");
        }
        let mut notes = Vec::new();
        if methods.contains("GET") && !methods.contains("HEAD") {
            notes.push("`HEAD` goes where `GET` goes".into());
        }
        Region {
            methods: methods.into_iter().collect(),
            notes,
            ..Region::everything()
        }
    }

    /// The number of pairs of a host and a path.
    pub fn size(&self) -> usize {
        self.hosts.len().saturating_mul(self.paths.len())
    }

    /// The number of comparisons by which [`Region::intersect`] finds the requests of both.
    pub fn intersect_work(&self, other: &Region) -> usize {
        let clients = |region: &Region| region.clients.as_ref().map_or(0, Vec::len);
        let pairs = [
            (self.hosts.len(), other.hosts.len()),
            (self.paths.len(), other.paths.len()),
            (self.methods.len(), other.methods.len()),
            (clients(self), clients(other)),
        ];
        let pairs = pairs.into_iter().map(|(a, b)| a.saturating_mul(b));
        pairs.fold(8, usize::saturating_add)
    }

    /// The requests of both; `None` if there are none.
    pub fn intersect(&self, other: &Region) -> Option<Region> {
        let hosts = pairs(&self.hosts, &other.hosts, intersect_hosts);
        let paths = pairs(&self.paths, &other.paths, |a, b| intersect_paths(a, b));
        let methods = intersect_methods(&self.methods, &other.methods)?;
        if hosts.is_empty() || paths.is_empty() {
            return None;
        }
        let clients = match (&self.clients, &other.clients) {
            (Some(a), Some(b)) => Some(intersect_networks(a, b)),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let mut notes = self.notes.clone();
        for note in &other.notes {
            if notes.len() < MAX_NOTES && !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        Some(Region {
            hosts,
            paths,
            methods,
            clients,
            fit: self.fit.clone().max(other.fit.clone()),
            notes,
        })
    }

    /// Whether some request may be of both.
    pub fn overlaps(&self, other: &Region) -> bool {
        intersect_methods(&self.methods, &other.methods).is_some()
            && any_pair(&self.hosts, &other.hosts, |a, b| {
                intersect_hosts(a, b).is_some()
            })
            && any_pair(&self.paths, &other.paths, |a, b| have_common_path(a, b))
    }
}

fn any_pair<T>(left: &[T], right: &[T], is_common: impl Fn(&T, &T) -> bool) -> bool {
    left.iter().any(|a| right.iter().any(|b| is_common(a, b)))
}

/// The intersections of each pair, each once.
fn pairs<T: Clone + Eq + Hash>(
    left: &[T],
    right: &[T],
    common: impl Fn(&T, &T) -> Option<T>,
) -> Vec<T> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for a in left {
        for both in right.iter().filter_map(|b| common(a, b)) {
            if seen.insert(both.clone()) {
                found.push(both);
            }
        }
    }
    found
}

/// The hosts of both patterns.
pub fn intersect_hosts(a: &HostPattern, b: &HostPattern) -> Option<HostPattern> {
    if a.is_superset_of(b) {
        return Some(b.clone());
    }
    b.is_superset_of(a).then(|| a.clone())
}

/// The paths of both patterns.
pub fn intersect_paths(a: &[Segment], b: &[Segment]) -> Option<Vec<Segment>> {
    let mut both = Vec::new();
    for index in 0..=a.len().max(b.len()) {
        match (a.get(index), b.get(index)) {
            (None, None) => return Some(both),
            (Some(Segment::Rest), _) => {
                both.extend(b.get(index..).unwrap_or(&[]).iter().cloned());
                return Some(both);
            }
            (_, Some(Segment::Rest)) => {
                both.extend(a.get(index..).unwrap_or(&[]).iter().cloned());
                return Some(both);
            }
            (Some(one), Some(other)) => both.push(match (one, other) {
                (Segment::One(_), other) => other.clone(),
                (one, Segment::One(_)) => one.clone(),
                (one, other) if one == other => one.clone(),
                _ => return None,
            }),
            _ => return None,
        }
    }
    None
}

/// The methods of both, where none stands for any.
pub fn intersect_methods(a: &[String], b: &[String]) -> Option<Vec<String>> {
    if a.is_empty() {
        return Some(b.to_vec());
    }
    if b.is_empty() {
        return Some(a.to_vec());
    }
    let both: Vec<String> = a
        .iter()
        .filter(|method| b.contains(method))
        .cloned()
        .collect();
    (!both.is_empty()).then_some(both)
}

/// The addresses that are in both lists of networks; may be empty.
pub fn intersect_networks(a: &[IpNet], b: &[IpNet]) -> Vec<IpNet> {
    pairs(a, b, |one, other| {
        if one.contains(other) {
            return Some(*other);
        }
        other.contains(one).then_some(*one)
    })
}

/// The segments of a path as `match` writes it; `None` for no path, and for one of too many segments.
pub fn parse_path(path: &str) -> Option<Vec<Segment>> {
    let pattern = Pattern::parse(path).ok()?;
    let segments = pattern.segments();
    (segments.len() <= MAX_PATH_SEGMENTS).then(|| segments.to_vec())
}

/// Segments as `match` writes them.
pub fn path_text(segments: &[Segment]) -> String {
    if segments.is_empty() {
        return "/".into();
    }
    let text = |segment: &Segment| match segment {
        Segment::Literal(text) => format!("/{text}"),
        Segment::One(_) => "/*".into(),
        Segment::Rest => "/**".into(),
    };
    segments.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: &str, b: &str, expected: Option<&str>) {
        let (a, b) = (
            parse_path(a).expect("a path"),
            parse_path(b).expect("a path"),
        );
        for (one, other) in [(&a, &b), (&b, &a)] {
            let both = intersect_paths(one, other).map(|path| path_text(&path));
            assert_eq!(both.as_deref(), expected);
        }
    }

    #[test]
    fn common_paths() {
        check("/a/**", "/**", Some("/a/**"));
        check("/a/*/c", "/*/b/**", Some("/a/b/c"));
        check("/a", "/a/**", Some("/a"));
        check("/a", "/b/**", None);
        check("/a/b", "/a", None);
        check("/", "/**", Some("/"));
    }
}
