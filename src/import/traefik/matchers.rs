//! The matchers of rules: what each takes, as a region.

use crate::import::nginx::location::read_location;
use crate::import::nginx::variables::parse_network;
use crate::import::report::printable;
use crate::import::routing::region::{Fit, Region, parse_path};
use crate::route::pattern::{HostPattern, Segment};

/// Maximum number of arguments of a matcher.
const MAX_ARGUMENTS: usize = 256;
/// Maximum number of characters of a path in a note.
const MAX_SHOWN_CHARS: usize = 40;

/// Reads a matcher: the alternatives of the requests that it takes, of which there is none if no request can match.
///
/// # Errors
///
/// It is no matcher of Traefik.
pub fn read_matcher(name: &str, arguments: &[String]) -> Result<Vec<Region>, String> {
    if arguments.len() > MAX_ARGUMENTS {
        let reason = format!("`{name}` has more than {MAX_ARGUMENTS} values");
        return Ok(vec![Region::some_of_everything(&reason)]);
    }
    let all = |read: fn(&str) -> Region| arguments.iter().map(|text| read(text)).collect();
    let regions: Vec<Region> = match canonical_name(name) {
        "Host" | "HostHeader" => arguments
            .iter()
            .filter_map(|host| read_host(host))
            .collect(),
        "HostRegexp" => all(read_host_regexp),
        "Path" => all(read_path),
        "PathPrefix" => all(read_prefix),
        "PathRegexp" => all(read_path_regexp),
        "Method" => vec![Region::of_methods(arguments.iter().map(String::as_str))],
        "ClientIP" => vec![read_clients(arguments)?],
        "Header" | "Headers" | "HeaderRegexp" | "HeadersRegexp" | "Query" | "QueryRegexp" => {
            let reason = format!("`{name}` has no counterpart in a match");
            vec![Region::some_of_everything(&reason)]
        }
        _ => return Err(format!("`{}` is no matcher for HTTP", printable(name, 40))),
    };
    Ok(merged(regions))
}

/// The name of a matcher as documents write it. Traefik also takes it in lower case, in upper case, and with the first letter
/// alone in upper case.
fn canonical_name(name: &str) -> &str {
    const NAMES: [&str; 13] = [
        "Host",
        "HostHeader",
        "HostRegexp",
        "Path",
        "PathPrefix",
        "PathRegexp",
        "Method",
        "ClientIP",
        "Header",
        "Headers",
        "HeaderRegexp",
        "HeadersRegexp",
        "Query",
    ];
    let mut names = NAMES.into_iter().chain(["QueryRegexp"]);
    names
        .find(|known| known.eq_ignore_ascii_case(name))
        .unwrap_or(name)
}

/// Joins the hosts, or the paths, of regions that differ in nothing else.
fn merged(regions: Vec<Region>) -> Vec<Region> {
    let mut merged: Vec<Region> = Vec::new();
    for region in regions {
        let is_alike = |other: &&mut Region| {
            other.fit == region.fit
                && other.fit == Fit::Exact
                && other.methods == region.methods
                && (other.paths == region.paths || other.hosts == region.hosts)
        };
        match merged.iter_mut().find(is_alike) {
            Some(other) if other.paths == region.paths => other.hosts.extend(region.hosts),
            Some(other) => {
                other.paths.extend(region.paths);
                other.notes.extend(region.notes);
            }
            None => merged.push(region),
        }
    }
    merged
}

/// A host; `None` for one that no request can have.
fn read_host(host: &str) -> Option<Region> {
    match HostPattern::parse(host) {
        Ok(pattern @ HostPattern::Exact(_)) => Some(Region {
            hosts: vec![pattern],
            ..Region::everything()
        }),
        _ => None,
    }
}

