//! Policies from what becomes of requests: the action, the changes, the lists of addresses and the limits.

use std::rc::Rc;

use ipnet::IpNet;

use super::acl_test::{AclTable, AclTest};
use super::action::{RuleAction, SectionRule};
use super::eval::{CellAction, CellOutcome};
use super::routes::{CellRoutes, ListenerGroup};
use crate::import::error::ImportError;
use crate::import::model::{ActionDraft, ImportDraft, LimitUseDraft, RouteDraft, UpstreamDraft};
use crate::import::nginx::variables::network_text;
use crate::import::yaml_text::quoted;

/// Maximum number of comparisons of the networks of two lists.
const MAX_COMPARISONS: usize = 1_000_000;
/// Maximum number of networks in the lists of all policies together.
const MAX_ENTRIES: usize = 100_000;
/// Maximum number of fields that a policy changes.
const MAX_FIELDS: usize = 32;

impl CellRoutes<'_, '_> {
    /// A text from which the name of a policy is made.
    pub(super) fn route_name(&self, frontend: usize, route: &RouteDraft) -> String {
        let name = self
            .sections
            .get(frontend)
            .map_or("", |section| &section.name);
        let path = route
            .paths
            .first()
            .map_or("", |path| path.trim_end_matches("/**"));
        let path = if path.is_empty() || path == "/" {
            "root"
        } else {
            path
        };
        let host = route.hosts.first().map_or("", String::as_str);
        format!("{name} {host} {path} {}", route.methods.join(" "))
    }

    /// A route with this outcome, without its match.
    pub(super) fn route(
        &mut self,
        frontend: usize,
        group: &ListenerGroup,
        outcome: &CellOutcome,
    ) -> RouteDraft {
        let name = |section: usize| {
            self.sections
                .get(section)
                .map_or("", |section| &section.name)
        };
        let mut route = RouteDraft {
            origin: self.origins.get(frontend).copied().unwrap_or_default(),
            source: format!("frontend {}", name(frontend)),
            ..RouteDraft::default()
        };
        if let Some(backend) = outcome.backend {
            route.source += &format!(", backend {}", name(backend));
        }
        let upstream = outcome
            .backend
            .and_then(|backend| self.upstream(backend, outcome));
        route.action = match (&outcome.action, upstream) {
            (CellAction::Forward, Some(upstream)) => ActionDraft::Upstream(upstream),
            (CellAction::Forward, None) => ActionDraft::not_imported("a backend without servers"),
            (CellAction::Stub(what), upstream) => {
                route.withheld_upstream = upstream;
                ActionDraft::not_imported(what)
            }
            (CellAction::Rule(id), _) => self.answer(*id, group),
        };
        let is_forwarded = matches!(route.action, ActionDraft::Upstream(_));
        if is_forwarded {
            self.add_changes(outcome, &mut route);
        }
        self.add_lists(outcome, &mut route);
        for test in &outcome.require {
            let word = match self.reader.table.tests.get(*test) {
                Some(AclTest::Present(place)) => self.draft.identities.word(place),
                _ => None,
            };
            match word {
                Some(word) => route.require.push(word),
                None => refuse(&mut route, "a header that requests must have"),
            }
        }
        route.require.sort_unstable();
        route.require.dedup();
        route.limits = outcome
            .limits
            .iter()
            .map(|limit| LimitUseDraft::Shared(*limit))
            .collect();
        route
    }

    fn rule(&self, (section, index, _): (usize, usize, bool)) -> Option<&SectionRule> {
        self.sections.get(section)?.rules.get(index)
    }

    fn answer(&self, id: (usize, usize, bool), group: &ListenerGroup) -> ActionDraft {
        match self.rule(id).map(|rule| &rule.action) {
            Some(RuleAction::Deny(status)) => ActionDraft::respond(*status),
            Some(RuleAction::Return {
                status,
                body,
                content_type,
            }) => ActionDraft::Respond {
                status: *status,
                body: body.clone(),
                content_type: content_type.clone(),
            },
            Some(RuleAction::Redirect { to, .. })
                if to == "https" && (!self.has_tls || group.is_tls != Some(false)) =>
            {
                ActionDraft::not_imported("a redirect to a listener with TLS that is not there")
            }
            Some(RuleAction::Redirect { to, status }) => ActionDraft::Redirect {
                to: to.clone(),
                status: *status,
            },
            _ => ActionDraft::not_imported("a rule"),
        }
    }

    /// The name of the upstream of a section, with the host that a rule sets.
    fn upstream(&mut self, backend: usize, outcome: &CellOutcome) -> Option<String> {
        let upstream = self.upstreams.get(backend)?.as_ref()?;
        let host = outcome
            .host
            .and_then(|id| self.rule(id))
            .and_then(|rule| match &rule.action {
                RuleAction::Host(host) => Some(host.clone()),
                _ => None,
            });
        let upstream = UpstreamDraft {
            host,
            ..upstream.clone()
        };
        let name = self
            .sections
            .get(backend)
            .map_or("", |section| &section.name);
        Some(self.draft.add_upstream(name, upstream))
    }

