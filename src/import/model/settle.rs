//! Settles a draft. Names become unique, and policies with too many pairs of a match and a host are split. The first of
//! two policies for the same requests stays.

use std::collections::HashMap;

use super::{ImportDraft, LimitDraft, LimitUseDraft, RouteDraft, ScopeDraft};
use crate::import::names::UniqueNames;
use crate::import::report::{Concern, ImportReport, Origin};
use crate::policy::{MAX_LIMITS_PER_ROUTE, MAX_PATTERNS_PER_POLICY};
use crate::route::pattern::{HostPattern, Pattern, Segment};

impl ImportDraft {
    /// Makes all names unique, and splits policies with too many pairs of a match and a host. Drops routes whose requests
    /// an earlier one takes, and limits beyond what a route may have; what is dropped is reported.
    pub fn settle(&mut self, report: &mut ImportReport) {
        self.split_routes();
        self.drop_conflicts(report);
        self.move_single_uses();
        let mut limit_names = UniqueNames::default();
        let is_written = self.written_limits();
        for (limit, _) in self
            .limits
            .iter_mut()
            .zip(is_written)
            .filter(|(_, is_written)| *is_written)
        {
            limit.name = limit_names.name(&limit.name, "limit");
        }
        let mut route_names = UniqueNames::default();
        for route in &mut self.routes {
            route.name = route_names.name(&route.name, "route");
            let mut own_names = limit_names.clone();
            let extra = route
                .limits
                .split_off(route.limits.len().min(MAX_LIMITS_PER_ROUTE));
            if !extra.is_empty() {
                let note = format!(
                    "{} limits are beyond the {MAX_LIMITS_PER_ROUTE} that a route may have: clients get 503",
                    extra.len()
                );
                report.left(route.origin, Concern::Limits, &route.source, &note);
                route.refuse("too many limits");
            }
            for used in &mut route.limits {
                if let LimitUseDraft::Own(limit) = used {
                    limit.name = own_names.name(&limit.name, "limit");
                }
            }
        }
    }

    /// Splits routes with more pairs of a match and a host than a policy may have. Their own limits move to the gateway
    /// file, so that the parts count together.
    fn split_routes(&mut self) {
        let mut routes = Vec::with_capacity(self.routes.len());
        for mut route in std::mem::take(&mut self.routes) {
            let paths_per_policy = route.paths.len().clamp(1, MAX_PATTERNS_PER_POLICY);
            let hosts_per_policy = MAX_PATTERNS_PER_POLICY / paths_per_policy;
            if route.paths.len() <= paths_per_policy && route.hosts.len() <= hosts_per_policy {
                routes.push(route);
                continue;
            }
            let limits = std::mem::take(&mut route.limits);
            let share = |used: LimitUseDraft| match used {
                LimitUseDraft::Own(limit) => {
                    self.limits.push(LimitDraft {
                        scope: ScopeDraft::Listed,
                        ..limit
                    });
                    LimitUseDraft::Shared(self.limits.len() - 1)
                }
                used => used,
            };
            let limits: Vec<LimitUseDraft> = limits.into_iter().map(share).collect();
            let paths = std::mem::take(&mut route.paths);
            let hosts = std::mem::take(&mut route.hosts);
            for hosts in parts(&hosts, hosts_per_policy) {
                routes.extend(parts(&paths, paths_per_policy).into_iter().map(|paths| {
                    RouteDraft {
                        hosts: hosts.to_vec(),
                        paths: paths.to_vec(),
                        limits: limits.clone(),
                        ..route.clone()
                    }
                }));
            }
        }
        self.routes = routes;
    }

