//! Header fields in which a trusted proxy names the host or the path of the client's request.
//!
//! Most proxies pass on such fields from anybody, and frameworks believe them. So a path is kept only if it leads to the
//! route that counted the request and forwards the path as it is. A host is kept only if it has the same routes. `forward.rs` calls this file.

use http::Uri;

use super::stages::{Arrival, Routed};
use super::target::find_route_by_head;
use crate::http::head::{Fields, Head};
use crate::identity::strip::is_alike;
use crate::policy::Ruleset;
use crate::route::{RouteTable, canonical_host};

/// The fields that name a host.
const HOST_FIELDS: [&str; 4] = [
    "x-forwarded-host",
    "x-original-host",
    "x-host",
    "x-http-host-override",
];

/// The fields that name a path, perhaps after a scheme and a host.
const PATH_FIELDS: [&str; 7] = [
    "x-original-url",
    "x-original-uri",
    "x-original-path",
    "x-rewrite-url",
    "x-override-url",
    "x-envoy-original-path",
    "x-waws-unencoded-url",
];

/// The fields that name a prefix of the path which the application does not see. Names are compared by [`is_alike`].
const PREFIX_FIELDS: [&str; 2] = ["script-name", "x-script-name"];

/// Removes the fields that may lead to another route than that of the request. Returns whether a field was kept because
/// its path leads to this route. A head with such a field may not be reused for the next request, because with another
/// method the path could lead elsewhere.
#[cold]
pub fn retain_fields_of_route(fields: &mut Fields, routed: &Routed) -> bool {
    let Arrival {
        head,
        body,
        context,
        ..
    } = &routed.arrival;
    let ruleset = &context.generation.ruleset;
    let table = context.table();
    retain_host_fields(fields, table);
    let names_path = |name: &[u8]| {
        let mut path_fields = PATH_FIELDS.iter();
        path_fields.any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
            || is_prefix_field(name)
    };
    if routed.route().path_change.is_some() {
        // The path of the client is none of the upstream. It could lead above the prefix where the request belongs.
        fields.retain(|name| !names_path(name));
        return false;
    }
    // Where there is one route, every path leads to it.
    if ruleset.has_one_request_route || !fields.names().any(names_path) {
        return false;
    }
    // The path of a field is looked up with the head's method only, not with one that the body names.
    let reads = routed.route().reads;
    let is_routed_by_head = body.is_empty() || !(reads.method_in_body || reads.path_in_body);
    let single_route_index = routed.matched_route.single_route_index();
    let route_index = single_route_index.filter(|_| is_routed_by_head);
    let leads_to_route = |target: &str| is_routed_to(route_index, target, head, table, ruleset);
    let keeps_path = retain_path_fields(fields, leads_to_route);
    retain_prefix_field(fields, head, leads_to_route) || keeps_path
}

/// Removes fields with a host that has other routes than the host that the request was routed by, or with a malformed
/// host.
fn retain_host_fields(fields: &mut Fields, table: &RouteTable) {
    if !table.depends_on_host() {
        return;
    }
    let routed_host = fields.text("host").map(str::to_owned);
    let has_same_routes = |value: &[u8]| {
        let value = std::str::from_utf8(value.trim_ascii()).ok();
        let named_host = value.and_then(canonical_host::canonical_host);
        named_host.is_some_and(|host| table.has_same_routes(routed_host.as_deref(), &host))
    };
    for name in HOST_FIELDS {
        // Of a list, frameworks take the first host or the last.
        let all_have_same_routes =
            |line: &[u8]| line.split(|byte| *byte == b',').all(has_same_routes);
        if !fields.all(name).all(all_have_same_routes) {
            fields.remove(name);
        }
    }
    // The list is split without regard to quotes. That hides no host, because a host has no quote in it.
    let pair_has_same_routes = |pair: &[u8]| {
        let equals_sign = pair.iter().position(|byte| *byte == b'=');
        // A pair without the sign has an empty name. A value begins with the sign.
        let (name, value) = pair.split_at(equals_sign.unwrap_or(0));
        if !name.trim_ascii().eq_ignore_ascii_case(b"host") {
            return true;
        }
        let value = value[b"=".len()..].trim_ascii();
        let quoted = value.strip_prefix(b"\"");
        let host = quoted.map_or(value, |text| text.strip_suffix(b"\"").unwrap_or_default());
        has_same_routes(host)
    };
    let all_pairs_have_same_routes = |line: &[u8]| {
        let mut pairs = line.split(|byte| b",;".contains(byte));
        pairs.all(pair_has_same_routes)
    };
    if !fields.all("forwarded").all(all_pairs_have_same_routes) {
        fields.remove("forwarded");
    }
}

/// Removes fields with paths that do not lead to the request's route. Returns whether some are kept.
fn retain_path_fields(fields: &mut Fields, leads_to_route: impl Fn(&str) -> bool) -> bool {
    let mut keeps_path = false;
    for name in PATH_FIELDS {
        if !fields.contains(name) {
            continue;
        }
        let all_lead_to_route = fields.all(name).all(|value| {
            let value = std::str::from_utf8(value).ok();
            let target = value.and_then(parse_target);
            target.is_some_and(&leads_to_route)
        });
        if all_lead_to_route {
            keeps_path = true;
        } else {
            fields.remove(name);
        }
    }
    keeps_path
}

