//! Makes policies of routes with their plugins and services.

use std::collections::{HashMap, HashSet};

use super::entities::{KongEntities, KongEntity};
use super::plugin_rules::PluginRules;
use super::plugins::PluginIndex;
use super::routes::{RoutePath, RouteSettings, read_route};
use super::services::{KongUpstream, has_unclear_host, read_service};
use crate::import::error::ImportError;
use crate::import::model::{ActionDraft, ImportDraft, LimitUseDraft, ListenerDraft, RouteDraft};
use crate::import::nginx::variables::network_text;
use crate::import::report::{Concern, ImportReport};
use crate::import::routing::cells::{CellTable, MAX_CELLS, MatchCell, MatchOwner, TooManyCells};
use crate::import::routing::judgement::{Judgement, RegionCandidate, judge};
use crate::import::routing::region::{parse_path, path_text};
use crate::route::canonical_host::canonical_host;
use crate::route::pattern::{HostPattern, Segment};

/// The listener without TLS, as a bit.
const PLAIN: u64 = 1;
/// The listener with TLS, as a bit.
const TLS: u64 = 2;

/// A route that is served.
struct ServedRoute<'e, 'v> {
    entity: &'e KongEntity<'v>,
    settings: RouteSettings,
    plugins: Vec<usize>,
}

/// One path of a route at some listeners.
struct PathClaim {
    /// The index of the served route.
    route: usize,
    path: RoutePath,
    /// Whether its requests are sent to TLS.
    is_upgrade: bool,
}

/// Fills the draft with all that the files say. `path` is that of the first file.
pub fn assemble(
    entities: &KongEntities<'_>,
    version: u32,
    path: &str,
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let too_many = || {
        ImportError::at(
            path,
            1,
            1,
            format!("this becomes more than {MAX_CELLS} routes"),
        )
        .with_help("import fewer routes at a time")
    };
    if entities.routes.len() > MAX_CELLS {
        return Err(too_many());
    }
    let mut index = PluginIndex::new(entities);
    let mut served = Vec::new();
    let mut claims = Vec::new();
    for (number, entity) in entities.routes.iter().enumerate() {
        let text = route_text(entity);
        let service = entity
            .service
            .and_then(|service| entities.services.get(service));
        if service.is_some_and(|service| service.value.text_of("enabled") == Some("false")) {
            report.left(
                entity.at,
                Concern::Routing,
                &text,
                "its service is not enabled, so Kong does not serve it",
            );
            continue;
        }
        let (paths, settings) = match read_route(entity, version, report) {
            Ok(read) => read,
            Err(reason) => {
                report.left(entity.at, Concern::Routing, &text, &reason);
                continue;
            }
        };
        let (plugins, twice) = index.of_route(entities, number);
        for name in &twice {
            let note = format!(
                "two plugins {name} are for it, and Kong refuses that: the first one holds here"
            );
            report.left(entity.at, Concern::Limits, &text, &note);
        }
        for path in paths {
            if settings.upgrade.is_some() {
                claims.push(PathClaim {
                    route: served.len(),
                    path: path.clone(),
                    is_upgrade: true,
                });
            }
            claims.push(PathClaim {
                route: served.len(),
                path,
                is_upgrade: false,
            });
        }
        served.push(ServedRoute {
            entity,
            settings,
            plugins,
        });
    }
    let has_tls = !entities.certificates.is_empty()
        || served.iter().any(|route| route.settings.upgrade.is_some());
    add_listeners(has_tls, entities, draft, report);
    let size: usize = claims.iter().map(|claim| claim.path.region.size()).sum();
    if size > MAX_CELLS {
        return Err(too_many());
    }
    let mut treatments: HashMap<(&[usize], bool), usize> = HashMap::new();
    let mut candidates = Vec::new();
    for claim in &claims {
        let Some(route) = served.get(claim.route) else {
            continue;
        };
        let next = treatments.len();
        let treatment = *treatments
            .entry((&route.plugins, claim.is_upgrade))
            .or_insert(next);
        let listeners = match (claim.is_upgrade, route.settings.upgrade.is_some()) {
            (true, _) => PLAIN,
            (false, true) => TLS,
            (false, false) if has_tls => PLAIN | TLS,
            (false, false) => PLAIN,
        };
        candidates.push(RegionCandidate {
            owner: MatchOwner {
                route: claim.route,
                priority: claim.path.priority,
                treatment,
            },
            listeners,
            region: claim.path.region.clone(),
        });
    }
    let judgements = judge(&candidates);
    let table = fill_table(&candidates, &judgements).map_err(|TooManyCells| too_many())?;
    report_judgements(&claims, &served, &judgements, &table, report);
    let mut writer = KongPolicyWriter {
        entities,
        services: HashMap::new(),
        draft,
        report,
    };
    let mut cells_of: Vec<Vec<&MatchCell>> = vec![Vec::new(); served.len()];
    for cell in table.cells() {
        let route = claims.get(cell.owner).map(|claim| claim.route);
        if let Some(cells) = route.and_then(|route| cells_of.get_mut(route)) {
            cells.push(cell);
        }
    }
    for (route, cells) in served.iter().zip(&cells_of) {
        writer.add_route(route, cells, &claims, &judgements, &mut index, has_tls);
        if writer.draft.limits.len() > 2 * MAX_CELLS {
            return Err(too_many());
        }
    }
    let used: HashSet<usize> = writer.services.keys().copied().collect();
    index.report_unused(entities, report);
    report_unused_services(&used, entities, report);
    Ok(())
}