fn read_host_regexp(text: &str) -> Region {
    // Each with whether it takes all names below, or about those.
    let labels = [
        ("^.+\\.", true),
        ("^.*\\.", true),
        ("^(.+)\\.", true),
        ("{subdomain:.+}.", true),
        ("{any:.+}.", true),
        ("{host:.+}.", true),
        ("^[^.]+\\.", false),
        ("^[^\\.]+\\.", false),
        ("^[a-z0-9-]+\\.", false),
        ("^[a-zA-Z0-9-]+\\.", false),
        ("^[a-z]+\\.", false),
        ("^\\w+\\.", false),
        ("{subdomain:[a-z]+}.", false),
        ("{subdomain:[a-z0-9-]+}.", false),
        ("{subdomain:[a-zA-Z0-9-]+}.", false),
        ("{sub:[a-z]+}.", false),
        ("{sub:[a-z0-9-]+}.", false),
    ];
    let everywhere = [
        ".+",
        ".*",
        "^.+$",
        "^.*$",
        "{any:.+}",
        "{any:.*}",
        "{host:.+}",
        "{catchall:.*}",
    ];
    if everywhere.contains(&text) {
        return Region::everything();
    }
    let labels = labels
        .into_iter()
        .find_map(|(begin, is_all)| Some((text.strip_prefix(begin)?, is_all)));
    if let Some((rest, is_all)) = labels {
        let is_v2 = text.starts_with('{');
        let is_anchored = is_v2 || rest.ends_with('$');
        let name = rest.trim_end_matches('$').replace("\\.", ".");
        let pattern = HostPattern::parse(&format!("*.{name}"));
        if let Ok(pattern) = pattern
            && is_anchored
        {
            let below = Region {
                hosts: vec![pattern],
                ..Region::everything()
            };
            return match is_all {
                true => below,
                false => Region {
                    fit: Fit::Approximate,
                    notes: vec![format!("every name below `{name}` is taken, at any depth")],
                    ..below
                },
            };
        }
    }
    Region::some_of_everything(
        "a regular expression for hosts has no counterpart; write `host: \"*.example.com\"` for all names below",
    )
}

/// A path as a literal of a match; `None` if it is none.
fn literal_path(path: &str) -> Option<Vec<Segment>> {
    let is_literal = path.starts_with('/') && !path.contains(['*', '{', '}', '?', '#', '%']);
    let trimmed = path.trim_end_matches('/');
    let path = if trimmed.is_empty() { "/" } else { trimmed };
    is_literal.then(|| parse_path(path)).flatten()
}

/// The segments of a path of version 2 whose variables are whole segments of any text.
fn path_with_variables(path: &str) -> Option<Vec<Segment>> {
    let segment = |text: &str| match text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'))
    {
        None => text.to_owned(),
        Some(variable) => match variable.split_once(':') {
            None | Some((_, "[^/]+")) => "*".to_owned(),
            Some(_) => "{".to_owned(),
        },
    };
    let text: Vec<String> = path.split('/').map(segment).collect();
    let text = text.join("/");
    let is_path = text.starts_with('/') && !text.contains(['{', '}', '?', '#', '%']);
    is_path
        .then(|| parse_path(text.trim_end_matches('/')))
        .flatten()
}

const BRACES: &str =
    "`{…}` is taken for any one segment, as Traefik 2 does; version 3 reads it as text";
const NO_PATH: &str = "its path has no counterpart in a match";

fn read_path(path: &str) -> Region {
    let shown = printable(path, MAX_SHOWN_CHARS);
    if let Some(segments) = literal_path(path) {
        let note = match path.trim_end_matches('/') {
            "" => None,
            trimmed if trimmed == path => Some(format!("`{shown}/` is taken too")),
            _ => Some(format!("`{}` is taken too", shown.trim_end_matches('/'))),
        };
        return Region {
            paths: vec![segments],
            notes: note.into_iter().collect(),
            ..Region::everything()
        };
    }
    match path_with_variables(path) {
        Some(segments) => Region {
            paths: vec![segments],
            fit: Fit::Approximate,
            notes: vec![BRACES.into()],
            ..Region::everything()
        },
        None => within_literal_begin(path, NO_PATH),
    }
}