/// Removes the prefix fields, unless there is a single one and the path without its prefix leads to the same route.
/// Returns whether that field is kept.
fn retain_prefix_field(
    fields: &mut Fields,
    head: &Head,
    leads_to_route: impl Fn(&str) -> bool,
) -> bool {
    let mut prefixes = fields.iter().filter(|(name, _)| is_prefix_field(name));
    // Of several fields, frameworks take the first, the last or the one whose name they know.
    let prefix = match (prefixes.next(), prefixes.next()) {
        (Some((_, value)), None) => std::str::from_utf8(value).ok(),
        _ => None,
    };
    let target = prefix.and_then(|prefix| target_below(head, prefix.trim_end_matches('/')));
    drop(prefixes);
    let is_kept = target.is_some_and(|target| leads_to_route(&target));
    if !is_kept {
        fields.retain(|name| !is_prefix_field(name));
    }
    is_kept
}

fn is_prefix_field(name: &[u8]) -> bool {
    PREFIX_FIELDS.iter().any(|prefix| is_alike(name, prefix))
}

/// The target of a request without this prefix of its path; `None` if the path does not begin with the prefix as whole
/// segments.
fn target_below(head: &Head, prefix: &str) -> Option<String> {
    let path = head.uri.path().strip_prefix(prefix)?;
    let query = head.uri.query().map(|query| format!("?{query}"));
    let ends_segment = path.is_empty() || path.starts_with('/');
    // Frameworks take an empty path for the root.
    let root = if path.is_empty() { "/" } else { "" };
    ends_segment.then(|| format!("{root}{path}{}", query.unwrap_or_default()))
}

/// Whether a request with this head, but with this target, would take the route `route_index` and no other.
fn is_routed_to(
    route_index: Option<usize>,
    target: &str,
    head: &Head,
    table: &RouteTable,
    ruleset: &Ruleset,
) -> bool {
    let Ok(uri) = target.parse::<Uri>() else {
        return false;
    };
    let redirected_head = Head {
        uri,
        fields: head.fields.clone(),
        ..head.without_fields()
    };
    let matched_route =
        find_route_by_head(&redirected_head, head.fields.text("host"), table, ruleset);
    let found_index = matched_route
        .ok()
        .and_then(|matched_route| matched_route.single_route_index());
    route_index.is_some() && found_index == route_index
}

/// The path and query that a field's value names, without scheme and host; `None` if the value names no path.
fn parse_target(value: &str) -> Option<&str> {
    let value = value.trim();
    match value.split_once("://") {
        Some((scheme, after_scheme)) if !scheme.contains(['/', '?']) => {
            let path_start = after_scheme.find('/');
            Some(path_start.map_or("/", |start| &after_scheme[start..]))
        }
        _ => value.starts_with('/').then_some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{HostPattern, Pattern};

    fn table(hosts: &[&str]) -> RouteTable {
        let patterns: Vec<_> = hosts
            .iter()
            .map(|host| {
                let host = HostPattern::parse(host).unwrap();
                Pattern::parse("/**").unwrap().with_host(host)
            })
            .collect();
        RouteTable::build(patterns.iter().enumerate()).unwrap()
    }

    #[track_caller]
    fn check(table: &RouteTable, name: &str, value: &str, is_kept: bool) {
        let mut fields = Fields::default();
        fields.add("host", b"b.com");
        fields.add(name, value.as_bytes());
        retain_host_fields(&mut fields, table);
        assert_eq!(fields.contains(name), is_kept, "{name}: {value}");
    }

    #[test]
    fn fields_with_hosts_of_other_policies_are_removed() {
        let table_by_host = table(&["*", "a.com", "*.a.com"]);
        for name in HOST_FIELDS {
            for value in ["c.com", "b.com", "B.com.:80", "c.com, d.com"] {
                check(&table_by_host, name, value, true);
            }
            for value in [
                "a.com",
                "A.com:80",
                "a.com.",
                "x.a.com",
                "c.com,a.com",
                "a.com, c.com",
                "",
                "c.com;a.com",
                "c.com a.com",
                "http://c.com",
                "\u{e9}.com",
            ] {
                check(&table_by_host, name, value, false);
            }
        }
        for value in [
            "for=1.2.3.4",
            "for=\"[::1]\";host=c.com;proto=https",
            "host=\"c.com:80\"",
            "for=a;HOST = c.com, for=b;host=d.com",
            "",
        ] {
            check(&table_by_host, "forwarded", value, true);
        }
        for value in [
            "host=a.com",
            "for=x;Host=\"a.com\"",
            "for=x;host=c.com, for=y;host=\"a.com:80\"",
            "host = a.com",
            "host=\"a\\.com\"",
            "host=\"c.com\"x",
            "for=\";host=a.com\"",
            "host=",
            "host=\"a.com",
        ] {
            check(&table_by_host, "forwarded", value, false);
        }
        // No policy depends on the host.
        for value in ["a.com", "x,y", ""] {
            check(&table(&["*"]), "x-forwarded-host", value, true);
        }
    }

    #[test]
    fn prefixes() {
        let check = |target: &str, prefix: &str, expected: Option<&str>| {
            let head = Head {
                uri: target.parse().unwrap(),
                ..Head::default()
            };
            assert_eq!(
                target_below(&head, prefix).as_deref(),
                expected,
                "{target} {prefix}"
            );
        };
        check("/a/b?c", "/a", Some("/b?c"));
        check("/a?/b", "/a", Some("/?/b"));
        check("/a", "", Some("/a"));
        check("/ab", "/a", None);
        check("/a", "/b", None);
        check("/a", "/a, /a", None);
    }

    #[test]
    fn paths_of_values() {
        let check = |value: &str, expected: Option<&str>| {
            assert_eq!(parse_target(value), expected, "{value}")
        };
        check("/a?b", Some("/a?b"));
        check("http://a.com/b://c", Some("/b://c"));
        check("http://a.com", Some("/"));
        check("/a://b/c", Some("/a://b/c"));
        check("a", None);
        check("", None);
    }
}
