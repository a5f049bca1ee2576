//! Routes whose limits count some methods only: a policy for each set of methods.

use super::key_parts::MethodChoice;
use crate::import::model::{LimitUseDraft, RouteDraft};

/// A limit that a route has, for some methods.
pub type RouteLimit = (usize, MethodChoice);

/// Splits a route by the methods that its limits count.
pub fn split_by_method(route: RouteDraft, limits: Vec<RouteLimit>) -> Vec<RouteDraft> {
    let limits_of = |method: Option<&str>| -> Vec<usize> {
        let mut indexes: Vec<usize> = limits
            .iter()
            .filter(|(_, methods)| methods.includes(method))
            .map(|(index, _)| *index)
            .collect();
        indexes.dedup();
        indexes
    };
    let with_limits = |route: &RouteDraft, methods: Vec<String>, indexes: Vec<usize>| RouteDraft {
        methods,
        limits: indexes.into_iter().map(LimitUseDraft::Shared).collect(),
        ..route.clone()
    };
    let mut named: Vec<String> = limits
        .iter()
        .flat_map(|(_, methods)| methods.named().to_vec())
        .collect();
    // A match of GET takes HEAD too, so that HEAD must be named where nginx treats both differently.
    if named.iter().any(|method| method == "GET") {
        named.push("HEAD".into());
    }
    named.sort_unstable();
    named.dedup();
    named.retain(|method| route.methods.is_empty() || route.methods.contains(method));
    let rest = limits_of(None);
    let mut groups: Vec<(Vec<String>, Vec<usize>)> = Vec::new();
    for method in named {
        let indexes = limits_of(Some(&method));
        match groups.iter_mut().find(|(_, other)| *other == indexes) {
            Some((methods, _)) => methods.push(method),
            None => groups.push((vec![method], indexes)),
        }
    }
    let is_get_apart = groups
        .iter()
        .any(|(methods, indexes)| *indexes != rest && methods.iter().any(|method| method == "GET"));
    groups.retain(|(methods, indexes)| {
        *indexes != rest || is_get_apart && methods.iter().any(|method| method == "HEAD")
    });
    let mut routes: Vec<RouteDraft> = groups
        .into_iter()
        .map(|(methods, indexes)| {
            let name = format!("{} {}", route.name, methods.join(" "));
            RouteDraft {
                name,
                ..with_limits(&route, methods, indexes)
            }
        })
        .collect();
    let named: Vec<&String> = routes.iter().flat_map(|route| &route.methods).collect();
    let rest_methods: Vec<String> = route
        .methods
        .iter()
        .filter(|method| !named.contains(method))
        .cloned()
        .collect();
    if route.methods.is_empty() || !rest_methods.is_empty() {
        routes.push(with_limits(&route, rest_methods, rest));
    }
    routes
}
