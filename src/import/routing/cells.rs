//! Keeps the priorities of routes. In other gateways the route of the highest priority takes a request, here the policy with
//! the most specific match. Where these differ, the route of the higher priority gets a match that is specific enough.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use super::region::{intersect_hosts, intersect_methods, intersect_paths};
use crate::route::pattern::{HostPattern, Segment};

/// Maximum number of matches of an import.
pub const MAX_CELLS: usize = 2_000;
/// Maximum number of comparisons of matches, a second or two of work.
const MAX_COMPARISONS: usize = 20_000_000;

/// The requests of one host, one path and some methods at some listeners, which one route takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatchCell {
    /// The host.
    pub host: HostPattern,
    /// The path.
    pub path: Vec<Segment>,
    /// Methods; empty for any.
    pub methods: Vec<String>,
    /// The listeners, one bit each.
    pub listeners: u64,
    /// The index of the region that it comes from.
    pub owner: usize,
    /// Whether its requests get 503 though its route is taken.
    pub is_stub: bool,
}

/// What cells are compared by, of each region.
#[derive(Clone, Copy, Debug)]
pub struct MatchOwner {
    /// The route.
    pub route: usize,
    /// Its priority.
    pub priority: i64,
    /// A number that two routes share if they treat requests alike.
    pub treatment: usize,
}

/// Two routes of which one takes requests that the other would have got by its match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precedence {
    /// The region that gets the requests.
    pub winner: usize,
    /// The region that does not.
    pub loser: usize,
    /// Whether they have one priority, so that nobody can say which of them it is.
    pub is_tie: bool,
}

/// The cells of all routes.
#[derive(Debug, Default)]
pub struct CellTable {
    cells: Vec<MatchCell>,
    comparisons: usize,
    /// Where priorities decide.
    pub precedences: BTreeSet<Precedence>,
}

impl CellTable {
    /// The cells, in the order of their routes' priorities.
    pub fn cells(&self) -> &[MatchCell] {
        &self.cells
    }

    /// Adds a cell. Cells of routes with higher priorities must be there.
    ///
    /// # Errors
    ///
    /// There are more than [`MAX_CELLS`], or they overlap too much.
    pub fn insert(&mut self, cell: MatchCell, owners: &[MatchOwner]) -> Result<(), TooManyCells> {
        let mut queue = vec![cell];
        let mut seen = HashSet::new();
        while let Some(mut cell) = queue.pop() {
            if !seen.insert(cell.clone()) {
                continue;
            }
            self.comparisons = self.comparisons.saturating_add(self.cells.len());
            let is_full = self.cells.len() + queue.len() > MAX_CELLS;
            if is_full || self.comparisons > MAX_COMPARISONS {
                return Err(TooManyCells);
            }
            let Some(own) = owners.get(cell.owner).copied() else {
                continue;
            };
            let mut is_alive = true;
            for index in 0..self.cells.len() {
                let Some(other) = self.cells.get(index) else {
                    break;
                };
                let Some(theirs) = owners.get(other.owner).copied() else {
                    continue;
                };
                let is_same = theirs.route == own.route;
                if (theirs.priority < own.priority && !is_same)
                    || cell.listeners & other.listeners == 0
                {
                    continue;
                }
                let Some(mut common) = intersect(&cell, other) else {
                    continue;
                };
                let is_tie = !is_same
                    && theirs.priority == own.priority
                    && theirs.treatment != own.treatment;
                let is_equal_match = other.host == cell.host && other.path == cell.path;
                if is_same && !is_equal_match {
                    continue;
                }
                if !is_tie && precedence(&cell, other) == Ordering::Less {
                    continue;
                }
                common.is_stub |= is_tie;
                if !is_same {
                    self.precedences.insert(Precedence {
                        winner: other.owner,
                        loser: cell.owner,
                        is_tie,
                    });
                }
                let fills_other = common.host == other.host
                    && common.path == other.path
                    && common.methods == other.methods
                    && common.listeners == other.listeners;
                let fills_cell = common.host == cell.host && common.path == cell.path;
                let methods = common.methods.clone();
                let listeners = common.listeners;
                if fills_other {
                    if is_tie && let Some(other) = self.cells.get_mut(index) {
                        other.is_stub = true;
                    }
                } else if !is_same {
                    queue.push(common);
                }
                if fills_cell {
                    let elsewhere = cell.listeners & !listeners;
                    if elsewhere != 0 {
                        queue.push(MatchCell {
                            listeners: elsewhere,
                            ..cell.clone()
                        });
                    }
                    cell.listeners = listeners;
                    is_alive = without(&mut cell.methods, &methods);
                }
                if !is_alive {
                    break;
                }
            }
            if is_alive {
                self.cells.push(cell);
            }
        }
        Ok(())
    }
}

/// There are more than [`MAX_CELLS`] cells, or they overlap too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyCells;

/// Takes methods out of a match that has them. False if none is left. Any method stays any: a match that names a method is
/// the more specific one.
fn without(methods: &mut Vec<String>, taken: &[String]) -> bool {
    if methods.is_empty() {
        return !taken.is_empty();
    }
    methods.retain(|method| !taken.contains(method));
    !methods.is_empty() && !taken.is_empty()
}

