//! The policies of each router: its matches with what its middlewares and its service become.

use std::collections::{BTreeMap, HashMap};

use super::entry_points::listener_name;
use super::input::TraefikInput;
use super::redirects::redirect_target;
use super::routers::{Router, ServiceUse};
use super::rules::{ChainContext, RouteRules};
use super::treatment::{Claim, Variant};
use crate::import::budget::{TooMuchWork, WorkBudget};
use crate::import::model::{ActionDraft, ImportDraft, LimitUseDraft, RouteDraft};
use crate::import::nginx::variables::network_text;
use crate::import::report::{Concern, ImportReport, printable};
use crate::import::routing::cells::MatchCell;
use crate::import::routing::region::{parse_path, path_text};
use crate::route::pattern::{HostPattern, Segment};

/// Maximum number of paths of a policy.
const MAX_PATHS: usize = 32;
/// Maximum number of characters of a rule in a comment.
const MAX_RULE_CHARS: usize = 200;

/// What becomes of the requests of a cell. Cells with the same become one policy.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct RouterOutcome {
    action: ActionDraft,
    strip: Option<String>,
    prefix: Option<String>,
}

/// Makes policies of the matches of routers.
pub struct PolicyWriter<'r, 'v> {
    /// All that the files say.
    pub input: &'r mut TraefikInput<'v>,
    /// The ports of listeners with TLS.
    pub tls_ports: Vec<u16>,
    /// The configuration that is made.
    pub draft: &'r mut ImportDraft,
    /// What becomes of each line.
    pub report: &'r mut ImportReport,
    /// How much may still be read and written.
    pub budget: WorkBudget,
}

impl PolicyWriter<'_, '_> {
    /// Adds the policies of a router at some of its listeners. Without claims Traefik does not serve it.
    ///
    /// # Errors
    ///
    /// Its middlewares are too much to read again.
    pub fn add_variant(
        &mut self,
        variant: &Variant,
        has_claims: bool,
        cells: &[&MatchCell],
        claims: &[Claim],
    ) -> Result<(), TooMuchWork> {
        let Some(router) = self.input.routers.get(variant.router).cloned() else {
            return Ok(());
        };
        let text = router.text();
        if has_claims && cells.is_empty() {
            let note = "no policy: other routers take all its requests";
            self.report.taken(router.at, Concern::Routing, &text, note);
        } else if has_claims {
            self.report.taken(router.at, Concern::Routing, &text, "");
        }
        let exact_host = match cells.first().map(|cell| &cell.host) {
            Some(HostPattern::Exact(host))
                if cells
                    .iter()
                    .all(|cell| cell.host == HostPattern::Exact(host.clone())) =>
            {
                Some(host.to_string())
            }
            _ => None,
        };
        let mut context = ChainContext {
            identities: &mut self.draft.identities,
            report: self.report,
            is_tls: variant.is_tls,
            host: exact_host.as_deref(),
            ports: self.input.entry_points.ports(variant.listeners),
            budget: &mut self.budget,
        };
        let mut rules =
            self.input
                .middlewares
                .resolve(&variant.middlewares, router.at, &text, &mut context)?;
        if variant.may_need_certificate {
            let note =
                "its options of TLS may refuse clients without a certificate: clients get 503";
            self.report.left(router.at, Concern::Routing, &text, note);
            rules.block("certificates of clients");
        }
        let forward = self.forward_action(&router, &mut rules);
        let limits: Vec<LimitUseDraft> = std::mem::take(&mut rules.limits)
            .into_iter()
            .map(|limit| LimitUseDraft::Shared(self.draft.add_limit(limit)))
            .collect();
        let mut groups: Vec<(RouterOutcome, MatchCell, Vec<String>, Vec<String>)> = Vec::new();
        let mut by_match: BTreeMap<(Vec<String>, u64, String, usize), usize> = BTreeMap::new();
        let mut outcomes: Vec<RouterOutcome> = Vec::new();
        for cell in cells {
            let stub = claims
                .get(cell.owner)
                .and_then(|claim| claim.stub.as_deref());
            let stub = stub.or_else(|| cell.is_stub.then_some("routers of one priority"));
            let outcome = match stub {
                Some(reason) => RouterOutcome {
                    action: ActionDraft::not_imported(reason),
                    ..RouterOutcome::default()
                },
                None => self.outcome(&router, cell, &rules, &forward),
            };
            let number = outcomes
                .iter()
                .position(|known| *known == outcome)
                .unwrap_or_else(|| {
                    outcomes.push(outcome.clone());
                    outcomes.len() - 1
                });
            // Clients of a rule belong to its region.
            let owner_key = claims
                .get(cell.owner)
                .and_then(|claim| claim.region.clients.as_ref())
                .map(|_| cell.owner);
            let key = (
                cell.methods.clone(),
                cell.listeners,
                format!("{} {owner_key:?}", cell.host),
                number,
            );
            let path = path_text(&cell.path);
            let known = by_match
                .get(&key)
                .copied()
                .and_then(|index| groups.get_mut(index));
            match known {
                Some((_, _, _, paths)) if paths.len() < MAX_PATHS => paths.push(path),
                _ => {
                    by_match.insert(key, groups.len());
                    groups.push((
                        outcome,
                        (*cell).clone(),
                        vec![cell.host.to_string()],
                        vec![path],
                    ));
                }
            }
        }
        // Hosts with the same paths share a policy.
        let mut merged: Vec<(RouterOutcome, MatchCell, Vec<String>, Vec<String>)> = Vec::new();
        let mut by_paths: HashMap<(Vec<String>, Vec<String>, u64, String), usize> = HashMap::new();
        for (outcome, cell, hosts, paths) in groups {
            let owner_key = claims
                .get(cell.owner)
                .and_then(|claim| claim.region.clients.as_ref())
                .map(|_| cell.owner);
            let number = outcomes.iter().position(|known| *known == outcome);
            let class = format!("{number:?} {owner_key:?} {}", cell.host == HostPattern::Any);
            let key = (paths.clone(), cell.methods.clone(), cell.listeners, class);
            match by_paths.get(&key).and_then(|index| merged.get_mut(*index)) {
                Some((_, _, known_hosts, _)) if cell.host != HostPattern::Any => {
                    known_hosts.extend(hosts)
                }
                _ => {
                    by_paths.insert(key, merged.len());
                    merged.push((outcome, cell, hosts, paths));
                }
            }
        }
        for (outcome, cell, hosts, paths) in merged {
            let clients = claims
                .get(cell.owner)
                .and_then(|claim| claim.region.clients.clone());
            self.add_route(
                &router,
                &rules,
                &limits,
                clients,
                (outcome, cell, hosts, paths),
            );
        }
        Ok(())
    }

