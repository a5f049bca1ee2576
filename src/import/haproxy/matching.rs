//! What a single ACL tests: paths, hosts, methods, addresses, and counters of tables.

use super::acl_test::{AclTable, AclTest, RateTest};
use super::sample::{SampleExpression, parse_sample};
use crate::import::model::IdentityPlace;
use crate::import::nginx::location::read_location;
use crate::import::nginx::variables::parse_network;
use crate::route::pattern::{HostPattern, Pattern};

/// Maximum number of values of one ACL that are paths or hosts.
const MAX_VALUES: usize = 500;
/// Methods that a request may well have.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT",
];
/// How `-m` calls the ways to match, and the ends of names of fetches that stand for them.
const MATCH_ENDS: [&str; 8] = [
    "_beg", "_end", "_sub", "_reg", "_dir", "_dom", "_len", "_ip",
];

/// The flags and values of an ACL.
struct AclValues<'w> {
    values: Vec<&'w str>,
    /// How it matches, as `-m` says.
    method: String,
    ignores_case: bool,
    has_file: bool,
}

/// Reads a test: criterion, flags and values. The texts beside it say what differs here.
pub fn read_test(words: &[String], table: &mut AclTable) -> (AclTest, Vec<String>) {
    let unknown = |reason: &str| (AclTest::Unknown(reason.to_owned()), Vec::new());
    let Some(mut sample) = words.first().and_then(|word| parse_sample(word)) else {
        return unknown("its criterion is not read");
    };
    let Some(mut values) = read_values(words.get(1..).unwrap_or_default()) else {
        return unknown("a flag of it is not read");
    };
    for end in MATCH_ENDS {
        if values.method.is_empty()
            && !sample.name.starts_with("sc")
            && let Some(name) = sample.name.strip_suffix(end)
        {
            values.method = end.trim_start_matches('_').to_owned();
            sample.name = name.to_owned();
            break;
        }
    }
    if values.has_file {
        return unknown(
            "its values are in a file, which is not read; a list of networks may be named under `deny` and `allow`",
        );
    }
    if let Some(rate) = read_rate(&sample, &values) {
        return (AclTest::Rate(rate), Vec::new());
    }
    let has_plain_converters = |allowed: &[&str]| {
        let mut names = sample.converters.iter();
        names.all(|(name, _)| allowed.contains(&name.as_str()))
    };
    if values.method == "found" || sample.name.ends_with("_cnt") {
        return match read_place(&sample) {
            Some(place) if values.method == "found" && sample.converters.is_empty() => {
                (AclTest::Present(place), Vec::new())
            }
            _ => unknown("whether a request has it is not looked at"),
        };
    }
    match sample.name.as_str() {
        "always_true" => (AclTest::Constant(true), Vec::new()),
        "always_false" => (AclTest::Constant(false), Vec::new()),
        "ssl_fc" if sample.converters.is_empty() && is_true(&values.values) => {
            (AclTest::Tls, Vec::new())
        }
        "dst_port" if sample.converters.is_empty() => {
            let ports: Option<Vec<u16>> =
                values.values.iter().map(|text| text.parse().ok()).collect();
            match ports.filter(|ports| !ports.is_empty()) {
                Some(ports) => (AclTest::Port(ports), Vec::new()),
                None => unknown("its ports are not read"),
            }
        }
        "method" if sample.converters.is_empty() && values.method.is_empty() => {
            read_methods(&values)
        }
        "src" if sample.converters.is_empty() && values.method.is_empty() => {
            read_addresses(&values, table)
        }
        "path" if has_plain_converters(&["url_dec"]) => read_paths(&values, table),
        // A whole URL has the query too.
        "url" if has_plain_converters(&[]) && values.method == "beg" => read_paths(&values, table),
        "hdr" | "req.hdr" | "req.fhdr" | "fhdr"
            if sample.argument(0).eq_ignore_ascii_case("host") =>
        {
            let is_host = sample.converters.iter().all(|(name, arguments)| {
                matches!(name.as_str(), "lower" | "host_only")
                    || name == "field" && *arguments == ["1", ":"]
            });
            match is_host {
                true => read_hosts(&values),
                false => unknown("a converter of the host is not read"),
            }
        }
        "hdr" | "req.hdr" if values.method == "ip" => unknown(
            "an address in a header is what a client or a proxy writes; trust the proxies in `identity: ip`, and write networks \
             under `allow` or `deny`",
        ),
        _ => unknown("what it tests has no counterpart in `match`, `host`, `deny` or `allow`"),
    }
}

