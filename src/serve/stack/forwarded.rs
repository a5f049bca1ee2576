//! The fields by which a trusted proxy names the host or the path of a client's request. Most proxies pass on fields
//! that they do not know, and frameworks believe them. So such a field stays only where it leads to the same route.

use http::Uri;

use super::stages::{Arrival, Routed};
use super::target::match_route;
use crate::http::head::{Fields, Head};
use crate::identity::strip::same;
use crate::policy::Ruleset;
use crate::route::{RouteTable, host};

/// Fields that name a host.
const HOSTS: [&str; 4] = [
    "x-forwarded-host",
    "x-original-host",
    "x-host",
    "x-http-host-override",
];

/// Fields that name a path, perhaps behind a scheme and a host.
const PATHS: [&str; 7] = [
    "x-original-url",
    "x-original-uri",
    "x-original-path",
    "x-rewrite-url",
    "x-override-url",
    "x-envoy-original-path",
    "x-waws-unencoded-url",
];

/// Fields that name the beginning of the path that the application does not see. Underscores in them are hyphens.
const PREFIXES: [&str; 2] = ["script-name", "x-script-name"];

/// Removes the fields that lead to another route. True if one stays that names a path: beside another method it may not.
#[cold]
pub fn retain_agreeing(fields: &mut Fields, routed: &Routed) -> bool {
    let Arrival {
        head, body, note, ..
    } = &routed.arrival;
    let ruleset = &note.generation.ruleset;
    retain_hosts(fields, &ruleset.table);
    let names_path = |name: &[u8]| {
        let mut paths = PATHS.iter();
        paths.any(|path| name.eq_ignore_ascii_case(path.as_bytes())) || is_prefix(name)
    };
    if ruleset.routes.len() == 1 || !fields.names().any(names_path) {
        return false;
    }
    // A method in the body is not looked up by another path.
    let reads = routed.route().reads;
    let by_head = body.is_empty() || !(reads.method_in_body || reads.path_in_body);
    let route = routed.matched.alone().filter(|_| by_head);
    let path_stays = retain_paths(fields, head, route, ruleset);
    retain_prefixes(fields, head, route, ruleset) || path_stays
}

/// Removes hosts that other policies hold for than for the one that the request was routed by.
fn retain_hosts(fields: &mut Fields, table: &RouteTable) {
    if !table.looks_at_hosts() {
        return;
    }
    let routed = fields.text("host").map(str::to_owned);
    let alike = |value: &[u8]| {
        let value = std::str::from_utf8(value.trim_ascii()).ok();
        let named = value.and_then(host::canonical);
        named.is_some_and(|named| table.takes_alike(routed.as_deref(), &named))
    };
    for name in HOSTS {
        // Frameworks take the first of a list, or the last.
        let all = |line: &[u8]| line.split(|byte| *byte == b',').all(alike);
        if !fields.all(name).all(all) {
            fields.remove(name);
        }
    }
    // Quotes may hide no host: there is none with a quote in it.
    let is_sound = |part: &[u8]| {
        let (name, value) = part.split_at(part.iter().position(|b| *b == b'=').unwrap_or(0));
        if !name.trim_ascii().eq_ignore_ascii_case(b"host") {
            return true;
        }
        let value = value[1..].trim_ascii();
        let quoted = value.strip_prefix(b"\"");
        alike(quoted.map_or(value, |value| value.strip_suffix(b"\"").unwrap_or_default()))
    };
    let sound = |line: &[u8]| line.split(|byte| b",;".contains(byte)).all(is_sound);
    if !fields.all("forwarded").all(sound) {
        fields.remove("forwarded");
    }
}

/// Removes paths that lead to another route than this one. True if some stay.
fn retain_paths(fields: &mut Fields, head: &Head, route: Option<usize>, ruleset: &Ruleset) -> bool {
    let mut stay = false;
    for name in PATHS {
        if !fields.contains(name) {
            continue;
        }
        let same = fields.all(name).all(|value| {
            let value = std::str::from_utf8(value).ok();
            let path = value.and_then(path_of);
            path.is_some_and(|path| leads_to(route, path, head, ruleset))
        });
        if same {
            stay = true;
        } else {
            fields.remove(name);
        }
    }
    stay
}

