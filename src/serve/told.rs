//! What a trusted proxy says of the host or the path that a client asked for. Most proxies pass on what they do not know
//! from anybody, and frameworks believe it, so that it stays only where it leads to the route that counts the request.

use http::Uri;

use super::record::Arrival;
use super::routing::Routed;
use super::target::match_route;
use crate::head::{Fields, Head};
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

/// Fields that say what of the path the application does not see.
const PREFIXES: [&str; 2] = ["script-name", "x-script-name"];

/// Removes what leads elsewhere. Says whether a path stays, which need not stay beside another method.
#[cold]
pub fn settle(fields: &mut Fields, routed: &Routed) -> bool {
    let Arrival {
        head, body, note, ..
    } = &routed.arrival;
    let ruleset = &note.generation.ruleset;
    settle_hosts(fields, &ruleset.table);
    let names_path = |name: &[u8]| {
        let mut names = PATHS.iter().chain(&PREFIXES);
        names.any(|path| name.eq_ignore_ascii_case(path.as_bytes()))
    };
    if ruleset.routes.len() == 1 || !fields.names().any(names_path) {
        return false;
    }
    // A method in the body is not looked up by another path.
    let by_head = body.is_empty() || !routed.route().reads.method_in_body;
    let route = routed.matched.alone().filter(|_| by_head);
    settle_paths(fields, head, route, ruleset)
}

/// Removes hosts that other policies hold for than for the one that the request was routed by.
fn settle_hosts(fields: &mut Fields, table: &RouteTable) {
    if !table.looks_at_hosts() {
        return;
    }
    let routed = fields.text("host").map(str::to_owned);
    let alike = |told: &[u8]| {
        let told = std::str::from_utf8(told.trim_ascii()).ok();
        let told = told.and_then(host::canonical);
        told.is_some_and(|told| table.takes_alike(routed.as_deref(), &told))
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

/// Removes paths that lead to another route than this one. Says whether some stay.
fn settle_paths(
    fields: &mut Fields,
    asked: &Head,
    route: Option<usize>,
    ruleset: &Ruleset,
) -> bool {
    let leads = |path: &str| {
        let Ok(uri) = path.parse::<Uri>() else {
            return false;
        };
        let head = Head {
            uri,
            fields: asked.fields.clone(),
            ..asked.line()
        };
        let found = match_route(&head, asked.fields.text("host"), ruleset);
        let found = found.ok().and_then(|matched| matched.alone());
        route.is_some() && found == route
    };
    let mut stay = false;
    for name in PATHS.into_iter().chain(PREFIXES) {
        if !fields.contains(name) {
            continue;
        }
        let is_prefix = PREFIXES.contains(&name);
        let same = fields.all(name).all(|value| {
            let Ok(value) = std::str::from_utf8(value) else {
                return false;
            };
            match is_prefix {
                true => match asked.uri.path().strip_prefix(value.trim_end_matches('/')) {
                    Some(path) => leads(path),
                    None => true,
                },
                false => path_of(value).is_some_and(leads),
            }
        });
        if same {
            stay = true;
        } else {
            fields.remove(name);
        }
    }
    stay
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
        settle_hosts(&mut fields, table);
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
