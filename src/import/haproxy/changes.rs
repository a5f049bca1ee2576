//! Rules that change a request on its way: its header fields and its path.

use http::HeaderName;

use super::acl_test::AclTable;
use super::action::RuleAction;
use super::syntax::ConfigLine;
use crate::import::report::{Concern, ImportReport};
use crate::route::canonical_host::canonical_host;

/// Fields that the gateway writes itself.
const WRITTEN_ANYWAY: [&str; 5] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];
/// Fields that a policy cannot change, in any spelling.
const UNCHANGEABLE: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The field of a rule that changes one, where nothing is written for it. Tests and keys behind it are not those of the
/// client's field.
pub fn touched_field(line: &ConfigLine) -> RuleAction {
    let name = line.word(2);
    let is_name = !line.has_variable
        && !line.is_conditional
        && line.word(3) != "-m"
        && HeaderName::try_from(name).is_ok();
    RuleAction::Field(is_name.then(|| name.to_ascii_lowercase()))
}

/// Reads `set-header` and `del-header`. What is not written is reported.
pub fn header_action(line: &ConfigLine, report: &mut ImportReport) -> RuleAction {
    let (at, text) = (line.origin, &line.text);
    let name = line.word(2).to_ascii_lowercase();
    let is_set = line.word(1) == "set-header";
    let spelling = name.replace('_', "-");
    if WRITTEN_ANYWAY.contains(&spelling.as_str()) {
        let note = "tollgate writes this field itself, and believes trusted proxies only";
        report.changed(at, Concern::Other, text, note);
        return touched_field(line);
    }
    let value = line.word(3);
    if name == "host"
        && is_set
        && !value.contains('%')
        && !line.has_variable
        && value.contains('.')
        && canonical_host(value).is_some()
    {
        return RuleAction::Host(value.to_owned());
    }
    let is_unchangeable = UNCHANGEABLE.contains(&spelling.as_str())
        || spelling.starts_with("proxy-")
        || spelling.starts_with("tollgate-");
    let is_match = !is_set && line.word(3) == "-m";
    if is_unchangeable
        || is_match
        || line.has_variable && !is_set
        || HeaderName::try_from(&*name).is_err()
    {
        let note = "the field stays as the client sends it; write single names under `request: { remove: [...] }`";
        report.left(at, Concern::Routing, text, note);
        return touched_field(line);
    }
    if !is_set {
        return RuleAction::Header(name, None);
    }
    let is_printable = value
        .bytes()
        .all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let written = match value {
        "%[src]" | "%ci" => Some("${ip}".to_owned()),
        _ if value.contains('%') || line.has_variable || !is_printable || value.trim() != value => {
            None
        }
        "" => None,
        _ => Some(value.replace('$', "$$")),
    };
    if written.is_none() {
        let note = "its value has no counterpart, so the field is removed; write it under `request: { set: … }`";
        report.left(at, Concern::Routing, text, note);
    }
    RuleAction::Header(name, written)
}

/// Reads `set-path` and `replace-path`.
pub fn path_action(line: &ConfigLine, table: &mut AclTable) -> RuleAction {
    const NO_COUNTERPART: RuleAction = RuleAction::Refuse("a changed path");
    if line.has_variable || line.is_conditional {
        return NO_COUNTERPART;
    }
    let read = match line.word(1) {
        "set-path" => read_set_path(line.word(2)),
        _ => read_replacement(line.word(2), line.word(3)),
    };
    let Some((strip, prefix, is_open)) = read else {
        return NO_COUNTERPART;
    };
    let paths = table.add_path(&format!("{strip}/**"));
    let is_path = |text: &str| {
        text.is_empty()
            || text.starts_with('/')
                && !text.ends_with('/')
                && !text.contains("//")
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"/-._~".contains(&b))
                && !text.split('/').any(|part| part == "." || part == "..")
    };
    match paths {
        Some(paths) if is_path(&strip) && is_path(&prefix) && (strip != prefix) => {
            RuleAction::Path {
                strip,
                prefix,
                paths,
                is_open,
            }
        }
        _ => NO_COUNTERPART,
    }
}

/// What is taken off, what is put before the rest, and whether the expression is not anchored.
type PathRewrite = (String, String, bool);

/// `/v1%[path]`, or `%[path,regsub(^/api/,/)]`.
fn read_set_path(text: &str) -> Option<PathRewrite> {
    if let Some(prefix) = text.strip_suffix("%[path]") {
        return Some((String::new(), prefix.to_owned(), false));
    }
    let call = text.strip_prefix("%[path,regsub(^")?.strip_suffix(")]")?;
    let (old, new) = call.split_once(',')?;
    let strip = old.trim_matches('"').strip_suffix('/')?;
    let prefix = new.trim_matches('"').strip_suffix('/')?;
    Some((strip.to_owned(), prefix.to_owned(), false))
}

/// `^/api/(.*) /v1/\1`, or `/api(/.*)? \1`.
fn read_replacement(regex: &str, text: &str) -> Option<PathRewrite> {
    let anchored = regex.strip_prefix('^');
    let body = anchored.unwrap_or(regex);
    let body = body.strip_suffix('$').unwrap_or(body);
    let prefix = text.strip_suffix("\\1")?;
    let (strip, prefix) = match body.strip_suffix("/(.*)") {
        Some(strip) => (strip, prefix.strip_suffix('/')?),
        None => (
            body.strip_suffix("(/.*)?")
                .or_else(|| body.strip_suffix("(/.*)"))?,
            prefix,
        ),
    };
    Some((strip.to_owned(), prefix.to_owned(), anchored.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_as_strip_and_prefix() {
        let rewrite =
            |strip: &str, prefix: &str, is_open| Some((strip.into(), prefix.into(), is_open));
        assert_eq!(
            read_replacement("^/api/(.*)", "/\\1"),
            rewrite("/api", "", false)
        );
        assert_eq!(
            read_replacement("/api(/.*)?", "\\1"),
            rewrite("/api", "", true)
        );
        assert_eq!(
            read_replacement("^/api/(.*)$", "/v1/\\1"),
            rewrite("/api", "/v1", false)
        );
        assert_eq!(read_replacement("(.*)\\.php", "\\1"), None);
        assert_eq!(
            read_set_path("%[path,regsub(^/api/,/)]"),
            rewrite("/api", "", false)
        );
        assert_eq!(read_set_path("/v1%[path]"), rewrite("", "/v1", false));
        assert_eq!(read_set_path("%[path,lower]"), None);
    }
}
