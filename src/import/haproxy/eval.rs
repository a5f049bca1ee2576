//! What becomes of the requests with one host, path and method at one listener: the rules are gone through as HAProxy goes
//! through them.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::acl_test::{AclTable, AclTerm, AclTest, RuleCondition};
use super::action::{RuleAction, RulePhase, SectionRule};
use super::matching::includes;
use crate::import::model::IdentityPlace;
use crate::import::report::Fate;
use crate::route::pattern::{HostPattern, have_common_path};

/// A frontend or backend, as far as its rules go.
#[derive(Debug, Default)]
pub struct RuleSection {
    /// Its name.
    pub name: String,
    /// Its rules, by phase.
    pub rules: Vec<SectionRule>,
    /// Which backend gets which requests.
    pub choices: Vec<BackendChoice>,
    /// Whether it has a server that is left.
    pub has_servers: bool,
    /// Whether its connections begin with a header of the PROXY protocol.
    pub has_proxy_header: bool,
}

impl RuleSection {
    /// Whether it refuses or counts requests, or cannot serve them.
    pub fn is_restrictive(&self) -> bool {
        let is_harmless = |rule: &SectionRule| {
            matches!(
                rule.action,
                RuleAction::Allow
                    | RuleAction::Header(..)
                    | RuleAction::Field(_)
                    | RuleAction::Host(_)
            )
        };
        !self.has_servers || !self.rules.iter().all(is_harmless)
    }
}

/// `use_backend` or `default_backend`.
#[derive(Clone, Debug)]
pub struct BackendChoice {
    /// The rule as it stands, without an action.
    pub rule: SectionRule,
    /// Whether it is `default_backend`.
    pub is_default: bool,
    /// The name of the section; `None` if it depends on the environment.
    pub name: Option<String>,
    /// The index of the section; `None` if it is not known.
    pub target: Option<usize>,
}

/// A rule by its section and its index; the last is true for a choice of a backend.
pub type RuleId = (usize, usize, bool);

/// What a line does not do as in HAProxy: it is changed, or left.
pub type RuleMark = (RuleId, Fate, String);

/// What becomes of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CellOutcome {
    /// What happens in the end.
    pub action: CellAction,
    /// Lists of denied addresses.
    pub deny: Vec<usize>,
    /// Lists of which each must have the address; each is a union.
    pub allow: Vec<Vec<usize>>,
    /// Tests of what a request must have.
    pub require: Vec<usize>,
    /// Limits by their indexes in the draft.
    pub limits: Vec<usize>,
    /// Rules that change header fields, in their order.
    pub headers: Vec<RuleId>,
    /// The rule that sets the host.
    pub host: Option<RuleId>,
    /// The rule that changes the path.
    pub path: Option<RuleId>,
    /// The section that would serve the requests.
    pub backend: Option<usize>,
}

/// What happens to requests in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CellAction {
    /// The backend of the outcome serves them.
    #[default]
    Forward,
    /// The rule answers them.
    Rule(RuleId),
    /// Something of them is not imported.
    Stub(String),
}

/// The requests that are looked at.
#[derive(Clone, Copy, Debug)]
pub struct RequestCell<'c> {
    /// The most specific host of all that the rules name.
    pub host: (usize, &'c HostPattern),
    /// The most specific path, by its index.
    pub path: usize,
    /// The method; `None` for all that no rule names.
    pub method: Option<&'c str>,
    /// Whether it has come over TLS, if the listener says so.
    pub is_tls: Option<bool>,
    /// The port of the listener, if there is one.
    pub port: Option<u16>,
}

/// Whether a test holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It does for some of the requests.
    Unclear,
    /// It does for addresses of these lists.
    Address(Vec<usize>),
    /// It does if the test with this index finds something.
    Present(usize),
    /// It does if the counter of the test with this index is above its bound.
    Rate(usize),
}

/// Terms that must all hold, as far as they depend on more than the cell.
#[derive(Clone, Debug, Default)]
pub struct OpenTerms {
    /// The address is in one of these lists.
    pub only: Option<Vec<usize>>,
    /// The address is in none of these.
    pub except: Vec<usize>,
    /// Tests of what a request has, or has not.
    pub present: Vec<(usize, bool)>,
    /// Counters that are above their bounds.
    pub rates: Vec<usize>,
    /// Whether a counter must be below its bound.
    pub is_below: bool,
    /// Whether something else must hold.
    pub is_unclear: bool,
    /// Whether all of that is negated.
    pub is_unclear_negated: bool,
}

