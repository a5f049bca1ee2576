//! The policies of each route: its matches with what its plugins and its service become.

use std::collections::HashMap;

use super::entities::{KongEntities, KongEntity};
use super::plugin_rules::PluginRules;
use super::plugins::PluginIndex;
use super::routes::{RoutePath, RouteSettings};
use super::services::{KongUpstream, has_unclear_host, read_service};
use crate::import::budget::{TooMuchWork, WorkBudget};
use crate::import::model::{ActionDraft, ImportDraft, LimitUseDraft, RouteDraft};
use crate::import::nginx::variables::network_text;
use crate::import::report::{Concern, ImportReport};
use crate::import::routing::cells::MatchCell;
use crate::import::routing::judgement::Judgement;
use crate::import::routing::region::{parse_path, path_text};
use crate::route::canonical_host::canonical_host;
use crate::route::pattern::{HostPattern, Segment};

/// The listener without TLS, as a bit.
pub const PLAIN: u64 = 1;
/// The listener with TLS, as a bit.
pub const TLS: u64 = 2;

/// A route that is served.
pub struct ServedRoute<'e, 'v> {
    /// The route.
    pub entity: &'e KongEntity<'v>,
    /// What it says beside its matches.
    pub settings: RouteSettings,
    /// The indexes of its plugins.
    pub plugins: Vec<usize>,
}

/// One path of a route at some listeners.
pub struct PathClaim {
    /// The index of the served route.
    pub route: usize,
    /// The path.
    pub path: RoutePath,
    /// Whether its requests are sent to TLS.
    pub is_upgrade: bool,
    /// Whether the requests are of a protocol that the route does not have.
    pub is_other_protocol: bool,
}

/// What the report calls a route.
pub fn route_text(entity: &KongEntity<'_>) -> String {
    format!("route {}", entity.name)
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

/// Makes policies of the matches of routes.
pub struct KongPolicyWriter<'e, 'v, 'r> {
    /// All entities.
    pub entities: &'e KongEntities<'v>,
    /// What services have become, by their index.
    pub services: HashMap<usize, Result<KongUpstream, String>>,
    /// The configuration that is made.
    pub draft: &'r mut ImportDraft,
    /// What becomes of each line.
    pub report: &'r mut ImportReport,
    /// How much may still be read and written.
    pub budget: WorkBudget,
}

impl KongPolicyWriter<'_, '_, '_> {
    /// Adds the policies of a route.
    ///
    /// # Errors
    ///
    /// Its plugins, or the targets of its service, are too much to read again.
    pub fn add_route(
        &mut self,
        route: &ServedRoute<'_, '_>,
        cells: &[&MatchCell],
        claims: &[PathClaim],
        judgements: &[Judgement],
        index: &mut PluginIndex,
        has_tls: bool,
    ) -> Result<(), TooMuchWork> {
        let rules = index.rules(
            &route.plugins,
            self.entities,
            self.draft,
            self.report,
            &mut self.budget,
        )?;
        if let Some(service) = route
            .entity
            .service
            .filter(|number| !self.services.contains_key(number))
        {
            self.budget.read(self.entities.target_count(service))?;
        }
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
        Ok(())
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
        if !matches!(service.value.text_of("enabled"), None | Some("true")) {
            let note = "whether its service is enabled is not known: clients get 503";
            self.report
                .left(route.entity.at, Concern::Routing, &text, note);
            return (ActionDraft::not_imported("a service"), None);
        }
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
