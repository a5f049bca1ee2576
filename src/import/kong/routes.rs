//! Routes as regions of requests with Kong's priorities.

use super::entities::{KongEntity, is_reference};
use crate::import::documents::InputValue;
use crate::import::nginx::location::read_location;
use crate::import::report::{Concern, ImportReport, printable};
use crate::import::routing::region::{Fit, Region, parse_path};
use crate::route::pattern::{HostPattern, Segment};

/// Maximum number of values of a list of a route.
const MAX_VALUES: usize = 256;
/// Maximum number of characters of a path in a note.
const MAX_SHOWN_CHARS: usize = 40;

/// A path of a route.
#[derive(Clone, Debug)]
pub struct RoutePath {
    /// The requests that it takes.
    pub region: Region,
    /// Its priority; the greater one is first.
    pub priority: i64,
    /// What is taken off the path, or why that cannot be said.
    pub strip: Result<Option<String>, String>,
}

/// What a route says beside its matches.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// The status and whether it is a redirect, of requests without TLS on a route for TLS only.
    pub upgrade: Option<u16>,
    /// Whether it is for requests without TLS only.
    pub is_plain_only: bool,
    /// Whether the host of the request is kept.
    pub keeps_host: bool,
}

/// The bound of `regex_priority` in both directions.
const MAX_REGEX_PRIORITY: i64 = 1 << 20;

/// Above the priority of every route that is read.
const HIGHEST_PRIORITY: i64 = i64::MAX;

