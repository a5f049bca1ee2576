//! The routes of a frontend: a cell for each host, path and method that its rules name, joined where they are served alike.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::acl_test::{AclTest, RuleCondition};
use super::action::RuleAction;
use super::eval::{CellOutcome, ConditionReader, MAX_WORK, RequestCell, RuleSection};
use super::table::StickTables;
use super::walk::RuleWalker;
use crate::import::model::{ImportDraft, RouteDraft, UpstreamDraft};
use crate::import::report::Origin;
use crate::route::pattern::HostPattern;

/// Maximum number of paths, and of hosts, that the rules of a frontend name.
const MAX_NAMES: usize = 1_000;
/// Maximum number of hosts, paths and methods together.
const MAX_CELLS: usize = 50_000;
/// Maximum number of matches of a route; a policy has at most 64 pairs of a match and a host.
const MAX_PATHS_PER_ROUTE: usize = 32;

/// Listeners of a frontend that its rules do not tell apart.
#[derive(Clone, Debug)]
pub struct ListenerGroup {
    /// Their names; empty if there is only one group.
    pub names: Vec<String>,
    /// Whether they have TLS; `None` if some do.
    pub is_tls: Option<bool>,
    /// Their port, if they have one.
    pub port: Option<u16>,
}

/// What the routes of all frontends need.
pub struct CellRoutes<'c, 't> {
    /// The sections.
    pub sections: &'c [RuleSection],
    /// The upstreams of sections.
    pub upstreams: &'c [Option<UpstreamDraft>],
    /// Where sections begin.
    pub origins: &'c [Origin],
    /// Tests conditions.
    pub reader: ConditionReader<'t>,
    /// The tables.
    pub tables: &'c mut StickTables,
    /// The configuration that is made.
    pub draft: &'c mut ImportDraft,
    /// Whether a listener has TLS.
    pub has_tls: bool,
    /// Lists of networks as policies have them.
    pub texts: HashMap<Vec<Vec<usize>>, Option<Rc<Vec<String>>>>,
}

/// The outcomes of the cells of one host: for each path, for each method and the rest.
type HostGrid = Vec<Vec<usize>>;

impl CellRoutes<'_, '_> {
    /// Adds the routes of a frontend at one group of its listeners.
    ///
    /// # Errors
    ///
    /// Too many hosts, paths or conditions.
    pub fn add(&mut self, frontend: usize, group: &ListenerGroup) -> Result<(), String> {
        let names = self.named_parts(frontend)?;
        let broader = self.broader_paths(&names.paths);
        let mut outcomes: Vec<CellOutcome> = Vec::new();
        let mut index: HashMap<CellOutcome, usize> = HashMap::new();
        let mut grids: Vec<HostGrid> = Vec::with_capacity(names.hosts.len());
        for (number, host) in names.hosts.iter().enumerate() {
            let mut grid = Vec::with_capacity(names.paths.len());
            for path in &names.paths {
                let mut row = Vec::with_capacity(names.methods.len() + 1);
                let methods = names.methods.iter().map(|method| Some(method.as_str()));
                for method in methods.chain([None]) {
                    let cell = RequestCell {
                        host: (self.host_number(frontend, number), host),
                        path: *path,
                        method,
                        is_tls: group.is_tls,
                        port: group.port,
                    };
                    let outcome = RuleWalker {
                        sections: self.sections,
                        reader: &mut self.reader,
                        tables: &mut *self.tables,
                        draft: &mut *self.draft,
                    }
                    .outcome(frontend, &cell);
                    let next = outcomes.len();
                    let known = *index.entry(outcome).or_insert_with_key(|outcome| {
                        outcomes.push(outcome.clone());
                        next
                    });
                    row.push(known);
                }
                grid.push(row);
            }
            if self.reader.work > MAX_WORK {
                return Err("its rules have too many conditions for its hosts and paths".into());
            }
            grids.push(grid);
        }
        // A host that is served as all others needs no policies of its own.
        let any = grids.first().cloned().unwrap_or_default();
        let has_below = names
            .hosts
            .iter()
            .any(|host| matches!(host, HostPattern::Below(_)));
        let mut merged: Vec<(Vec<String>, HostGrid)> = Vec::new();
        for (number, (host, grid)) in names.hosts.iter().zip(grids).enumerate() {
            if number > 0 && grid == any && !has_below {
                continue;
            }
            let text = host.to_string();
            match merged
                .iter_mut()
                .find(|(_, other)| number > 0 && *other == grid)
            {
                Some((hosts, _)) if !hosts.is_empty() => hosts.push(text),
                _ if number == 0 => merged.push((Vec::new(), grid)),
                _ => merged.push((vec![text], grid)),
            }
        }
        for (hosts, grid) in merged {
            self.add_host(frontend, group, &hosts, &grid, &names, &broader, &outcomes);
        }
        Ok(())
    }

    /// A number of a host that no other frontend has for another one.
    fn host_number(&self, frontend: usize, number: usize) -> usize {
        frontend
            .saturating_mul(MAX_NAMES + 1)
            .saturating_add(number)
    }

