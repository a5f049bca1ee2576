//! Writes the routes for `tollgate check`. A policy has a route for each of its matches and hosts; it is written once, with
//! all of them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::super::compile::body_reads::may_be_overridden;
use super::super::decode::format_size;
use super::routes::{
    describe_error_pages, describe_field_changes, find_broader_route, find_route_with_other_host,
    sort_by_specificity,
};
use super::{DescriptionWriter, sharing_file};
use crate::limit::{AccessList, Identity};
use crate::route::{HostPattern, PathChange, PathMatching, Route};

/// The paths that [`crate::route::RouteTable::find_folded`] finds, in words.
const OTHER_SPELLINGS: &str = "other spellings of its path (case, formats, what follows a script)";

impl DescriptionWriter<'_> {
    /// Writes all policies. Each one stands where its most specific route does.
    pub(super) fn write_routes(&mut self) {
        let routes = sort_by_specificity(self.loaded);
        let count = routes.len();
        let mut policies: Vec<Vec<&Route>> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for route in routes {
            let place = *places.entry(&route.name).or_insert(policies.len());
            match policies.get_mut(place) {
                Some(policy) => policy.push(route),
                None => policies.push(vec![route]),
            }
        }
        let order = "the most specific first";
        let _ = match (count, policies.len()) {
            (1, _) => writeln!(self.text, "1 route:"),
            (_, 1) => writeln!(self.text, "{count} routes of 1 policy:"),
            (_, policies) if policies == count => writeln!(self.text, "{count} routes, {order}:"),
            (_, policies) => writeln!(self.text, "{count} routes of {policies} policies, {order}:"),
        };
        for policy in policies {
            self.write_policy(&policy);
        }
    }

    /// Writes one policy with all of its routes. What only some of them do is written with their matches.
    fn write_policy(&mut self, routes: &[&Route]) {
        let Some(route) = routes.first() else { return };
        let upstream = self.loaded.ruleset.upstream_name(route).unwrap_or_default();
        let action = route.action.describe(upstream);
        let listeners = match route.listeners.is_empty() {
            true => String::new(),
            false => format!(", listener {}", route.listeners.join(", ")),
        };
        let matches = describe_matches(routes);
        let name = &route.name;
        let _ = writeln!(self.text, "\n{name}: {matches} {action}{listeners}");
        let mut notes: Vec<(String, Vec<&Route>)> = Vec::new();
        for route in routes {
            for note in self.notes_of(route) {
                match notes.iter_mut().find(|(text, _)| *text == note) {
                    Some((_, noted_routes)) => noted_routes.push(route),
                    None => notes.push((note, vec![route])),
                }
            }
        }
        for (note, noted_routes) in notes {
            let _ = match noted_routes.len() == routes.len() {
                true => writeln!(self.text, "  {note}"),
                false => writeln!(self.text, "  {}: {note}", describe_matches(&noted_routes)),
            };
        }
        self.write_terms(route);
    }

    /// What depends on the match of a route: how its path and its methods are read beside other routes.
    fn notes_of(&self, route: &Route) -> Vec<String> {
        let ruleset = &self.loaded.ruleset;
        let upstream = ruleset.upstream_name(route).unwrap_or_default();
        let mut notes = Vec::new();
        if let Some(broader) = find_broader_route(self.loaded, route) {
            let name = &broader.name;
            notes.push(match ruleset.path_matching {
                PathMatching::Fold => format!("takes {OTHER_SPELLINGS} too, before {name}"),
                PathMatching::Exact => format!("leaves {OTHER_SPELLINGS} to {name}"),
            });
        }
        if let Some(other) = find_route_with_other_host(self.loaded, route) {
            notes.push(format!(
                "holds for its host only: with another `Host` a client reaches {upstream} through {}",
                other.name
            ));
        }
        if may_be_overridden(route, &ruleset.routes) {
            notes.push(format!(
                "counts a POST whose body is coded or longer than 1 MiB by the limits of its path's other methods too, for `_method` in it may name any: `paths: exact` where {upstream} reads no `_method`"
            ));
        }
        notes
    }

    /// Writes what all routes of a policy have in common.
    fn write_terms(&mut self, route: &Route) {
        let loaded = self.loaded;
        let ruleset = &loaded.ruleset;
        let out = &mut self.text;
        if let Some(max_body_bytes) = route.max_body_bytes {
            let size = format_size(max_body_bytes);
            let _ = writeln!(out, "  takes bodies of at most {size}");
        }
        if !route.codings.is_empty() {
            let names: Vec<&str> = route.codings.iter().map(|coding| coding.as_str()).collect();
            let _ = writeln!(out, "  compresses responses: {}", names.join(", "));
        }
        if let Some(cors) = &route.cors {
            let _ = writeln!(
                out,
                "  lets pages of {} read responses{}",
                cors.origins,
                match cors.allows_credentials {
                    true => ", with credentials",
                    false => "",
                }
            );
        }
        if let Some(pages) = &route.error_pages {
            let above = ruleset.error_pages.clone().unwrap_or_default();
            let pages = describe_error_pages(pages, &above);
            if !pages.is_empty() {
                let _ = writeln!(out, "  bodies of refusals: {pages}");
            }
        }
        if let Some(path_change) = &route.path_change
            && route.upstream_index().is_some()
        {
            let PathChange { strip, prefix } = &**path_change;
            let _ = writeln!(out, "  forwards {strip}/… as {prefix}/…");
        }
        if route.back_mapping.is_some() {
            let _ = writeln!(out, "  maps redirects and cookies back");
        }
        for (message, changes) in [
            ("requests", &route.request_changes),
            ("responses", &route.response_changes),
        ] {
            if let Some(changes) = changes {
                let changes = describe_field_changes(changes);
                let _ = writeln!(out, "  changes {message}: {changes}");
            }
        }
        for require in &route.require {
            let sources = ruleset.identity.required_source_names(route.user_sources);
            let sources = sources.filter(|_| *require == Identity::User);
            let sources = sources.map(|names| format!(" of {}", names.join(" or ")));
            let _ = writeln!(
                out,
                "  requires {}{}",
                require.as_str(),
                sources.unwrap_or_default()
            );
        }
        let of_gateway = &ruleset.unrouted.access;
        let is_own =
            |list: &&Arc<AccessList>| !of_gateway.iter().any(|other| other.origin == list.origin);
        for list in route.access.iter().filter(is_own) {
            let _ = writeln!(out, "  {list} ({})", list.origin);
        }
        let (shared_rules, own_rules): (Vec<_>, Vec<_>) = route
            .rules
            .iter()
            .partition(|rule| sharing_file(rule).is_some());
        if !shared_rules.is_empty() {
            let names: Vec<&str> = shared_rules.iter().map(|rule| rule.name.as_str()).collect();
            let _ = writeln!(out, "  shares {}", names.join(", "));
        }
        for rule in own_rules {
            self.write_limit(rule);
        }
    }
}

/// The matches of routes, each with its hosts: `GET /a on x.example, y.example; POST /a on x.example, y.example`.
fn describe_matches(routes: &[&Route]) -> String {
    let mut matches: Vec<(String, Vec<String>)> = Vec::new();
    for route in routes {
        let pattern = route.action.match_text(&route.pattern);
        let host = match route.pattern.host() {
            HostPattern::Any => None,
            host => Some(host.to_string()),
        };
        match matches.iter_mut().find(|(text, _)| *text == pattern) {
            Some((_, hosts)) => hosts.extend(host),
            None => matches.push((pattern, host.into_iter().collect())),
        }
    }
    let texts = matches
        .into_iter()
        .map(|(pattern, hosts)| match hosts.is_empty() {
            true => pattern,
            false => format!("{pattern} on {}", hosts.join(", ")),
        });
    texts.collect::<Vec<_>>().join("; ")
}