impl OpenTerms {
    /// Whether all requests of the cell are meant.
    pub fn is_empty(&self) -> bool {
        self.only.is_none()
            && self.except.is_empty()
            && self.present.is_empty()
            && self.rates.is_empty()
            && !self.is_unclear
    }

    /// Whether nothing but addresses is open.
    pub fn is_by_address(&self) -> bool {
        self.present.is_empty() && self.rates.is_empty() && !self.is_unclear
    }
}

/// What changes while the rules are gone through.
#[derive(Clone, Debug, Default)]
pub struct ChangedParts {
    /// The path.
    pub path: bool,
    /// The host.
    pub host: bool,
    /// The address.
    pub address: bool,
    /// Header fields, by their names in lower case.
    pub fields: HashSet<String>,
    /// Any header field.
    pub any_field: bool,
}

impl ChangedParts {
    /// Notes that a header field changes; `None` stands for any field.
    pub fn add_field(&mut self, name: Option<&str>) {
        match name {
            Some(name) => {
                self.host |= name == "host";
                self.fields.insert(name.to_owned());
            }
            None => {
                self.host = true;
                self.any_field = true;
            }
        }
    }

    /// Whether what stands at a place may have changed.
    pub fn has_place(&self, place: &IdentityPlace) -> bool {
        match place {
            IdentityPlace::Header(name) => self.any_field || self.fields.contains(name),
            IdentityPlace::Cookie(_) => self.any_field || self.fields.contains("cookie"),
            _ => false,
        }
    }
}

/// Maximum number of tests, and of steps through rules, of an input.
pub const MAX_WORK: u64 = 30_000_000;

/// Tests whether conditions hold in cells.
#[derive(Debug)]
pub struct ConditionReader<'t> {
    /// All tests.
    pub table: &'t AclTable,
    path_truths: HashMap<(usize, usize), Truth>,
    host_truths: HashMap<(usize, usize), Truth>,
    /// The number of tests and steps so far.
    pub work: u64,
    /// What lines do not do as in HAProxy.
    pub marks: BTreeSet<RuleMark>,
    /// Rules that count requests for a limit.
    pub used: HashSet<RuleId>,
}

impl<'t> ConditionReader<'t> {
    /// A reader of the tests of a table.
    pub fn new(table: &'t AclTable) -> ConditionReader<'t> {
        ConditionReader {
            table,
            path_truths: HashMap::new(),
            host_truths: HashMap::new(),
            work: 0,
            marks: BTreeSet::new(),
            used: HashSet::new(),
        }
    }

    /// Notes that a line is changed or left.
    pub fn mark(&mut self, rule: RuleId, fate: Fate, note: impl Into<String>) {
        self.marks.insert((rule, fate, note.into()));
    }

    /// The alternatives of a condition that may hold in a cell, with what they depend on.
    pub fn open_terms(
        &mut self,
        condition: &RuleCondition,
        cell: &RequestCell<'_>,
        changed: &ChangedParts,
    ) -> Vec<OpenTerms> {
        let mut open = Vec::new();
        self.work += 1 + condition.len() as u64;
        if self.work > MAX_WORK {
            return open;
        }
        for terms in condition {
            if let Some(terms) = self.open_alternative(terms, cell, changed) {
                open.push(terms);
            }
        }
        open
    }

    fn open_alternative(
        &mut self,
        terms: &[AclTerm],
        cell: &RequestCell<'_>,
        changed: &ChangedParts,
    ) -> Option<OpenTerms> {
        let mut open = OpenTerms {
            is_unclear_negated: true,
            ..OpenTerms::default()
        };
        let is_unclear = |open: &mut OpenTerms, is_negated: bool| {
            open.is_unclear = true;
            open.is_unclear_negated &= is_negated;
        };
        for term in terms {
            match (self.term(term, cell, changed), term.is_negated) {
                (Truth::Yes, false) | (Truth::No, true) => {}
                (Truth::Yes, true) | (Truth::No, false) => return None,
                (Truth::Address(lists), false) if open.only.is_none() => open.only = Some(lists),
                (Truth::Address(_), false) => is_unclear(&mut open, false),
                (Truth::Address(lists), true) => open.except.extend(lists),
                (Truth::Present(test), is_negated) => open.present.push((test, !is_negated)),
                (Truth::Rate(test), is_negated) => {
                    let is_above = self.rate(test).is_some_and(|rate| rate.is_above);
                    match is_above != is_negated {
                        true => open.rates.push(test),
                        // It holds below the bound.
                        false => {
                            open.rates.push(test);
                            open.is_below = true;
                            is_unclear(&mut open, false);
                        }
                    }
                }
                (Truth::Unclear, is_negated) => is_unclear(&mut open, is_negated),
            }
        }
        Some(open)
    }

    /// The counter of a test.
    pub fn rate(&self, test: usize) -> Option<&'t super::acl_test::RateTest> {
        match self.table.tests.get(test) {
            Some(AclTest::Rate(rate)) => Some(rate),
            _ => None,
        }
    }