fn is_true(values: &[&str]) -> bool {
    values.iter().all(|value| *value == "1" || *value == "true")
}

/// Reads flags and values; `None` for a flag that is not known.
fn read_values(words: &[String]) -> Option<AclValues<'_>> {
    let mut read = AclValues {
        values: Vec::new(),
        method: String::new(),
        ignores_case: false,
        has_file: false,
    };
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-i" => read.ignores_case = true,
            "-n" => {}
            // The number of the ACL.
            "-u" => {
                words.next()?;
            }
            "-M" | "-f" => {
                read.has_file = true;
                words.next();
            }
            "-m" => words.next()?.clone_into(&mut read.method),
            "--" => {
                read.values.extend(words);
                break;
            }
            _ if word.len() > 1 && word.starts_with('-') && read.values.is_empty() => return None,
            _ => read.values.push(word),
        }
    }
    let names = [
        ("prefix", "beg"),
        ("str", ""),
        ("domain", "dom"),
        ("regex", "reg"),
    ];
    for (long, short) in names {
        if read.method == long {
            short.clone_into(&mut read.method);
        }
    }
    Some(read)
}

/// Where the value of a fetch stands in a request.
pub fn read_place(sample: &SampleExpression) -> Option<IdentityPlace> {
    let name = sample.argument(0).to_owned();
    let name = (!name.is_empty()).then_some(name)?;
    if sample.is_plain(&["hdr", "req.hdr", "req.fhdr", "fhdr"]) {
        return Some(IdentityPlace::Header(name.to_ascii_lowercase()));
    }
    if sample.is_plain(&["cook", "req.cook"]) {
        return Some(IdentityPlace::Cookie(name));
    }
    let is_parameter = sample.is_plain(&["urlp", "url_param"]);
    is_parameter.then_some(IdentityPlace::Query(name))
}