/// Reads the paths of a route, one without a path as a single one for all. `version` is that of the format.
///
/// # Errors
///
/// Why Kong does not serve it, or why it is not about HTTP.
pub fn read_route(
    route: &KongEntity<'_>,
    version: u32,
    report: &mut ImportReport,
) -> Result<(Vec<RoutePath>, RouteSettings), String> {
    let value = route.value;
    let text = format!("route {}", route.name);
    let mut base = Region::everything();
    let mut fields = 0;
    // Kinds of conditions, of which the greater ones are first in Kong before version 3.
    let mut kinds = 0_i64;
    // Whether Kong may take the route before all others. Then its requests are refused, and no other route takes them.
    let mut is_rank_unclear = false;
    let mut settings = RouteSettings {
        upgrade: None,
        is_plain_only: false,
        keeps_host: false,
    };
    let mut plain_hosts = false;
    let mut strips = true;
    let mut regex_priority = 0_i64;
    let mut headers = 0_i64;
    let mut https_status = 426;
    let mut paths = Vec::new();
    for (field, at, value) in value.entries() {
        if value.is_null() {
            continue;
        }
        let shown = format!("{field}: {}", value.text().unwrap_or("..."));
        let texts: Vec<&str> = value
            .items_or_self()
            .into_iter()
            .filter_map(InputValue::text)
            .collect();
        // Without a host no request matches.
        let restrict = |base: &mut Region, region: Region| match base.intersect(&region) {
            Some(both) => *base = both,
            None => base.hosts.clear(),
        };
        if texts.len() > MAX_VALUES {
            fields += 1;
            is_rank_unclear = true;
            restrict(
                &mut base,
                Region::some_of_everything(&format!("`{field}` has more than {MAX_VALUES} values")),
            );
            continue;
        }
        match field {
            "name" | "id" | "tags" | "service" | "plugins" | "filter_chains" | "created_at"
            | "updated_at" => {}
            "hosts" if !texts.is_empty() => {
                fields += 1;
                kinds |= 0x40;
                plain_hosts = !texts.iter().any(|host| host.contains('*'));
                restrict(&mut base, read_hosts(&texts));
            }
            "paths" => paths = texts,
            "methods" if !texts.is_empty() => {
                fields += 1;
                kinds |= 0x08;
                restrict(&mut base, Region::of_methods(texts));
            }
            "headers" => {
                fields += 1;
                kinds |= 0x20;
                headers = i64::try_from(value.entries().count()).unwrap_or(0).min(15);
                restrict(
                    &mut base,
                    Region::some_of_everything("headers have no counterpart in a match"),
                );
            }
            "snis" => {
                fields += 1;
                kinds |= 0x04;
                restrict(
                    &mut base,
                    Region::some_of_everything("`snis` have no counterpart in a match"),
                );
            }
            "expression" | "sources" | "destinations" => {
                fields += 1;
                is_rank_unclear = true;
                restrict(
                    &mut base,
                    Region::some_of_everything(&format!("`{field}` has no counterpart in a match")),
                );
            }
            "protocols" if texts.iter().any(|text| is_reference(text)) => {
                is_rank_unclear = true;
                restrict(
                    &mut base,
                    Region::some_of_everything(
                        "its protocols are a reference to a value elsewhere",
                    ),
                );
            }
            "protocols" => {
                let is_http = |protocol: &&str| {
                    matches!(
                        *protocol,
                        "http" | "https" | "grpc" | "grpcs" | "ws" | "wss"
                    )
                };
                if !texts.iter().all(is_http) {
                    return Err("tollgate speaks HTTP only".into());
                }
                let has_plain = texts
                    .iter()
                    .any(|protocol| matches!(*protocol, "http" | "grpc" | "ws"));
                let has_tls = texts
                    .iter()
                    .any(|protocol| matches!(*protocol, "https" | "grpcs" | "wss"));
                settings.upgrade = (!has_plain).then_some(426);
                settings.is_plain_only = has_plain && !has_tls;
                report.taken(at, Concern::Routing, field, "");
            }
            "https_redirect_status_code" => {
                let status = value.number().and_then(|status| u16::try_from(status).ok());
                https_status = status
                    .filter(|status| matches!(status, 301 | 302 | 307 | 308))
                    .unwrap_or(426);
                report.taken(at, Concern::Routing, &shown, "");
            }
            "strip_path" => {
                strips = value.text() != Some("false");
                report.taken(at, Concern::Routing, &shown, "");
            }
            "preserve_host" => {
                settings.keeps_host = value.is_true();
                report.taken(at, Concern::Routing, &shown, "");
            }
            "regex_priority" | "priority" => {
                let number = value
                    .text()
                    .and_then(|text| text.trim().parse::<i64>().ok());
                match number.filter(|number| number.abs() < MAX_REGEX_PRIORITY) {
                    Some(number) => {
                        regex_priority = number;
                        report.taken(at, Concern::Routing, &shown, "");
                    }
                    None => {
                        is_rank_unclear = true;
                        restrict(
                            &mut base,
                            Region::some_of_everything(&format!("`{field}` is no small number")),
                        );
                    }
                }
            }
            "path_handling" if value.text() == Some("v1") => {
                report.changed(
                    at,
                    Concern::Routing,
                    &shown,
                    "paths are joined by one slash",
                );
            }
            "path_handling" | "request_buffering" | "response_buffering" => {
                report.taken(at, Concern::Other, &shown, "")
            }
            "hosts" | "methods" => {}
            _ => {
                is_rank_unclear = true;
                report.left(at, Concern::Routing, &shown, "it is not read");
                restrict(
                    &mut base,
                    Region::some_of_everything(&format!("`{}` is not read", printable(field, 40))),
                );
            }
        }
    }
    settings.upgrade = settings.upgrade.map(|_| https_status);
    if fields == 0 && paths.is_empty() {
        return Err("it matches nothing, and Kong refuses that".into());
    }
    // Kong looks at how many kinds of conditions a route has first, then at these, from left to right.
    let priority = |has_path: bool, is_regex: bool, length: usize| {
        let length = i64::try_from(length).unwrap_or(i64::MAX).min(65_535);
        let regex_priority = if is_regex {
            regex_priority + MAX_REGEX_PRIORITY
        } else {
            0
        };
        if is_rank_unclear {
            return HIGHEST_PRIORITY;
        }
        let fields = i64::from(fields) + i64::from(has_path);
        let mut priority;
        if version >= 3 {
            priority = fields << 1 | i64::from(plain_hosts);
            priority = priority << 4 | headers;
            priority = priority << 1 | i64::from(is_regex);
        } else {
            priority = fields << 7 | kinds | if has_path { 0x10 } else { 0 };
            priority = priority << 1 | i64::from(plain_hosts);
            priority = priority << 1 | i64::from(is_regex);
            priority = priority << 4 | headers;
        }
        priority = priority << 21 | regex_priority;
        priority << 16 | length
    };
    if base.hosts.is_empty() {
        return Err("no request can have its hosts, so Kong does not serve it".into());
    }
    let mut read = Vec::new();
    if paths.is_empty() {
        read.push(RoutePath {
            region: base.clone(),
            priority: priority(false, false, 0),
            strip: Ok(None),
        });
    }
    // Before version 3 the paths of a route have one rank: that of a regular expression, and of the longest prefix.
    let of_route = (version < 3).then(|| {
        let prefixes = paths.iter().filter(|path| !is_regex(path, version));
        let longest = prefixes.map(|path| path.len()).max().unwrap_or(0);
        (paths.iter().any(|path| is_regex(path, version)), longest)
    });
    for path in paths {
        let (region, is_regex, strip) = read_path(path, version);
        // The length of a regular expression does not count.
        let own = (is_regex, if is_regex { 0 } else { path.len() });
        let (is_regex, length) = of_route.unwrap_or(own);
        let strip = if strips { strip } else { Ok(None) };
        if let Some(region) = base.intersect(&region) {
            read.push(RoutePath {
                region,
                priority: match is_reference(path) {
                    true => HIGHEST_PRIORITY,
                    false => priority(true, is_regex, length),
                },
                strip,
            });
        }
    }
    if read.is_empty() {
        return Err("no request can match it".into());
    }
    let notes = read.iter().flat_map(|path| &path.region.notes);
    for note in notes {
        report.changed(route.at, Concern::Routing, &text, note);
    }
    Ok((read, settings))
}