    /// Whether one of the tests of a term holds, before it is negated.
    fn term(&mut self, term: &AclTerm, cell: &RequestCell<'_>, changed: &ChangedParts) -> Truth {
        let mut lists: Vec<usize> = Vec::new();
        let mut other: Option<Truth> = None;
        for test in term.tests.iter() {
            if self.work > MAX_WORK {
                return Truth::Unclear;
            }
            match self.test(*test, cell, changed) {
                Truth::Yes => return Truth::Yes,
                Truth::No => {}
                Truth::Address(more) => lists.extend(more),
                truth => match other {
                    None => other = Some(truth),
                    Some(_) => other = Some(Truth::Unclear),
                },
            }
        }
        match (lists.is_empty(), other) {
            (true, None) => Truth::No,
            (true, Some(truth)) => truth,
            (false, None) => Truth::Address(lists),
            (false, Some(_)) => Truth::Unclear,
        }
    }

    fn test(&mut self, index: usize, cell: &RequestCell<'_>, changed: &ChangedParts) -> Truth {
        self.work += 1;
        let of = |holds: bool| if holds { Truth::Yes } else { Truth::No };
        match self.table.tests.get(index) {
            None | Some(AclTest::Unknown(_)) => Truth::Unclear,
            Some(AclTest::Constant(holds)) => of(*holds),
            Some(AclTest::Path(_)) if changed.path => Truth::Unclear,
            Some(AclTest::Host(_)) if changed.host => Truth::Unclear,
            Some(AclTest::Address(_)) if changed.address => Truth::Unclear,
            Some(AclTest::Path(paths)) => {
                if let Some(truth) = self.path_truths.get(&(index, cell.path)) {
                    return truth.clone();
                }
                self.work += paths.len() as u64;
                let truth = self.path_truth(paths, cell.path);
                self.path_truths.insert((index, cell.path), truth.clone());
                truth
            }
            Some(AclTest::Host(hosts)) => {
                let (number, host) = cell.host;
                if let Some(truth) = self.host_truths.get(&(index, number)) {
                    return truth.clone();
                }
                self.work += hosts.len() as u64;
                let truth = of(hosts.iter().any(|other| other.is_superset_of(host)));
                self.host_truths.insert((index, number), truth.clone());
                truth
            }
            Some(AclTest::Method(methods)) => of(cell
                .method
                .is_some_and(|own| methods.iter().any(|method| method == own))),
            Some(AclTest::Tls) => cell.is_tls.map_or(Truth::Unclear, of),
            Some(AclTest::Port(ports)) => match cell.port {
                Some(port) => of(ports.contains(&port)),
                None => Truth::Unclear,
            },
            Some(AclTest::Address(list)) => Truth::Address(vec![*list]),
            Some(AclTest::Present(place)) if changed.has_place(place) => Truth::Unclear,
            Some(AclTest::Present(_)) => Truth::Present(index),
            Some(AclTest::Rate(_)) => Truth::Rate(index),
        }
    }

    fn path_truth(&self, paths: &[usize], cell: usize) -> Truth {
        let Some((_, own)) = self.table.paths.get(cell) else {
            return Truth::Unclear;
        };
        let mut truth = Truth::No;
        for (_, path) in paths.iter().filter_map(|path| self.table.paths.get(*path)) {
            if includes(path, own) {
                return Truth::Yes;
            }
            // A narrower path has a cell of its own.
            if !own.is_broader_than(path) && have_common_path(own.segments(), path.segments()) {
                truth = Truth::Unclear;
            }
        }
        truth
    }
}

/// The phases of a section that has the connection of the client, in their order.
pub const PHASES: [RulePhase; 6] = [
    RulePhase::Connection,
    RulePhase::Session,
    RulePhase::Content,
    RulePhase::Page,
    RulePhase::Request,
    RulePhase::Redirect,
];
