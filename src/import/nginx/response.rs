//! `return`: responses and redirects that nginx makes itself.

use super::listen::ListenerTable;
use super::syntax::Directive;
use super::variables::{TextPart, split_text};
use crate::import::model::ActionDraft;
use crate::route::RedirectTarget;

/// What a server is called, for redirects that name it by variables.
#[derive(Clone, Copy, Debug)]
pub struct ServerFacts<'s> {
    /// The index of the server.
    pub index: usize,
    /// Its hosts; empty for any.
    pub hosts: &'s [String],
    /// Its first name.
    pub first_name: &'s str,
    /// All listeners.
    pub listeners: &'s ListenerTable,
}

/// What a `return` becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnAction {
    /// The action, and what differs from nginx.
    pub action: ActionDraft,
    /// What differs, if anything does.
    pub difference: Option<String>,
}

impl ReturnAction {
    fn exact(action: ActionDraft) -> ReturnAction {
        ReturnAction {
            action,
            difference: None,
        }
    }
}

/// Reads a `return` of a server with a `default_type`.
///
/// # Errors
///
/// Why it has no counterpart, and the nearest way by hand.
pub fn read_return(
    directive: &Directive,
    media_type: &str,
    server: ServerFacts<'_>,
) -> Result<ReturnAction, String> {
    let (code, text) = match directive.arguments.as_slice() {
        [code] if code.contains("://") => ("302", code.as_str()),
        [code] => (code.as_str(), ""),
        [code, text] => (code.as_str(), text.as_str()),
        _ => return Err("it is not written as nginx reads it".into()),
    };
    let status: u16 = code
        .parse()
        .map_err(|_| "its status is no number".to_owned())?;
    if matches!(status, 301 | 302 | 303 | 307 | 308) && !text.is_empty() {
        return read_redirect(status, text, server);
    }
    let respond = |status, body: &str| ActionDraft::Respond {
        status,
        body: body.to_owned(),
        content_type: match media_type.contains('/')
            && !body.is_empty()
            && is_media_type(media_type)
        {
            true => media_type.to_owned(),
            false => String::new(),
        },
    };
    if status == 444 {
        return Ok(ReturnAction {
            action: respond(403, ""),
            difference: Some(
                "clients get 403; to close the connection write `deny: { ip: [0.0.0.0/0, \"::/0\"], silent: true }`".into(),
            ),
        });
    }
    if !(200..=599).contains(&status) {
        return Err("its status is not from 200 to 599".into());
    }
    let has_variables = split_text(text)
        .iter()
        .any(|part| matches!(part, TextPart::Variable(_)));
    if matches!(status, 204 | 205 | 304) || text.is_empty() {
        return Ok(ReturnAction::exact(respond(status, "")));
    }
    if has_variables || text.len() > 65_536 {
        return Ok(ReturnAction {
            action: respond(status, ""),
            difference: Some(
                "its text has variables and is left out; write one under `respond: { body: … }`"
                    .into(),
            ),
        });
    }
    Ok(ReturnAction::exact(respond(status, text)))
}

fn is_media_type(text: &str) -> bool {
    let is_token = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    text.split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

fn read_redirect(status: u16, text: &str, server: ServerFacts<'_>) -> Result<ReturnAction, String> {
    let (status, mut difference) = match status {
        303 => (302, Some("the status is 302 in place of 303".to_owned())),
        status => (status, None),
    };
    // What follows the host is what the client asked for.
    let endings = ["$request_uri", "$uri$is_args$args", "$uri"];
    let stripped = endings
        .into_iter()
        .find_map(|ending| text.strip_suffix(ending))
        .filter(|before| !before.contains(['?', '#']));
    let keeps_path = stripped.is_some();
    let mut target = stripped.unwrap_or(text).to_owned();
    let (has_tls, has_plain) = server.listeners.tls_kinds(server.index);
    if target.starts_with("$scheme://") {
        if has_tls && has_plain {
            difference = Some("`$scheme` becomes https".into());
        }
        let scheme = if has_tls { "https" } else { "http" };
        target = target.replacen("$scheme", scheme, 1);
    }
    let own_hosts = [
        "https://$host",
        "https://$http_host",
        "https://$server_name",
    ];
    if keeps_path && own_hosts.contains(&target.as_str()) {
        if target != "https://$server_name" && server.listeners.has_tls() && !has_tls {
            return Ok(ReturnAction {
                action: ActionDraft::Redirect {
                    to: "https".into(),
                    status,
                },
                difference,
            });
        }
        let is_one_host = server.hosts.len() == 1 && !server.first_name.is_empty();
        if !is_one_host && target != "https://$server_name" || server.first_name.is_empty() {
            return Err(
                "no listener with TLS is there to redirect to; write `redirect: https` when one is"
                    .into(),
            );
        }
        target = format!("https://{}", server.first_name);
    }
    if target.contains("$server_name") && !server.first_name.is_empty() {
        target = target.replace("$server_name", server.first_name);
    }
    if target.contains('$') {
        return Err(
            "its target has variables; write a policy with `redirect` for each target".into(),
        );
    }
    let has_path = target
        .split_once("://")
        .is_some_and(|(_, rest)| rest.contains('/'));
    if keeps_path && (has_path || target.starts_with('/')) {
        return Err("a target with the whole path behind another one has no counterpart; write `redirect` with `strip`".into());
    }
    if !keeps_path && !has_path && target.contains("://") {
        // Without a path the target would keep that of the request.
        target.push('/');
    }
    RedirectTarget::parse(&target).map_err(|error| format!("its target leads nowhere: {error}"))?;
    Ok(ReturnAction {
        action: ActionDraft::Redirect { to: target, status },
        difference,
    })
}