/// Removes what is no prefix of the path, or leaves a path of it that leads to another route. True if one stays.
fn retain_prefixes(
    fields: &mut Fields,
    head: &Head,
    route: Option<usize>,
    ruleset: &Ruleset,
) -> bool {
    let mut prefixes = fields.iter().filter(|(name, _)| is_prefix(name));
    // Of several, readers take the first, the last or that of their own name.
    let target = match (prefixes.next(), prefixes.next()) {
        (Some((_, value)), None) => std::str::from_utf8(value).ok(),
        _ => None,
    };
    let target = target.and_then(|value| below(head, value.trim_end_matches('/')));
    drop(prefixes);
    let stays = target.is_some_and(|target| leads_to(route, &target, head, ruleset));
    if !stays {
        fields.retain(|name| !is_prefix(name));
    }
    stays
}

fn is_prefix(name: &[u8]) -> bool {
    PREFIXES.iter().any(|prefix| same(name, prefix))
}

/// The target of a request without this prefix of its path.
fn below(head: &Head, prefix: &str) -> Option<String> {
    let path = head.uri.path().strip_prefix(prefix)?;
    let query = head.uri.query();
    let query = query.map(|query| format!("?{query}"));
    let is_whole = path.is_empty() || path.starts_with('/');
    // Of no path frameworks make the root.
    let root = if path.is_empty() { "/" } else { "" };
    is_whole.then(|| format!("{root}{path}{}", query.unwrap_or_default()))
}

/// Whether a request for this target takes this route.
fn leads_to(route: Option<usize>, target: &str, head: &Head, ruleset: &Ruleset) -> bool {
    let Ok(uri) = target.parse::<Uri>() else {
        return false;
    };
    let other = Head {
        uri,
        fields: head.fields.clone(),
        ..head.without_fields()
    };
    let found = match_route(&other, head.fields.text("host"), ruleset);
    let found = found.ok().and_then(|matched| matched.alone());
    route.is_some() && found == route
}

/// The target that a value names, without scheme and host.
fn path_of(value: &str) -> Option<&str> {
    let value = value.trim();
    match value.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            Some(rest.find('/').map_or("/", |at| &rest[at..]))
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
        RouteTable::build(&patterns).unwrap()
    }

    #[track_caller]
    fn check(table: &RouteTable, name: &str, value: &str, stays: bool) {
        let mut fields = Fields::default();
        fields.add("host", b"b.com");
        fields.add(name, value.as_bytes());
        retain_hosts(&mut fields, table);
        assert_eq!(fields.contains(name), stays, "{name}: {value}");
    }

    #[test]
    fn hosts_that_lead_elsewhere_go() {
        let apart = table(&["*", "a.com", "*.a.com"]);
        for name in HOSTS {
            for value in ["c.com", "b.com", "B.com.:80", "c.com, d.com"] {
                check(&apart, name, value, true);
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
                check(&apart, name, value, false);
            }
        }
        for value in [
            "for=1.2.3.4",
            "for=\"[::1]\";host=c.com;proto=https",
            "host=\"c.com:80\"",
            "for=a;HOST = c.com, for=b;host=d.com",
            "",
        ] {
            check(&apart, "forwarded", value, true);
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
            check(&apart, "forwarded", value, false);
        }
        // No policy says where.
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
                below(&head, prefix).as_deref(),
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
        let check =
            |value: &str, expected: Option<&str>| assert_eq!(path_of(value), expected, "{value}");
        check("/a?b", Some("/a?b"));
        check("http://a.com/b://c", Some("/b://c"));
        check("http://a.com", Some("/"));
        check("/a://b/c", Some("/a://b/c"));
        check("a", None);
        check("", None);
    }
}