/// Reads a counter of a table that is compared with a number.
fn read_rate(sample: &SampleExpression, values: &AclValues<'_>) -> Option<RateTest> {
    let name = sample.name.as_str();
    let (counter, what, table) = if let Some(what) = name.strip_prefix("src_") {
        if !is_counter(what) {
            return None;
        }
        (None, what, sample.arguments.first())
    } else {
        let rest = name.strip_prefix("sc")?;
        match rest.strip_prefix('_') {
            Some(what) => (
                Some(sample.argument(0).parse().ok()?),
                what,
                sample.arguments.get(1),
            ),
            None => {
                let (digit, what) = rest.split_once('_')?;
                (Some(digit.parse().ok()?), what, sample.arguments.first())
            }
        }
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let (most, is_above) = match values.values.as_slice() {
        ["gt", bound] => (number(bound), true),
        ["ge", bound] => (number(bound).and_then(|bound| bound.checked_sub(1)), true),
        ["le", bound] => (number(bound), false),
        ["lt", bound] => (number(bound).and_then(|bound| bound.checked_sub(1)), false),
        [bound] if bound.ends_with(':') => (
            number(bound.trim_end_matches(':')).and_then(|bound| bound.checked_sub(1)),
            true,
        ),
        _ => (None, true),
    };
    let is_plain = sample.converters.is_empty() && values.method.is_empty();
    Some(RateTest {
        counter,
        what: what.to_owned(),
        table: table.cloned(),
        most: most.filter(|_| is_plain),
        is_above,
    })
}

/// Whether a fetch that begins with `src_` is a counter of a table.
fn is_counter(what: &str) -> bool {
    ["_rate", "_cur", "_cnt", "_kb", "_in", "_out"]
        .iter()
        .any(|end| what.ends_with(end))
        || what.contains("gpc")
        || what.contains("gpt")
}

fn read_methods(values: &AclValues<'_>) -> (AclTest, Vec<String>) {
    let methods: Vec<String> = values
        .values
        .iter()
        .map(|text| (*text).to_owned())
        .collect();
    let is_known = methods
        .iter()
        .all(|method| METHODS.contains(&method.as_str()));
    match is_known && !methods.is_empty() {
        true => (AclTest::Method(methods), Vec::new()),
        false => (
            AclTest::Unknown("one of its methods is not known here".into()),
            Vec::new(),
        ),
    }
}

fn read_addresses(values: &AclValues<'_>, table: &mut AclTable) -> (AclTest, Vec<String>) {
    let networks: Option<Vec<_>> = values
        .values
        .iter()
        .map(|text| parse_network(text))
        .collect();
    match networks {
        Some(mut networks) if !networks.is_empty() => {
            networks.sort_unstable();
            networks.dedup();
            table.lists.push(networks);
            (AclTest::Address(table.lists.len() - 1), Vec::new())
        }
        _ => (
            AclTest::Unknown("its values are no networks".into()),
            Vec::new(),
        ),
    }
}

fn read_paths(values: &AclValues<'_>, table: &mut AclTable) -> (AclTest, Vec<String>) {
    let mut differences = Vec::new();
    let mut indexes = Vec::new();
    let is_bounded = (1..=MAX_VALUES).contains(&values.values.len());
    for value in values.values.iter().take(MAX_VALUES) {
        if values.method == "beg" && *value == "/" {
            return (AclTest::Constant(true), Vec::new());
        }
        let modifier = match values.method.as_str() {
            "" => "=",
            "beg" => "^~",
            "reg" => "~",
            _ => {
                let reason = "a part of a path that is not its begin has no counterpart in `match`";
                return (AclTest::Unknown(reason.into()), Vec::new());
            }
        };
        let read = match read_location(&[modifier.to_owned(), (*value).to_owned()]) {
            Ok(read) => read,
            Err(reason) => return (AclTest::Unknown(reason), Vec::new()),
        };
        for path in &read.paths {
            match table.add_path(path) {
                Some(index) => indexes.push(index),
                None => {
                    return (
                        AclTest::Unknown("it is no path of a match".into()),
                        Vec::new(),
                    );
                }
            }
        }
        if values.method == "reg" {
            let texts = read.differences.iter();
            differences.extend(texts.map(|text| text.replace("nginx", "HAProxy")));
        }
        if values.method == "beg" && !value.ends_with('/') {
            let path = crate::import::report::printable(value, 40);
            differences.push(format!(
                "whole segments count: of paths that begin like `{path}` and go on in the same segment some are other paths here, \
                 which it does not deny, limit or admit"
            ));
        }
        if values.ignores_case && value.chars().any(|c| c.is_ascii_alphabetic()) {
            differences.push(
                "other cases of its letters count here only where a broader policy of the same upstream would take them".into(),
            );
        }
    }
    differences.dedup();
    match is_bounded {
        true => (AclTest::Path(indexes), differences),
        false => (
            AclTest::Unknown(format!("it has no value, or more than {MAX_VALUES}")),
            Vec::new(),
        ),
    }
}

fn read_hosts(values: &AclValues<'_>) -> (AclTest, Vec<String>) {
    let mut differences = Vec::new();
    let mut hosts = Vec::new();
    for value in &values.values {
        let texts = match (values.method.as_str(), value.strip_prefix('.')) {
            ("", _) => vec![(*value).to_owned()],
            ("end", Some(below)) => vec![format!("*.{below}")],
            ("end" | "dom", _) => {
                differences.push(format!(
                    "`{}` stands for this host and the names below it; HAProxy takes others with this text too",
                    crate::import::report::printable(value, 40)
                ));
                vec![(*value).to_owned(), format!("*.{value}")]
            }
            _ => Vec::new(),
        };
        let parsed: Vec<HostPattern> = texts
            .iter()
            .filter(|text| !text.contains(':'))
            .filter_map(|text| HostPattern::parse(text).ok())
            .filter(|host| *host != HostPattern::Any)
            .collect();
        if parsed.len() != texts.len() || texts.is_empty() {
            let reason = "a part of a host has no counterpart; write the hosts under `host`";
            return (AclTest::Unknown(reason.into()), Vec::new());
        }
        hosts.extend(parsed);
    }
    match (1..=MAX_VALUES).contains(&hosts.len()) {
        true => (AclTest::Host(hosts), differences),
        false => (
            AclTest::Unknown(format!("it has no value, or more than {MAX_VALUES}")),
            Vec::new(),
        ),
    }
}

/// Whether a pattern takes every path of another.
pub fn includes(pattern: &Pattern, other: &Pattern) -> bool {
    pattern.segments() == other.segments() || pattern.is_broader_than(other)
}