fn read_prefix(path: &str) -> Region {
    let (segments, is_literal) = match literal_path(path) {
        Some(segments) => (Some(segments), true),
        None => (path_with_variables(path), false),
    };
    let Some(mut segments) = segments else {
        return within_literal_begin(path, NO_PATH);
    };
    segments.push(Segment::Rest);
    let mut notes = Vec::new();
    let shown = printable(path, MAX_SHOWN_CHARS);
    let trimmed = path.trim_end_matches('/');
    match trimmed {
        "" => {}
        _ if trimmed == path => notes.push(format!(
            "Traefik takes `{shown}x` too, which belongs to the next broader policy here"
        )),
        _ => notes.push(format!("`{}` is taken too", shown.trim_end_matches('/'))),
    }
    if !is_literal {
        notes.push(BRACES.into());
    }
    Region {
        paths: vec![segments],
        fit: if is_literal {
            Fit::Exact
        } else {
            Fit::Approximate
        },
        notes,
        ..Region::everything()
    }
}

fn read_path_regexp(text: &str) -> Region {
    // One that is not anchored at its end is read as a begin of paths.
    match read_location(&["~".into(), text.to_owned()]) {
        Ok(read) => {
            let paths: Vec<Vec<Segment>> = read
                .paths
                .iter()
                .filter_map(|path| parse_path(path))
                .collect();
            let differences = read.differences.iter();
            let mut notes: Vec<String> = differences
                .map(|note| note.replace("nginx", "Traefik"))
                .collect();
            notes.push("a slash at the end of a path makes no difference here".into());
            Region {
                paths,
                fit: match read.differences.is_empty() {
                    true => Fit::Exact,
                    false => Fit::Approximate,
                },
                notes,
                ..Region::everything()
            }
        }
        Err(_) => within_literal_begin(
            text.strip_prefix('^').unwrap_or("?"),
            "a regular expression has no counterpart; write policies for the paths that it stands for",
        ),
    }
}

/// Everything below the whole segments with which a path begins, before characters that may mean something.
fn within_literal_begin(path: &str, reason: &str) -> Region {
    let is_literal = |c: char| c.is_ascii_alphanumeric() || "/_-".contains(c);
    let end = path.find(|c| !is_literal(c)).unwrap_or(path.len());
    let begin = path.get(..end).unwrap_or("");
    // What follows may make the last character one that may be missing, as in `/a/?b`.
    let is_whole = !path.get(end..).unwrap_or("").starts_with(['?', '*', '{']);
    let mut chars = begin.chars();
    let begin = match is_whole || chars.next_back().is_none() {
        true => begin,
        false => chars.as_str(),
    };
    let begin = begin.rfind('/').and_then(|slash| begin.get(..slash));
    // An alternative without parentheses may begin in another way.
    let begin = begin.filter(|begin| begin.starts_with('/') && !path.contains('|'));
    let paths = begin.and_then(|begin| parse_path(&format!("{begin}/**")));
    let mut region = Region::some_of_everything(reason);
    if let Some(segments) = paths {
        region.paths = vec![segments];
    }
    region
}

fn read_clients(arguments: &[String]) -> Result<Region, String> {
    let networks: Option<Vec<_>> = arguments.iter().map(|text| parse_network(text)).collect();
    let networks = networks.ok_or("`ClientIP` has a text that is no network")?;
    Ok(Region {
        clients: Some(networks),
        notes: vec!["other clients get 403, and not the next router".into()],
        ..Region::everything()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::routing::region::path_text;

    #[test]
    fn the_last_character_of_a_begin_may_be_missing() {
        for (text, expected) in [
            ("^/admin/?x", "/**"),
            ("^/api/v1*", "/api/**"),
            ("^/api/v{0,1}", "/api/**"),
            ("^/api/x/*y", "/api/**"),
            ("^?", "/**"),
        ] {
            let region = read_path_regexp(text);
            let paths: Vec<String> = region.paths.iter().map(|path| path_text(path)).collect();
            assert_eq!(paths, [expected], "{text}");
        }
    }
}