/// Reports services and upstreams that no route forwards to.
fn report_unused_services(
    used: &HashSet<usize>,
    entities: &KongEntities<'_>,
    report: &mut ImportReport,
) {
    let mut hosts: HashSet<&str> = HashSet::new();
    for (index, service) in entities.services.iter().enumerate() {
        let text = format!("service {}", service.name);
        if !used.contains(&index) {
            report.left(service.at, Concern::Other, &text, "no route forwards to it");
        }
        let url = service
            .value
            .text_of("url")
            .and_then(|url| url.split([':', '/']).nth(3));
        hosts.extend(service.value.text_of("host").or(url));
    }
    for (name, upstream) in &entities.upstreams {
        if !hosts.contains(name) {
            report.left(
                upstream.at,
                Concern::Other,
                &format!("upstream {name}"),
                "no service has it",
            );
        }
    }
    for (name, target) in &entities.targets {
        if !entities.upstreams.contains_key(name) {
            let text = format!("target {}", target.text_of("target").unwrap_or(""));
            report.left(
                target.origin(),
                Concern::Other,
                &text,
                "its upstream is not in the files",
            );
        }
    }
}

fn route_text(entity: &KongEntity<'_>) -> String {
    format!("route {}", entity.name)
}

fn add_listeners(
    has_tls: bool,
    entities: &KongEntities<'_>,
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) {
    report.note(
        "`proxy_listen` is in kong.conf, which is not read: the listeners have Kong's usual ports.",
    );
    draft.listeners.push(ListenerDraft {
        name: "proxy".into(),
        address: "0.0.0.0:8000".into(),
        ..ListenerDraft::default()
    });
    if !has_tls {
        return;
    }
    let names = match entities.certificates.is_empty() {
        true => vec!["proxy".to_owned()],
        false => entities.certificates.clone(),
    };
    let files = names.iter().map(|name| {
        (
            format!("certificates/{name}.pem"),
            format!("certificates/{name}.key"),
        )
    });
    draft.listeners.push(ListenerDraft {
        name: "proxy-tls".into(),
        address: "0.0.0.0:8443".into(),
        certificates: files.collect(),
        ..ListenerDraft::default()
    });
}