    /// The hosts, paths and methods that conditions of the frontend and of its backends name.
    fn named_parts(&self, frontend: usize) -> Result<NamedParts, String> {
        let mut sections = vec![frontend];
        let own = self.sections.get(frontend);
        let choices = own.map_or(&[][..], |section| &section.choices);
        sections.extend(choices.iter().filter_map(|choice| choice.target));
        sections.sort_unstable();
        sections.dedup();
        let mut tests: HashSet<usize> = HashSet::new();
        let mut names = NamedParts {
            hosts: vec![HostPattern::Any],
            ..NamedParts::default()
        };
        let mut paths: HashSet<usize> = HashSet::new();
        // Terms of one name share their tests.
        let mut seen: HashSet<*const Vec<usize>> = HashSet::new();
        let mut add = |condition: &RuleCondition| {
            for term in condition.iter().flatten() {
                if seen.insert(Rc::as_ptr(&term.tests)) {
                    tests.extend(term.tests.iter());
                }
            }
        };
        for section in sections
            .iter()
            .filter_map(|section| self.sections.get(*section))
        {
            let rules = section.rules.iter();
            for rule in rules.chain(section.choices.iter().map(|choice| &choice.rule)) {
                add(&rule.condition);
                if let RuleAction::Path { paths: own, .. } = &rule.action {
                    paths.insert(*own);
                }
            }
        }
        let mut hosts: HashSet<HostPattern> = HashSet::new();
        let mut methods: HashSet<&String> = HashSet::new();
        for test in tests
            .iter()
            .filter_map(|test| self.reader.table.tests.get(*test))
        {
            match test {
                AclTest::Path(indexes) => paths.extend(indexes),
                AclTest::Host(own) => hosts.extend(own.iter().cloned()),
                AclTest::Method(own) => methods.extend(own),
                _ => {}
            }
        }
        let root = self
            .reader
            .table
            .paths
            .iter()
            .position(|(text, _)| text == "/**");
        paths.extend(root);
        names.paths = paths.into_iter().collect();
        names.paths.sort_unstable();
        let mut hosts: Vec<HostPattern> = hosts.into_iter().collect();
        hosts.sort_by_key(ToString::to_string);
        names.hosts.extend(hosts);
        names.methods = methods.into_iter().cloned().collect();
        // A match of GET takes HEAD too.
        if names.methods.iter().any(|method| method == "GET")
            && !names.methods.iter().any(|method| method == "HEAD")
        {
            names.methods.push("HEAD".into());
        }
        names.methods.sort_unstable();
        if names.hosts.len() > MAX_NAMES || names.paths.len() > MAX_NAMES {
            return Err(format!(
                "its rules name more than {MAX_NAMES} hosts or paths"
            ));
        }
        let cells = names.hosts.len() * names.paths.len() * (names.methods.len() + 1);
        match cells > MAX_CELLS {
            true => Err(format!(
                "its hosts, paths and methods are {cells} combinations, more than {MAX_CELLS}"
            )),
            false => Ok(names),
        }
    }

    /// For each path, the places of those that take all of it.
    fn broader_paths(&self, paths: &[usize]) -> Vec<Vec<usize>> {
        let patterns: Vec<_> = paths
            .iter()
            .filter_map(|path| self.reader.table.paths.get(*path))
            .map(|(_, pattern)| pattern)
            .collect();
        patterns
            .iter()
            .map(|own| {
                let places = patterns.iter().enumerate();
                places
                    .filter(|(_, other)| other.is_broader_than(own))
                    .map(|(place, _)| place)
                    .collect()
            })
            .collect()
    }

    #[allow(clippy::too_many_arguments)]
    fn add_host(
        &mut self,
        frontend: usize,
        group: &ListenerGroup,
        hosts: &[String],
        grid: &HostGrid,
        names: &NamedParts,
        broader: &[Vec<usize>],
        outcomes: &[CellOutcome],
    ) {
        // Paths that are served alike, in the order of the first one of them.
        let mut rows: Vec<(&Vec<usize>, Vec<String>)> = Vec::new();
        for (place, row) in grid.iter().enumerate() {
            let Some((text, _)) = names
                .paths
                .get(place)
                .and_then(|path| self.reader.table.paths.get(*path))
            else {
                continue;
            };
            let above = broader.get(place).map_or(&[][..], Vec::as_slice);
            let is_as_above =
                !above.is_empty() && above.iter().all(|other| grid.get(*other) == Some(row));
            if is_as_above {
                continue;
            }
            match rows.iter_mut().find(|(other, _)| *other == row) {
                Some((_, paths)) => paths.push(text.clone()),
                None => rows.push((row, vec![text.clone()])),
            }
        }
        for (row, mut paths) in rows {
            paths.sort_unstable();
            let Some((rest, by_method)) = row.split_last() else {
                continue;
            };
            let mut groups: Vec<(usize, Vec<String>)> = Vec::new();
            for (outcome, method) in by_method.iter().zip(&names.methods) {
                match groups.iter_mut().find(|(other, _)| other == outcome) {
                    Some((_, methods)) => methods.push(method.clone()),
                    None => groups.push((*outcome, vec![method.clone()])),
                }
            }
            let is_get_apart = groups.iter().any(|(outcome, methods)| {
                outcome != rest && methods.iter().any(|method| method == "GET")
            });
            for (outcome, methods) in &mut groups {
                if outcome == rest {
                    methods.retain(|method| is_get_apart && method == "HEAD");
                }
            }
            groups.retain(|(_, methods)| !methods.is_empty());
            groups.push((*rest, Vec::new()));
            for paths in paths.chunks(MAX_PATHS_PER_ROUTE) {
                for (outcome, methods) in &groups {
                    let Some(outcome) = outcomes.get(*outcome) else {
                        continue;
                    };
                    let route = RouteDraft {
                        methods: methods.clone(),
                        paths: paths.to_vec(),
                        hosts: hosts.to_vec(),
                        listeners: group.names.clone(),
                        ..self.route(frontend, group, outcome)
                    };
                    let name = self.route_name(frontend, &route);
                    self.draft.routes.push(RouteDraft { name, ..route });
                }
            }
        }
    }
}

/// Hosts, paths and methods that rules name.
#[derive(Debug, Default)]
struct NamedParts {
    hosts: Vec<HostPattern>,
    paths: Vec<usize>,
    methods: Vec<String>,
}