/// The requests of both cells, as a cell of the owner of `other`.
fn intersect(cell: &MatchCell, other: &MatchCell) -> Option<MatchCell> {
    Some(MatchCell {
        host: intersect_hosts(&cell.host, &other.host)?,
        path: intersect_paths(&cell.path, &other.path)?,
        methods: intersect_methods(&cell.methods, &other.methods)?,
        listeners: cell.listeners & other.listeners,
        owner: other.owner,
        is_stub: other.is_stub,
    })
}

/// Which of two cells gets the requests that both take: `Greater` for the first.
fn precedence(one: &MatchCell, other: &MatchCell) -> Ordering {
    let host_rank = |host: &HostPattern| match host {
        HostPattern::Any => (0, 0),
        HostPattern::Below(name) => (1, name.len()),
        HostPattern::Exact(_) => (2, 0),
    };
    let hosts = host_rank(&one.host).cmp(&host_rank(&other.host));
    hosts.then_with(|| {
        for index in 0..=one.path.len().max(other.path.len()) {
            let rank = |path: &[Segment]| match path.get(index) {
                Some(Segment::Literal(_)) | None => 2,
                Some(Segment::One(_)) => 1,
                Some(Segment::Rest) => 0,
            };
            let ranks = rank(&one.path).cmp(&rank(&other.path));
            if ranks != Ordering::Equal {
                return ranks;
            }
        }
        let has_methods = |cell: &MatchCell| !cell.methods.is_empty();
        has_methods(one).cmp(&has_methods(other))
    })
}

#[cfg(test)]
mod tests {
    use super::super::region::{parse_path, path_text};
    use super::*;

    fn cell(owner: usize, host: &str, path: &str, methods: &[&str], listeners: u64) -> MatchCell {
        MatchCell {
            host: HostPattern::parse(host).expect("a host"),
            path: parse_path(path).expect("a path"),
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            listeners,
            owner,
            is_stub: false,
        }
    }

    /// The cells of routes that all treat requests differently, with these priorities.
    fn table(cells: &[MatchCell], priorities: &[i64]) -> Vec<String> {
        let owners: Vec<MatchOwner> = priorities
            .iter()
            .enumerate()
            .map(|(index, priority)| MatchOwner {
                route: index,
                priority: *priority,
                treatment: index,
            })
            .collect();
        let mut table = CellTable::default();
        for cell in cells {
            table.insert(cell.clone(), &owners).expect("few cells");
        }
        let text = |cell: &MatchCell| {
            format!(
                "{} {} {}{}@{}{}",
                cell.owner,
                cell.host,
                if cell.methods.is_empty() {
                    String::new()
                } else {
                    cell.methods.join(",") + " "
                },
                path_text(&cell.path),
                cell.listeners,
                if cell.is_stub { " stub" } else { "" }
            )
        };
        table.cells().iter().map(text).collect()
    }

    #[test]
    fn specific_matches_of_high_priority_need_nothing() {
        let cells = [cell(0, "a.b", "/x/**", &[], 1), cell(1, "*", "/**", &[], 1)];
        assert_eq!(table(&cells, &[9, 1]), ["0 a.b /x/**@1", "1 * /**@1"]);
    }

    #[test]
    fn broad_matches_of_high_priority_take_what_they_took() {
        let cells = [
            cell(0, "*", "/api/**", &[], 1),
            cell(1, "a.b", "/**", &[], 1),
        ];
        assert_eq!(
            table(&cells, &[9, 1]),
            ["0 * /api/**@1", "1 a.b /**@1", "0 a.b /api/**@1"]
        );
        let cells = [cell(0, "*", "/**", &[], 1), cell(1, "a.b", "/x", &[], 3)];
        assert_eq!(
            table(&cells, &[9, 1]),
            ["0 * /**@1", "1 a.b /x@2", "0 a.b /x@1"]
        );
    }

    #[test]
    fn methods_are_parted() {
        let cells = [cell(0, "*", "/**", &["GET"], 1), cell(1, "*", "/x", &[], 1)];
        assert_eq!(
            table(&cells, &[9, 1]),
            ["0 * GET /**@1", "1 * /x@1", "0 * GET /x@1"]
        );
        let cells = [
            cell(0, "*", "/x", &["GET"], 1),
            cell(1, "*", "/x", &["GET", "POST"], 1),
        ];
        assert_eq!(table(&cells, &[9, 1]), ["0 * GET /x@1", "1 * POST /x@1"]);
    }

    #[test]
    fn three_routes_in_order() {
        let cells = [
            cell(0, "*", "/a/**", &[], 1),
            cell(1, "*", "/*/b/**", &[], 1),
            cell(2, "h.i", "/**", &[], 1),
        ];
        let all = table(&cells, &[9, 8, 1]);
        // What all three take goes to the first.
        assert!(
            all.contains(&"0 h.i /a/b/**@1".to_owned())
                || all.contains(&"0 h.i /a/**@1".to_owned()),
            "{all:?}"
        );
        assert!(all.contains(&"1 h.i /*/b/**@1".to_owned()), "{all:?}");
    }

    #[test]
    fn one_priority_is_no_order() {
        let cells = [cell(0, "*", "/a/**", &[], 1), cell(1, "*", "/a/**", &[], 1)];
        assert_eq!(table(&cells, &[5, 5]), ["0 * /a/**@1 stub"]);
    }
}