fn fill_table(
    candidates: &[RegionCandidate],
    judgements: &[Judgement],
) -> Result<CellTable, TooManyCells> {
    let owners: Vec<MatchOwner> = candidates.iter().map(|candidate| candidate.owner).collect();
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|index| {
        let priority = owners.get(*index).map_or(0, |owner| owner.priority);
        let is_stub = matches!(judgements.get(*index), Some(Judgement::Stub(_)));
        (std::cmp::Reverse(priority), is_stub)
    });
    let mut table = CellTable::default();
    for index in order {
        let (Some(candidate), Some(judgement)) = (candidates.get(index), judgements.get(index))
        else {
            continue;
        };
        if matches!(judgement, Judgement::LeftOut(_)) {
            continue;
        }
        for host in &candidate.region.hosts {
            for path in &candidate.region.paths {
                let cell = MatchCell {
                    host: host.clone(),
                    path: path.clone(),
                    methods: candidate.region.methods.clone(),
                    listeners: candidate.listeners,
                    owner: index,
                    is_stub: matches!(judgement, Judgement::Stub(_)),
                };
                table.insert(cell, &owners)?;
            }
        }
    }
    Ok(table)
}

fn report_judgements(
    claims: &[PathClaim],
    served: &[ServedRoute<'_, '_>],
    judgements: &[Judgement],
    table: &CellTable,
    report: &mut ImportReport,
) {
    let entity = |claim: &PathClaim| served.get(claim.route).map(|route| route.entity);
    for (claim, judgement) in claims.iter().zip(judgements) {
        let Some(entity) = entity(claim) else {
            continue;
        };
        match judgement {
            Judgement::Match => report.taken(entity.at, Concern::Routing, &route_text(entity), ""),
            Judgement::Stub(reason) => {
                let note = format!("{reason}: all requests that it may take get 503");
                report.left(entity.at, Concern::Routing, &route_text(entity), &note);
            }
            Judgement::LeftOut(reason) => {
                let note = format!(
                    "{reason}: its requests go to the next route, which has the same plugins"
                );
                report.left(entity.at, Concern::Routing, &route_text(entity), &note);
            }
        }
    }
    for precedence in &table.precedences {
        let pair = claims
            .get(precedence.winner)
            .zip(claims.get(precedence.loser));
        let Some((winner, loser)) =
            pair.and_then(|(winner, loser)| entity(winner).zip(entity(loser)))
        else {
            continue;
        };
        let text = route_text(loser);
        let is_stub = matches!(judgements.get(precedence.winner), Some(Judgement::Stub(_)));
        match (precedence.is_tie, is_stub) {
            (true, _) => {
                let note = format!(
                    "{} comes first in Kong only if it was made first: what both match gets 503",
                    route_text(winner)
                );
                report.left(loser.at, Concern::Routing, &text, &note);
            }
            (false, true) => {
                let note = format!(
                    "{} is before it, and what both match gets 503, as is said there",
                    route_text(winner)
                );
                report.left(loser.at, Concern::Routing, &text, &note);
            }
            (false, false) => {
                let note = format!(
                    "{} is before it, and keeps what both match",
                    route_text(winner)
                );
                report.taken(loser.at, Concern::Routing, &text, &note);
            }
        }
    }
}

/// What becomes of the requests of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct RouteOutcome {
    action: ActionDraft,
    strip: Option<String>,
    prefix: Option<String>,
    /// Whether the plugins of the route hold.
    has_plugins: bool,
}

struct KongPolicyWriter<'e, 'v, 'r> {
    entities: &'e KongEntities<'v>,
    services: HashMap<usize, Result<KongUpstream, String>>,
    draft: &'r mut ImportDraft,
    report: &'r mut ImportReport,
}