    fn add_changes(&self, outcome: &CellOutcome, route: &mut RouteDraft) {
        let mut fields: Vec<(&str, Option<&str>)> = Vec::new();
        for (section, index, is_removed) in &outcome.headers {
            let Some(RuleAction::Header(name, value)) = self
                .rule((*section, *index, false))
                .map(|rule| &rule.action)
            else {
                continue;
            };
            fields.retain(|(other, _)| other != name);
            let value = value.as_deref().filter(|_| !is_removed);
            fields.push((name, value));
        }
        if fields.len() > MAX_FIELDS {
            return refuse(route, "more changed fields than a policy has");
        }
        let set: Vec<String> = fields
            .iter()
            .filter_map(|(name, value)| Some(format!("{}: {}", quoted(name), quoted((*value)?))))
            .collect();
        let removed: Vec<String> = fields
            .iter()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| quoted(name))
            .collect();
        let mut parts = Vec::new();
        if !set.is_empty() {
            parts.push(format!("set: {{ {} }}", set.join(", ")));
        }
        if !removed.is_empty() {
            parts.push(format!("remove: [{}]", removed.join(", ")));
        }
        if !parts.is_empty() {
            route
                .fields
                .push(("request", format!("{{ {} }}", parts.join(", "))));
        }
        let path = outcome
            .path
            .and_then(|id| self.rule(id))
            .map(|rule| &rule.action);
        if let Some(RuleAction::Path { strip, prefix, .. }) = path {
            route.strip = (!strip.is_empty()).then(|| strip.clone());
            route.prefix = (!prefix.is_empty()).then(|| prefix.clone());
        }
    }

    /// Adds the addresses that are denied, and those that alone are served.
    fn add_lists(&mut self, outcome: &CellOutcome, route: &mut RouteDraft) {
        for (lists, is_allowed) in [
            (vec![outcome.deny.clone()], false),
            (outcome.allow.clone(), true),
        ] {
            if lists.iter().all(Vec::is_empty) {
                continue;
            }
            let table = self.reader.table;
            let texts = self.texts.entry(lists).or_insert_with_key(|lists| {
                let networks = common_networks(table, lists)?;
                Some(Rc::new(networks.into_iter().map(network_text).collect()))
            });
            match texts {
                Some(texts) if texts.is_empty() && is_allowed => {
                    route.action = ActionDraft::respond(403);
                    route.strip = None;
                    route.prefix = None;
                    route.fields.clear();
                }
                Some(texts) if is_allowed => route.allow.push(("ip".into(), texts.to_vec())),
                Some(texts) => route.deny.push(("ip".into(), texts.to_vec())),
                None => refuse(
                    route,
                    "its lists of addresses, which are too long to be compared",
                ),
            }
        }
    }
}

/// Makes a route answer 503.
fn refuse(route: &mut RouteDraft, what: &str) {
    route.action = ActionDraft::not_imported(what);
    route.strip = None;
    route.prefix = None;
    route.fields.clear();
}

/// The networks that are in each of the unions; `None` if that takes too long.
fn common_networks(table: &AclTable, unions: &[Vec<usize>]) -> Option<Vec<IpNet>> {
    let mut common: Option<Vec<IpNet>> = None;
    for union in unions {
        let lists = union.iter().filter_map(|list| table.lists.get(*list));
        let mut networks: Vec<IpNet> = lists.flatten().copied().collect();
        networks.sort_unstable();
        networks.dedup();
        common = Some(match common {
            None => networks,
            Some(other) => {
                if other.len().saturating_mul(networks.len()) > MAX_COMPARISONS {
                    return None;
                }
                let mut both: Vec<IpNet> = Vec::new();
                for network in &networks {
                    for other in &other {
                        if other.contains(network) {
                            both.push(*network);
                        } else if network.contains(other) {
                            both.push(*other);
                        }
                    }
                }
                both.sort_unstable();
                both.dedup();
                both
            }
        });
    }
    Some(common.unwrap_or_default())
}

/// Moves lists that all routes have to the gateway file, so that they stand there once.
///
/// # Errors
///
/// The lists of all policies together are too long.
pub fn share_lists(draft: &mut ImportDraft, path: &str) -> Result<(), ImportError> {
    let is_refused = |route: &RouteDraft| matches!(route.action, ActionDraft::Respond { status, .. } if status >= 400);
    let served = draft.routes.iter().find(|route| !is_refused(route));
    if draft.routes.len() > 1
        && let Some((deny, allow)) = served.map(|route| (route.deny.clone(), route.allow.clone()))
    {
        // Where nobody passes, it does not matter who else is denied.
        let mut routes = draft.routes.iter();
        if routes.all(|route| route.deny == deny || is_refused(route) && route.deny.is_empty()) {
            draft.routes.iter_mut().for_each(|route| route.deny.clear());
            draft.deny = deny;
        }
        let mut routes = draft.routes.iter();
        if routes.all(|route| route.allow == allow || is_refused(route) && route.allow.is_empty()) {
            draft
                .routes
                .iter_mut()
                .for_each(|route| route.allow.clear());
            draft.allow = allow;
        }
    }
    let lists = draft
        .routes
        .iter()
        .flat_map(|route| route.deny.iter().chain(&route.allow));
    let entries: usize = lists.map(|(_, values)| values.len()).sum();
    match entries > MAX_ENTRIES {
        true => {
            let message = format!("the policies would repeat networks {entries} times");
            Err(ImportError::at(path, 1, 1, message)
                .with_help("write the networks into a file, and name it under `deny` or `allow`"))
        }
        false => Ok(()),
    }
}
