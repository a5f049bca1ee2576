//! Checks the names of listeners in the gateway file and in policies, and that no two routes match the same requests. None
//! may have the path of `usage`.

use std::collections::{BTreeSet, HashMap};

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, PolicyConfig};
use super::super::tree::{Located, SourceLocation};
use crate::base::suggest::{list_words, nearest_word};
use crate::route::pattern::Segment;
use crate::route::{Conflict, Pattern, RouteTable};

/// Maximum number of patterns of a policy. Each pair of a match and a host is a pattern.
pub const MAX_PATTERNS_PER_POLICY: usize = 64;
/// Maximum number of names that a help text lists.
pub(super) const MAX_LISTED_NAMES: usize = 20;
/// Maximum number of patterns with the same host, path and listeners. They can differ in their methods only.
const MAX_PATTERNS_PER_PATH: usize = 64;

/// Checks that no two listeners have one name, and that each list of `listed` names listeners of the gateway file, none
/// twice. These lists are `listen` of policies and of defaults. Returns whether all names are valid.
pub(super) fn check_listeners<'c>(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    listed: impl Iterator<Item = &'c Vec<Located<String>>> + Clone,
) -> bool {
    let mut are_names_valid = true;
    let listeners = gateway.listen.iter();
    let listener_names = listeners.filter_map(|listener| listener.name.as_ref());
    let mut first_locations: HashMap<&str, SourceLocation> = HashMap::new();
    for name in listener_names.clone() {
        if let Some(first) = first_locations.get(&*name.value) {
            let message = format!("two listeners have the name `{}`", name.value);
            let help = format!("the first is on line {}; choose another name", first.line);
            cx.error(name.location, message, Some(help));
            are_names_valid = false;
        } else {
            first_locations.insert(&name.value, name.location);
        }
    }
    for names in listed.clone() {
        for (index, name) in names.iter().enumerate() {
            let mut earlier_names = names[..index].iter();
            if earlier_names.any(|other| other.value == name.value) {
                let message = format!("the listener `{}` is here twice", name.value);
                cx.error(name.location, message, Some("remove one of them".into()));
                are_names_valid = false;
            }
        }
    }
    for name in listed.flatten() {
        if first_locations.contains_key(&*name.value) {
            continue;
        }
        let names = listener_names.clone().map(|name| &*name.value);
        let help = match nearest_word(&name.value, names.clone()) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None if names.clone().next().is_none() => format!(
                "name one in the gateway file: `listen: [{{ name: {}, address: 0.0.0.0:8080 }}]`",
                name.value
            ),
            None => format!(
                "the gateway file has {}",
                list_words(names.take(MAX_LISTED_NAMES))
            ),
        };
        let message = format!("no listener has the name `{}`", name.value);
        cx.error(name.location, message, Some(help));
        are_names_valid = false;
    }
    are_names_valid
}

/// A pattern of a policy, and where it applies.
struct ListenerPattern<'p> {
    pattern: Located<Pattern>,
    /// The names of the listeners at which the pattern applies; empty if it applies at every listener.
    listeners: Vec<&'p str>,
}

/// Reports routes that match the same requests at the same listener.
pub(super) fn check_conflicts(cx: &mut LoadContext, policies: &[PolicyConfig]) {
    let mut patterns_per_path: HashMap<String, usize> = HashMap::new();
    let mut routes = Vec::new();
    for policy in policies.iter().filter(|policy| policy.domain.is_none()) {
        let listener_names = policy.listen.iter().map(|name| &*name.value);
        let listeners: Vec<&str> = listener_names.collect();
        let patterns = policy.patterns_with_hosts().into_iter();
        for pattern in patterns.take(MAX_PATTERNS_PER_POLICY) {
            // Each pair of conflicting routes is reported, and the number of pairs grows with the square of the routes.
            let path_at_listeners =
                format!("{} {}", host_and_path(&pattern.value), listeners.join(" "));
            let count = patterns_per_path.entry(path_at_listeners).or_default();
            *count += 1;
            if *count > MAX_PATTERNS_PER_PATH {
                let message = format!("more than {MAX_PATTERNS_PER_PATH} matches have this path");
                cx.error(pattern.location, message, Some("join them".into()));
            } else {
                routes.push(ListenerPattern {
                    pattern,
                    listeners: listeners.clone(),
                });
            }
        }
    }
    for (first, second) in find_conflicts(&routes) {
        let (Some(first), Some(second)) = (routes.get(first), routes.get(second)) else {
            continue;
        };
        report_conflict(cx, &first.pattern, &second.pattern);
    }
}

/// Reports policies that take the very path of `usage`. That path comes before all patterns that only include it.
pub(super) fn check_usage_path(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    policies: &[PolicyConfig],
) {
    let Some(usage) = &gateway.usage else { return };
    let patterns = policies.iter().flat_map(|policy| &policy.patterns);
    for pattern in patterns.filter(|pattern| pattern.value.segments() == usage.value.segments()) {
        let message = format!(
            "`{}` is the path of `usage` at {}, which the gateway answers itself",
            pattern.value,
            cx.sources.origin(usage.location)
        );
        let help = "match another path, or move `usage` to one that no policy has";
        cx.error(pattern.location, message, Some(help.into()));
    }
}

/// The indexes of each pair of routes that conflict at some listener, the lower index first.
fn find_conflicts(routes: &[ListenerPattern<'_>]) -> BTreeSet<(usize, usize)> {
    let listed_names = routes.iter().flat_map(|route| route.listeners.iter());
    let listed_names: BTreeSet<&str> = listed_names.copied().collect();
    // `None` stands for all listeners that no policy lists.
    let listeners = listed_names.into_iter().map(Some).chain([None]);
    let conflicts = listeners.flat_map(|listener| {
        let applies_at_listener = |route: &&ListenerPattern<'_>| {
            route.listeners.is_empty()
                || listener.is_some_and(|name| route.listeners.contains(&name))
        };
        let routes = routes.iter().enumerate();
        let patterns = routes.filter(|(_, route)| applies_at_listener(route));
        RouteTable::build(patterns.map(|(index, route)| (index, &route.pattern.value)))
            .err()
            .unwrap_or_default()
    });
    let index_pair = |conflict: Conflict| (conflict.first_index, conflict.second_index);
    conflicts.map(index_pair).collect()
}

fn report_conflict(cx: &mut LoadContext, first: &Located<Pattern>, second: &Located<Pattern>) {
    let message = format!(
        "`{}` takes the same requests as `{}` at {}",
        second.value,
        first.value,
        cx.sources.origin(first.location)
    );
    let help = match first.location.file == second.location.file {
        true => "remove one of them, or make it more specific",
        false => "make one of them more specific, or join the two policies",
    };
    cx.error(second.location, message, Some(help.into()));
}

/// The host and the path of a pattern, with `*` in place of each segment that matches any text.
fn host_and_path(pattern: &Pattern) -> String {
    let segments = pattern.segments().iter().map(|segment| match segment {
        Segment::Literal(text) => text,
        Segment::One(_) => "*",
        Segment::Rest => "**",
    });
    segments.fold(pattern.host().to_string(), |path, segment| {
        path + "/" + segment
    })
}