    /// What a router does with requests that it forwards.
    fn forward_action(&mut self, router: &Router, rules: &mut RouteRules) -> ActionDraft {
        if rules.redirect.is_some() {
            // Its service is never reached.
            if let ServiceUse::Named(name) = &router.service {
                let _ = self.input.services.resolve(name, self.report);
            }
            return ActionDraft::respond(503);
        }
        let upstream = match &router.service {
            ServiceUse::Named(name) => self.input.services.resolve(name, self.report),
            ServiceUse::Inline(result) => result.clone(),
        };
        match upstream {
            Ok(upstream) => {
                let hint = match &router.service {
                    ServiceUse::Named(name) => name.split('@').next().unwrap_or(name).to_owned(),
                    ServiceUse::Inline(_) => router.name.clone(),
                };
                ActionDraft::Upstream(self.draft.add_upstream(&hint, upstream))
            }
            Err(reason) => {
                let note = format!("{reason}: clients get 503");
                self.report
                    .left(router.at, Concern::Routing, &router.text(), &note);
                ActionDraft::not_imported("a service")
            }
        }
    }

    fn outcome(
        &mut self,
        router: &Router,
        cell: &MatchCell,
        rules: &RouteRules,
        forward: &ActionDraft,
    ) -> RouterOutcome {
        let failed = |reason: &str| RouterOutcome {
            action: ActionDraft::not_imported(reason),
            ..RouterOutcome::default()
        };
        if let Some(reason) = &rules.blocked {
            return failed(reason);
        }
        if let Some(redirect) = &rules.redirect {
            let target = redirect_target(redirect, &cell.host, &self.tls_ports);
            return match target {
                Some(to) => RouterOutcome {
                    action: ActionDraft::Redirect {
                        to,
                        status: redirect.status,
                    },
                    ..RouterOutcome::default()
                },
                None => {
                    let note = "its redirect names no place without the host of the request: clients get 503";
                    self.report
                        .left(router.at, Concern::Routing, &router.text(), note);
                    failed("a redirect")
                }
            };
        }
        match stripped(cell, &rules.strip) {
            Ok(strip) => RouterOutcome {
                action: forward.clone(),
                strip,
                prefix: rules.prefix.clone(),
            },
            Err(prefix) => {
                let note = format!(
                    "only some paths of a match begin with `{prefix}`, which is taken off: clients get 503"
                );
                self.report
                    .left(router.at, Concern::Routing, &router.text(), &note);
                failed("a changed path")
            }
        }
    }