impl KongPolicyWriter<'_, '_, '_> {
    fn add_route(
        &mut self,
        route: &ServedRoute<'_, '_>,
        cells: &[&MatchCell],
        claims: &[PathClaim],
        judgements: &[Judgement],
        index: &mut PluginIndex,
        has_tls: bool,
    ) {
        let rules = index.rules(&route.plugins, self.entities, self.draft, self.report);
        let forward = self.forward(route, &rules);
        let mut groups: Vec<(RouteOutcome, &MatchCell, Vec<String>)> = Vec::new();
        for cell in cells {
            let Some(claim) = claims.get(cell.owner) else {
                continue;
            };
            let outcome = match judgements.get(cell.owner) {
                Some(Judgement::Stub(reason)) => stub(reason),
                _ if cell.is_stub => stub("routes of one priority"),
                _ if claim.is_upgrade => upgrade(route.settings.upgrade.unwrap_or(426)),
                _ => self.outcome(route, &rules, claim, &forward),
            };
            let is_any = cell.host == HostPattern::Any;
            let same = groups.iter_mut().find(|(other, first, _)| {
                *other == outcome
                    && first.path == cell.path
                    && first.methods == cell.methods
                    && first.listeners == cell.listeners
                    && first.host != HostPattern::Any
                    && !is_any
            });
            match same {
                Some((_, _, hosts)) => hosts.push(cell.host.to_string()),
                None => groups.push((outcome, cell, vec![cell.host.to_string()])),
            }
        }
        for (outcome, cell, hosts) in groups {
            self.add_policy(route, &rules, has_tls, (outcome, cell, hosts));
        }
    }

    /// Where a route forwards to, with the prefix of its service; or the response in place of that.
    fn forward(
        &mut self,
        route: &ServedRoute<'_, '_>,
        rules: &PluginRules,
    ) -> (ActionDraft, Option<String>) {
        let text = route_text(route.entity);
        let Some((number, service)) = route
            .entity
            .service
            .and_then(|number| Some((number, self.entities.services.get(number)?)))
        else {
            if rules.response_action.is_none() {
                self.report.left(
                    route.entity.at,
                    Concern::Routing,
                    &text,
                    "it has no service: clients get 503",
                );
            }
            return (ActionDraft::not_imported("a service"), None);
        };
        let entities = self.entities;
        let report = &mut *self.report;
        let read = self.services.entry(number).or_insert_with(|| {
            let service_text = format!("service {}", service.name);
            let read = read_service(service, entities, report);
            match &read {
                Ok(_) => report.taken(service.at, Concern::Routing, &service_text, ""),
                Err(reason) => {
                    let note = format!("{reason}: clients get 503");
                    report.left(service.at, Concern::Routing, &service_text, &note);
                }
            }
            read
        });
        let Ok(read) = read else {
            return (ActionDraft::not_imported("a service"), None);
        };
        let mut upstream = read.upstream.clone();
        if route.settings.keeps_host {
            upstream.host = None;
        } else if has_unclear_host(&upstream) {
            let host = service.value.text_of("host").unwrap_or("");
            let is_host = canonical_host(host).is_some() && !matches!(host, "client" | "upstream");
            upstream.host = is_host.then(|| host.to_owned());
            let note = match is_host {
                true => format!("servers get the host `{host}`, where Kong gives each its own"),
                false => {
                    "servers get the host of the request, where Kong gives each its own".into()
                }
            };
            self.report.changed(
                service.at,
                Concern::Routing,
                &format!("service {}", service.name),
                &note,
            );
        }
        let prefix = match read.path.as_str() {
            "" => None,
            path => {
                let segments = parse_path(path).filter(|segments| {
                    segments
                        .iter()
                        .all(|segment| matches!(segment, Segment::Literal(_)))
                });
                if segments.is_none() {
                    let note = "its path has no counterpart in `prefix`: clients get 503";
                    self.report.left(
                        service.at,
                        Concern::Routing,
                        &format!("service {}", service.name),
                        note,
                    );
                    return (ActionDraft::not_imported("a changed path"), None);
                }
                Some(path.to_owned())
            }
        };
        (
            ActionDraft::Upstream(self.draft.add_upstream(service.name, upstream)),
            prefix,
        )
    }

    fn outcome(
        &mut self,
        route: &ServedRoute<'_, '_>,
        rules: &PluginRules,
        claim: &PathClaim,
        (forward, prefix): &(ActionDraft, Option<String>),
    ) -> RouteOutcome {
        if let Some(reason) = &rules.blocked {
            return RouteOutcome {
                has_plugins: true,
                ..stub(reason)
            };
        }
        if let Some(action) = &rules.response_action {
            return RouteOutcome {
                action: action.clone(),
                has_plugins: true,
                ..RouteOutcome::default()
            };
        }
        let is_forwarded = matches!(forward, ActionDraft::Upstream(_));
        match &claim.path.strip {
            _ if !is_forwarded => RouteOutcome {
                action: forward.clone(),
                has_plugins: true,
                ..RouteOutcome::default()
            },
            Ok(strip) => RouteOutcome {
                action: forward.clone(),
                strip: strip.clone(),
                prefix: prefix.clone(),
                has_plugins: true,
            },
            Err(reason) => {
                let note = format!(
                    "{reason}: clients get 503. Write `strip_path: false`, or a path without it"
                );
                self.report.left(
                    route.entity.at,
                    Concern::Routing,
                    &route_text(route.entity),
                    &note,
                );
                RouteOutcome {
                    has_plugins: true,
                    ..stub("a changed path")
                }
            }
        }
    }

    fn add_policy(
        &mut self,
        route: &ServedRoute<'_, '_>,
        rules: &PluginRules,
        has_tls: bool,
        (outcome, cell, hosts): (RouteOutcome, &MatchCell, Vec<String>),
    ) {
        let listeners = match cell.listeners {
            _ if !has_tls => Vec::new(),
            PLAIN => vec!["proxy".to_owned()],
            TLS => vec!["proxy-tls".to_owned()],
            _ => Vec::new(),
        };
        let mut draft = RouteDraft {
            name: route.entity.name.to_owned(),
            origin: route.entity.at,
            source: route_text(route.entity),
            methods: cell.methods.clone(),
            paths: vec![path_text(&cell.path)],
            hosts: if cell.host == HostPattern::Any {
                Vec::new()
            } else {
                hosts
            },
            listeners,
            action: outcome.action,
            strip: outcome.strip,
            prefix: outcome.prefix,
            ..RouteDraft::default()
        };
        if outcome.has_plugins {
            let texts = |networks: &[ipnet::IpNet]| {
                networks
                    .iter()
                    .copied()
                    .map(network_text)
                    .collect::<Vec<_>>()
            };
            draft.limits = rules
                .limits
                .iter()
                .map(|limit| LimitUseDraft::Shared(*limit))
                .collect();
            if let Some(networks) = &rules.allow {
                draft.allow.push(("ip".into(), texts(networks)));
            }
            if !rules.deny.is_empty() {
                draft.deny.push(("ip".into(), texts(&rules.deny)));
            }
            if !rules.response.is_empty() {
                draft.fields.push(("response", rules.response.text()));
            }
            if let Some(cors) = &rules.cors {
                draft.fields.push(("cors", cors.clone()));
            }
        }
        if matches!(draft.action, ActionDraft::Upstream(_)) {
            draft.max_body = rules.max_body;
            if !rules.request.is_empty() {
                draft.fields.push(("request", rules.request.text()));
            }
        }
        self.draft.routes.push(draft);
    }
}

fn stub(reason: &str) -> RouteOutcome {
    RouteOutcome {
        action: ActionDraft::not_imported(reason),
        ..RouteOutcome::default()
    }
}

/// What requests without TLS get on a route for TLS only.
fn upgrade(status: u16) -> RouteOutcome {
    RouteOutcome {
        action: match status {
            301 | 302 | 307 | 308 => ActionDraft::Redirect {
                to: "https".into(),
                status,
            },
            _ => ActionDraft::respond(status),
        },
        ..RouteOutcome::default()
    }
}
