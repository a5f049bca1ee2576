//! `http-request return` and `redirect`: responses that HAProxy makes itself.

use super::action::{RuleAction, condition_start};
use super::syntax::ConfigLine;
use crate::import::report::{Concern, ImportReport};
use crate::route::RedirectTarget;

/// Maximum length of a body in bytes.
const MAX_BODY_BYTES: usize = 65_536;

/// Reads `http-request return`.
pub fn read_return(line: &ConfigLine, report: &mut ImportReport) -> RuleAction {
    let (mut status, mut body, mut content_type) = (200_u16, String::new(), String::new());
    let end = condition_start(line, 2);
    let mut words = line.words.get(2..end).unwrap_or_default().iter();
    let mut differences = Vec::new();
    while let Some(word) = words.next() {
        let mut next = || words.next().map_or("", String::as_str);
        match word.as_str() {
            "status" => match next().parse() {
                Ok(code) if (200..=599).contains(&code) => status = code,
                _ => return RuleAction::Refuse("a response whose status is not from 200 to 599"),
            },
            "content-type" => next().clone_into(&mut content_type),
            "string" => next().clone_into(&mut body),
            "lf-string" => {
                let text = next();
                match text.contains('%') {
                    true => differences.push("its text has variables and is left out"),
                    false => text.clone_into(&mut body),
                }
            }
            "file" | "lf-file" | "errorfile" | "errorfiles" => {
                next();
                differences
                    .push("its file is not read; write it under `respond: { body_file: … }`");
            }
            "default-errorfiles" => {}
            "hdr" => {
                next();
                words.next();
                differences.push("write its headers under `response: { set: … }`");
            }
            _ => differences.push("a word of it is not read"),
        }
    }
    let is_type = content_type.split_once('/').is_some_and(|(kind, subtype)| {
        let is_token = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        };
        is_token(kind) && is_token(subtype)
    });
    if !is_type {
        content_type.clear();
    }
    if body.len() > MAX_BODY_BYTES || matches!(status, 204 | 205 | 304) {
        body.clear();
    }
    for difference in differences {
        report.changed(line.origin, Concern::Routing, &line.text, difference);
    }
    RuleAction::Return {
        status,
        body,
        content_type,
    }
}

/// Reads the words behind `redirect`.
///
/// # Errors
///
/// Why it has no counterpart, and the nearest way by hand.
pub fn read_redirect(
    line: &ConfigLine,
    words: &[String],
    report: &mut ImportReport,
) -> Result<RuleAction, String> {
    if line.has_variable || line.is_conditional {
        return Err(super::notes::VARIABLE.into());
    }
    let mut words = words
        .iter()
        .map(String::as_str)
        .take_while(|word| *word != "if" && *word != "unless");
    let (mut kind, mut target, mut status) = ("", "", 302_u16);
    while let Some(word) = words.next() {
        match word {
            "scheme" | "prefix" | "location" => {
                kind = word;
                target = words.next().unwrap_or("");
            }
            "code" => {
                let code = words.next().and_then(|code| code.parse().ok());
                status = code
                    .filter(|code| matches!(code, 301 | 302 | 303 | 307 | 308))
                    .ok_or("its status is no redirect")?;
            }
            "set-cookie" | "clear-cookie" => {
                words.next();
                let note = "no cookie is set; write `response: { set: { set-cookie: … } }`";
                report.changed(line.origin, Concern::Routing, &line.text, note);
            }
            "drop-query" | "append-slash" | "ignore-empty" | "keep-query" => {
                if kind != "location" || word == "keep-query" {
                    let note = format!("`{word}` has no counterpart");
                    report.changed(line.origin, Concern::Routing, &line.text, &note);
                }
            }
            _ => return Err(format!("`{word}` of a redirect is not read")),
        }
    }
    if status == 303 {
        status = 302;
        let note = "the status is 302 in place of 303";
        report.changed(line.origin, Concern::Routing, &line.text, note);
    }
    let to = redirect_target(kind, target)?;
    RedirectTarget::parse(&to).map_err(|error| format!("its target leads nowhere: {error}"))?;
    Ok(RuleAction::Redirect { to, status })
}

fn redirect_target(kind: &str, target: &str) -> Result<String, String> {
    let same_request = ["%[capture.req.uri]", "%[url]", "%[pathq]", "%[path]", "%HU"];
    let own_hosts = ["https://%[hdr(host)]", "https://%[req.hdr(host)]"];
    let has_own_host = own_hosts.iter().any(|own| {
        target
            .strip_prefix(own)
            .is_some_and(|rest| kind == "prefix" && rest.is_empty() || same_request.contains(&rest))
    });
    if kind == "scheme" && target == "https" || has_own_host {
        return Ok("https".into());
    }
    let after_scheme = target.split_once("://").map(|(_, rest)| rest);
    match kind {
        "location" => {
            let kept = same_request
                .iter()
                .find_map(|rest| target.strip_suffix(rest));
            let target = match kept {
                Some(origin) if !origin.contains('%') && is_origin(origin) => return Ok(origin.into()),
                _ => target,
            };
            if target.contains('%') {
                return Err("its target has variables; write a policy with `redirect` for each target".into());
            }
            // Without a path the target would keep that of the request.
            Ok(match after_scheme {
                Some(rest) if !rest.contains('/') => format!("{target}/"),
                _ => target.to_owned(),
            })
        }
        "prefix" if !target.contains('%') && is_origin(target.trim_end_matches('/')) => {
            Ok(target.trim_end_matches('/').to_owned())
        }
        "prefix" => Err("a target with the whole path behind another one has no counterpart; write `redirect` with `strip`".into()),
        _ => Err("only `scheme https`, `prefix` and `location` are read".into()),
    }
}

/// Whether a URL has a scheme and a host and nothing else.
fn is_origin(url: &str) -> bool {
    url.split_once("://")
        .is_some_and(|(_, rest)| !rest.is_empty() && !rest.contains(['/', '?', '#']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_redirects() {
        for (kind, target, expected) in [
            ("scheme", "https", Some("https")),
            ("scheme", "http", None),
            ("prefix", "https://%[hdr(host)]", Some("https")),
            (
                "location",
                "https://%[hdr(host)]%[capture.req.uri]",
                Some("https"),
            ),
            (
                "location",
                "https://a.example%[url]",
                Some("https://a.example"),
            ),
            ("location", "https://a.example", Some("https://a.example/")),
            ("location", "/login", Some("/login")),
            ("location", "https://%[hdr(host)]/x", None),
            (
                "prefix",
                "https://www.a.example/",
                Some("https://www.a.example"),
            ),
            ("prefix", "/app", None),
        ] {
            let read = redirect_target(kind, target).ok();
            assert_eq!(read.as_deref(), expected, "{kind} {target}");
        }
    }
}