    fn add_route(
        &mut self,
        router: &Router,
        rules: &RouteRules,
        limits: &[LimitUseDraft],
        clients: Option<Vec<ipnet::IpNet>>,
        (outcome, cell, hosts, paths): (RouterOutcome, MatchCell, Vec<String>, Vec<String>),
    ) {
        let points = &self.input.entry_points.list;
        let all = (1_u64 << points.len()) - 1;
        let is_listed = |index: &usize| cell.listeners & (1 << index) != 0;
        let listeners = (0..points.len())
            .filter(is_listed)
            .filter_map(|index| points.get(index));
        let mut route = RouteDraft {
            name: router.name.clone(),
            origin: router.at,
            source: format!(
                "{}: {}",
                router.text(),
                printable(&router.rule, MAX_RULE_CHARS)
            ),
            methods: cell.methods,
            paths,
            hosts: if cell.host == HostPattern::Any {
                Vec::new()
            } else {
                hosts
            },
            listeners: match cell.listeners == all {
                true => Vec::new(),
                false => listeners.map(|point| listener_name(&point.name)).collect(),
            },
            limits: limits.to_vec(),
            action: outcome.action,
            strip: outcome.strip,
            prefix: outcome.prefix,
            ..RouteDraft::default()
        };
        let mut allowed = rules.clone();
        if let Some(clients) = clients {
            allowed.allow(clients);
        }
        match allowed.clients {
            Some(networks) if networks.is_empty() => route.action = ActionDraft::respond(403),
            Some(networks) => {
                let networks = networks.into_iter().map(network_text).collect();
                route.allow.push(("ip".into(), networks));
            }
            None => {}
        }
        if matches!(route.action, ActionDraft::Upstream(_)) {
            route.max_body = rules.max_body;
            if !rules.request.is_empty() {
                route.fields.push(("request", rules.request.text()));
            }
            if rules.is_compressed {
                route.fields.push(("compress", "true".into()));
            }
        } else {
            route.strip = None;
            route.prefix = None;
        }
        if !rules.response.is_empty() {
            route.fields.push(("response", rules.response.text()));
        }
        if let Some(cors) = &rules.cors {
            route.fields.push(("cors", cors.clone()));
        }
        self.draft.routes.push(route);
    }
}

/// What is taken off the paths of a cell: the first prefix that they have.
///
/// # Errors
///
/// The prefix that only some of its paths have.
fn stripped(cell: &MatchCell, prefixes: &[String]) -> Result<Option<String>, String> {
    for prefix in prefixes {
        let Some(segments) = parse_path(prefix) else {
            return Err(prefix.clone());
        };
        if cell.path.starts_with(&segments) {
            return Ok(Some(prefix.clone()));
        }
        // Traefik compares texts, so that `/a` is taken off `/ab` too.
        let mut pairs = segments.iter().zip(&cell.path).enumerate();
        let is_apart = pairs.any(|(index, (wanted, own))| match (wanted, own) {
            (Segment::Literal(wanted), Segment::Literal(own)) => {
                let is_last = index + 1 == segments.len();
                own != wanted && !(is_last && own.starts_with(&**wanted))
            }
            _ => false,
        });
        let has_rest = cell.path.last() == Some(&Segment::Rest);
        if !is_apart && (has_rest || cell.path.len() >= segments.len()) {
            return Err(prefix.clone());
        }
    }
    Ok(None)
}
