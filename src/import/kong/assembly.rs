//! Finds out which route takes which requests, and has the policies written.

use std::collections::{HashMap, HashSet};

use super::entities::KongEntities;
use super::plugins::PluginIndex;
use super::policies::{KongPolicyWriter, PLAIN, PathClaim, ServedRoute, TLS, route_text};
use super::routes::read_route;
use crate::import::budget::{TooMuchWork, WorkBudget};
use crate::import::error::ImportError;
use crate::import::model::{ImportDraft, ListenerDraft};
use crate::import::report::{Concern, ImportReport};
use crate::import::routing::cells::{CellTable, MAX_CELLS, MatchCell, MatchOwner, TooManyCells};
use crate::import::routing::judgement::{Judgement, RegionCandidate, judge};
use crate::import::routing::region::Fit;

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
    let too_much = |TooMuchWork| {
        let message = "its routes share too many long plugins, upstreams or lists";
        ImportError::at(path, 1, 1, message).with_help("import fewer routes at a time")
    };
    let mut budget = WorkBudget::new();
    let mut size = 0_usize;
    let mut index = PluginIndex::new(entities);
    let mut served = Vec::new();
    let mut claims = Vec::new();
    for (number, entity) in entities.routes.iter().enumerate() {
        let text = route_text(entity);
        let service = entity
            .service
            .and_then(|service| entities.services.get(service));
        let enabled = service.and_then(|service| service.value.text_of("enabled"));
        if enabled == Some("false") {
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
        let plugins = index
            .of_route(entities, number, &mut budget)
            .map_err(too_much)?;
        for path in paths {
            size = size.saturating_add(2 * path.region.size());
            if size > 2 * MAX_CELLS {
                return Err(too_many());
            }
            if settings.upgrade.is_some() || settings.is_plain_only {
                claims.push(PathClaim {
                    route: served.len(),
                    path: path.clone(),
                    is_upgrade: settings.upgrade.is_some(),
                    is_other_protocol: true,
                });
            }
            claims.push(PathClaim {
                route: served.len(),
                path,
                is_upgrade: false,
                is_other_protocol: false,
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
    // Without a listener for TLS nobody asks a route over it.
    claims.retain(|claim| has_tls || claim.is_upgrade || !claim.is_other_protocol);
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
        let listeners = match (claim.is_other_protocol, route.settings.upgrade.is_some()) {
            (true, true) | (false, false) if !has_tls => PLAIN,
            (true, true) => PLAIN,
            (true, false) | (false, true) => TLS,
            (false, false) if route.settings.is_plain_only => PLAIN,
            (false, false) => PLAIN | TLS,
        };
        let mut region = claim.path.region.clone();
        if claim.is_other_protocol && !claim.is_upgrade {
            // Versions of Kong differ in whether such a route takes requests over TLS.
            let reason = "its `protocols` are without TLS, and the requests are over TLS";
            region.fit = Fit::Superset(reason.into());
        }
        candidates.push(RegionCandidate {
            owner: MatchOwner {
                route: claim.route,
                priority: claim.path.priority,
                treatment,
            },
            listeners,
            region,
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
        budget,
    };
    let mut cells_of: Vec<Vec<&MatchCell>> = vec![Vec::new(); served.len()];
    for cell in table.cells() {
        let route = claims.get(cell.owner).map(|claim| claim.route);
        if let Some(cells) = route.and_then(|route| cells_of.get_mut(route)) {
            cells.push(cell);
        }
    }
    for (route, cells) in served.iter().zip(&cells_of) {
        let first = (writer.draft.routes.len(), writer.draft.upstreams.len());
        writer
            .add_route(route, cells, &claims, &judgements, &mut index, has_tls)
            .map_err(too_much)?;
        let written = writer.draft.written_since(first.0, first.1);
        writer.budget.write(written).map_err(too_much)?;
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
