//! Middlewares that change paths, and redirects by regular expressions.

use super::rules::{ChainContext, RedirectRule, RouteRules};
use crate::import::documents::InputValue;
use crate::import::report::{Concern, ImportReport, Origin};
use crate::import::routing::region::parse_path;
use crate::route::canonical_host::canonical_host;
use crate::route::pattern::Segment;

/// Maximum number of prefixes of which one is taken off.
const MAX_PREFIXES: usize = 32;

const NO_PATH_CHANGE: &str =
    "this change of paths has no counterpart: clients get 503. Write `strip` and `prefix`";

/// Reads a middleware that changes paths.
pub fn read_path_change(
    kind: &str,
    text: &str,
    value: InputValue<'_>,
    at: Origin,
    rules: &mut RouteRules,
    report: &mut ImportReport,
) {
    let change = match kind {
        "stripPrefix" => {
            let prefixes = value
                .get("prefixes")
                .map(InputValue::items_or_self)
                .unwrap_or_default();
            let prefixes: Option<Vec<String>> = prefixes
                .iter()
                .map(|item| literal_prefix(item.text()?))
                .collect();
            prefixes
                .filter(|prefixes| (1..=MAX_PREFIXES).contains(&prefixes.len()))
                .map(|prefixes| (prefixes, None))
        }
        "addPrefix" => value
            .text_of("prefix")
            .and_then(literal_prefix)
            .map(|prefix| (Vec::new(), Some(prefix))),
        "replacePathRegex" => read_replacement(value),
        _ => None,
    };
    // A prefix that is taken off after another one was put before the path has no counterpart.
    let change = change.filter(|(strip, prefix)| match strip.is_empty() {
        true => rules.prefix.is_none() && prefix.is_some(),
        false => rules.strip.is_empty() && rules.prefix.is_none(),
    });
    let Some((strip, prefix)) = change else {
        report.left(at, Concern::Routing, text, NO_PATH_CHANGE);
        return rules.block("a changed path");
    };
    report.taken(at, Concern::Routing, text, "");
    rules.strip.extend(strip);
    rules.prefix = prefix.or_else(|| rules.prefix.take());
}

/// A begin of paths without its last slash; `None` if it is none that policies can name.
fn literal_prefix(text: &str) -> Option<String> {
    let trimmed = text.trim_end_matches('/');
    let segments = parse_path(trimmed)?;
    let is_literal = segments
        .iter()
        .all(|segment| matches!(segment, Segment::Literal(_)));
    (is_literal && !segments.is_empty()).then(|| trimmed.to_owned())
}

/// Reads `^/old/(.*)` with `/new/$1`: what is taken off, and what is put before the rest.
fn read_replacement(value: InputValue<'_>) -> Option<(Vec<String>, Option<String>)> {
    let (regex, replacement) = (value.text_of("regex")?, value.text_of("replacement")?);
    let old = regex.strip_prefix('^')?;
    let old = old
        .strip_suffix("/(.*)")
        .or_else(|| old.strip_suffix("/(.*)$"))?;
    let new = ["/$1", "/${1}"]
        .into_iter()
        .find_map(|end| replacement.strip_suffix(end))?;
    let prefix = match new {
        "" => None,
        new => Some(literal_prefix(new)?),
    };
    // A dot means any character, and others mean more.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_-".contains(c);
    let old = literal_prefix(old).filter(|old| old.chars().all(is_plain))?;
    Some((vec![old], prefix))
}

/// Reads a redirect of all requests of one host: `^https?://www\.example\.com/(.*)` with `https://example.com/${1}`.
pub fn read_redirect_regex(
    text: &str,
    value: InputValue<'_>,
    at: Origin,
    rules: &mut RouteRules,
    cx: &mut ChainContext<'_>,
) {
    let redirect = host_redirect(value, cx.host, cx.is_tls);
    match redirect {
        Some(Some(redirect)) => {
            let is_permanent = value.get("permanent").is_some_and(InputValue::is_true);
            cx.report.taken(at, Concern::Routing, text, "");
            rules.redirect = Some(RedirectRule {
                status: if is_permanent { 308 } else { 307 },
                ..redirect
            });
        }
        Some(None) => cx.report.taken(
            at,
            Concern::Routing,
            text,
            "requests of this router do not match it",
        ),
        None => {
            let note = "a redirect by a regular expression has no counterpart: clients get 503. Write `redirect` in a policy of the \
                        requests that it is for";
            cx.report.left(at, Concern::Routing, text, note);
            rules.block("a redirect by a regular expression");
        }
    }
}

/// The redirect of all requests for `host`; `Some(None)` if it redirects none of them, `None` if that is not clear.
fn host_redirect(
    value: InputValue<'_>,
    host: Option<&str>,
    is_tls: bool,
) -> Option<Option<RedirectRule>> {
    let (regex, replacement) = (value.text_of("regex")?, value.text_of("replacement")?);
    let regex = regex.strip_prefix('^')?;
    let schemes = [
        ("https?://", None),
        ("http://", Some(false)),
        ("https://", Some(true)),
    ];
    let (scheme, rest) = schemes
        .into_iter()
        .find_map(|(begin, scheme)| Some((scheme, regex.strip_prefix(begin)?)))?;
    let from = rest
        .strip_suffix("/(.*)")
        .or_else(|| rest.strip_suffix("/(.*)$"))?;
    let from = from.replace("\\.", ".");
    if canonical_host(&from)? != *host? || from.contains('\\') {
        return None;
    }
    let (to_scheme, to_host) = replacement.split_once("://")?;
    let to_host = ["/${1}", "/$1"]
        .into_iter()
        .find_map(|end| to_host.strip_suffix(end))?;
    let is_host = canonical_host(to_host).is_some() && matches!(to_scheme, "http" | "https");
    if !is_host {
        return None;
    }
    if scheme.is_some_and(|scheme| scheme != is_tls) {
        return Some(None);
    }
    let is_loop = to_host == from && (to_scheme == "https") == is_tls;
    (!is_loop).then(|| {
        Some(RedirectRule {
            scheme: to_scheme.to_owned(),
            host: Some(to_host.to_owned()),
            port: None,
            status: 308,
        })
    })
}