    /// Drops matches that an earlier route has at the same host, method and listener.
    fn drop_conflicts(&mut self, report: &mut ImportReport) {
        let listener_names: Vec<String> = self
            .listeners
            .iter()
            .map(|listener| listener.name.clone())
            .chain([String::new()])
            .collect();
        let mut taken: HashMap<String, Origin> = HashMap::new();
        for route in &mut self.routes {
            let mut seen = Vec::new();
            let mut earlier = None;
            let methods = match route.methods.is_empty() {
                true => vec![String::new()],
                false => route.methods.clone(),
            };
            let hosts = match route.hosts.is_empty() {
                true => vec![String::from("*")],
                false => route.hosts.clone(),
            };
            let listeners = match route.listeners.is_empty() {
                true => &listener_names,
                false => &route.listeners,
            };
            route.paths.retain(|path| {
                let Some(path_key) = path_key(path) else {
                    return false;
                };
                let mut keys = Vec::new();
                for host in &hosts {
                    let host = HostPattern::parse(host)
                        .map_or_else(|_| host.clone(), |host| host.to_string());
                    for method in &methods {
                        let at = |listener| format!("{listener} {host} {method} {path_key}");
                        keys.extend(listeners.iter().map(at));
                    }
                }
                if let Some(first) = keys.iter().find_map(|key| taken.get(key)) {
                    earlier = Some(*first);
                    return false;
                }
                taken.extend(keys.into_iter().map(|key| (key, route.origin)));
                seen.push(path.clone());
                true
            });
            if let Some(first) = earlier {
                let note = format!(
                    "{}:{} takes the same requests",
                    report.path(first),
                    first.line
                );
                report.left(route.origin, Concern::Routing, &route.source, &note);
            }
        }
        self.routes
            .retain(|route| !route.paths.is_empty() || route.descriptor.is_some());
    }

    /// Moves limits of the gateway file that one route has alone to its policy.
    fn move_single_uses(&mut self) {
        let mut use_counts = vec![0_usize; self.limits.len()];
        for used in self.routes.iter().flat_map(|route| &route.limits) {
            if let LimitUseDraft::Shared(index) = used
                && let Some(count) = use_counts.get_mut(*index)
            {
                *count += 1;
            }
        }
        for used in self.routes.iter_mut().flat_map(|route| &mut route.limits) {
            let LimitUseDraft::Shared(index) = *used else {
                continue;
            };
            let is_single = use_counts.get(index) == Some(&1);
            let limit = self
                .limits
                .get(index)
                .filter(|limit| limit.scope == ScopeDraft::Listed);
            if let Some(limit) = limit.filter(|_| is_single) {
                *used = LimitUseDraft::Own(limit.clone());
            }
        }
    }
}

/// Parts of at most `size` items. No items are one part, because a policy without hosts is for all of them.
fn parts<T>(items: &[T], size: usize) -> Vec<&[T]> {
    match items.is_empty() {
        true => vec![items],
        false => items.chunks(size).collect(),
    }
}

/// The path of a match with `*` in place of names; `None` if it is no path of a match.
fn path_key(path: &str) -> Option<String> {
    let pattern = Pattern::parse(path).ok()?;
    let segments = pattern.segments().iter().map(|segment| match segment {
        Segment::Literal(text) => format!("/{text}"),
        Segment::One(_) => String::from("/*"),
        Segment::Rest => String::from("/**"),
    });
    Some(segments.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_is_lost_where_a_route_has_more_than_a_policy_may() {
        let mut draft = ImportDraft::default();
        draft.routes.push(RouteDraft {
            paths: (0..100).map(|number| format!("/{number}")).collect(),
            hosts: vec!["a.example".into(), "b.example".into()],
            limits: vec![LimitUseDraft::Own(LimitDraft::default())],
            ..RouteDraft::default()
        });
        draft.split_routes();
        let sizes = draft
            .routes
            .iter()
            .map(|route| (route.hosts.len(), route.paths.len()));
        assert!(
            sizes
                .clone()
                .all(|(hosts, paths)| hosts * paths <= MAX_PATTERNS_PER_POLICY)
        );
        assert_eq!(
            sizes.map(|(hosts, paths)| hosts * paths).sum::<usize>(),
            200
        );
        let are_shared = draft
            .routes
            .iter()
            .all(|route| matches!(route.limits.as_slice(), [LimitUseDraft::Shared(0)]));
        assert!(are_shared, "the parts count together");
    }
}