fn read_hosts(hosts: &[&str]) -> Region {
    let mut region = Region::everything();
    region.hosts.clear();
    for host in hosts {
        if is_reference(host) {
            return Region::some_of_everything("its host is a reference to a value elsewhere");
        }
        match HostPattern::parse(host) {
            Ok(HostPattern::Any) | Err(_) if host.contains(['*', ':']) => {
                return Region::some_of_everything(
                    "a host with a port or with `*` at its end has no counterpart",
                );
            }
            Ok(pattern) => region.hosts.push(pattern),
            // No request has such a host.
            Err(_) => {}
        }
    }
    region.hosts.dedup();
    region
}

/// Whether a path is a regular expression.
fn is_regex(path: &str, version: u32) -> bool {
    // Before version 3 it is one if it has other characters than these.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._~/%-".contains(c);
    match version >= 3 {
        true => path.starts_with('~'),
        false => !path.chars().all(is_plain),
    }
}

/// Reads a path: its requests, whether it is a regular expression, and what is taken off.
fn read_path(path: &str, version: u32) -> (Region, bool, Result<Option<String>, String>) {
    let no_strip = Err("a regular expression is taken off the path".to_owned());
    if is_reference(path) {
        return (
            Region::some_of_everything("its path is a reference to a value elsewhere"),
            false,
            no_strip,
        );
    }
    if is_regex(path, version) {
        let regex = if version >= 3 {
            path.trim_start_matches('~')
        } else {
            path
        };
        let anchored = format!("^{}", regex.trim_start_matches('^'));
        let region = match read_location(&["~".into(), anchored]) {
            Ok(read) => Region {
                paths: read
                    .paths
                    .iter()
                    .filter_map(|path| parse_path(path))
                    .collect(),
                fit: match read.differences.is_empty() {
                    true => Fit::Exact,
                    false => Fit::Approximate,
                },
                notes: read
                    .differences
                    .iter()
                    .map(|note| note.replace("nginx", "Kong"))
                    .collect(),
                ..Region::everything()
            },
            Err(reason) => Region::some_of_everything(&reason),
        };
        return (region, true, no_strip);
    }
    let shown = printable(path, MAX_SHOWN_CHARS);
    let trimmed = path.trim_end_matches('/');
    let is_literal = path.starts_with('/') && !path.contains(['*', '{', '}', '?', '#', '%']);
    let segments = is_literal
        .then(|| parse_path(if trimmed.is_empty() { "/" } else { trimmed }))
        .flatten();
    let Some(mut segments) = segments else {
        return (
            Region::some_of_everything("its path has no counterpart in a match"),
            false,
            no_strip,
        );
    };
    segments.push(Segment::Rest);
    let mut notes = Vec::new();
    if trimmed == path {
        notes.push(format!(
            "Kong takes `{shown}x` too, which belongs to the next broader policy here"
        ));
    } else if !trimmed.is_empty() {
        notes.push(format!("`{}` is taken too", shown.trim_end_matches('/')));
    }
    let region = Region {
        paths: vec![segments],
        notes,
        ..Region::everything()
    };
    (
        region,
        false,
        Ok((!trimmed.is_empty()).then(|| trimmed.to_owned())),
    )
}
