//! Annotations of ingress-nginx.

use super::limits::LimitReader;
use super::settings::{Annotation, Annotations, networks};
use crate::import::documents::InputValue;
use crate::import::model::ImportDraft;
use crate::import::nginx::level::parse_size;
use crate::import::report::{Concern, ImportReport};
use crate::route::RedirectTarget;
use crate::route::canonical_host::canonical_host;

/// What the names of all annotations begin with.
const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// `proxy-body-size` where it is not written.
const DEFAULT_MAX_BODY: u64 = 1 << 20;

/// Reads the annotations of the Ingress called `name`. Its limits are added to the draft.
pub fn read_annotations(
    annotations: Option<InputValue<'_>>,
    name: &str,
    draft: &mut ImportDraft,
    report: &mut ImportReport,
) -> Annotations {
    let mut list = Vec::new();
    for (key, at, value) in annotations.into_iter().flat_map(InputValue::entries) {
        let value = value.text().unwrap_or("");
        match key.strip_prefix(PREFIX) {
            Some(name) => list.push(Annotation {
                name,
                value,
                at,
                text: format!("{name}: {value}"),
            }),
            None if key == "kubernetes.io/ingress.class" => {
                report.taken(at, Concern::Other, key, "")
            }
            None => report.left(
                at,
                Concern::Other,
                key,
                "it is no annotation of ingress-nginx",
            ),
        }
    }
    let mut settings = Annotations {
        max_body: Some(DEFAULT_MAX_BODY),
        ..Annotations::default()
    };
    for annotation in &list {
        read_setting(annotation, &mut settings, report);
    }
    let find = |name: &str| list.iter().find(|annotation| annotation.name == name);
    if let Some((_, status)) = &mut settings.redirect
        && let Some(code) =
            find("permanent-redirect-code").or_else(|| find("temporal-redirect-code"))
        && let Some(code) = code
            .value
            .parse()
            .ok()
            .filter(|code| matches!(code, 301 | 302 | 307 | 308))
    {
        *status = code;
    }
    LimitReader {
        list: &list,
        name,
        draft,
        report,
    }
    .read(&mut settings);
    settings
}

fn read_setting(
    annotation: &Annotation<'_>,
    settings: &mut Annotations,
    report: &mut ImportReport,
) {
    let Annotation {
        name,
        value,
        at,
        text,
    } = annotation;
    let (name, value, at) = (*name, *value, *at);
    let mut taken = |concern, note: &str| report.taken(at, concern, text, note);
    match name {
        // These are read together.
        "limit-rps"
        | "limit-rpm"
        | "limit-connections"
        | "limit-burst-multiplier"
        | "limit-whitelist"
        | "limit-allowlist"
        | "global-rate-limit"
        | "global-rate-limit-window"
        | "global-rate-limit-key"
        | "global-rate-limit-ignored-cidrs" => {}
        "whitelist-source-range" | "allowlist-source-range" | "denylist-source-range" => {
            let (networks, others) = networks(value);
            let is_deny = name == "denylist-source-range";
            if !is_deny && networks.is_empty() {
                settings.unread_check = Some("a list of networks");
                let note = "it has no network. Clients get 503: write `allow`";
                return report.left(at, Concern::Routing, text, note);
            }
            if is_deny && !others.is_empty() {
                settings.unread_check = Some("a list of networks");
            }
            match is_deny {
                true => settings.deny.extend(networks),
                false => settings.allow.extend(networks),
            }
            match others.is_empty() {
                true => taken(Concern::Routing, ""),
                false => report.left(
                    at,
                    Concern::Routing,
                    text,
                    match is_deny {
                        true => "not all of it are networks, so that clients get 503: write `deny`",
                        false => "not all of it are networks; those are taken",
                    },
                ),
            }
        }
        "proxy-body-size" => match parse_size(value) {
            Some(bytes) => {
                settings.max_body = Some(bytes).filter(|bytes| *bytes > 0);
                taken(Concern::Routing, "");
            }
            None => report.left(at, Concern::Routing, text, "its size cannot be read"),
        },
        "server-alias" => {
            let hosts: Vec<String> = value
                .split(',')
                .map(|host| host.trim().to_owned())
                .collect();
            let is_host = |host: &String| !host.is_empty() && canonical_host(host).is_some();
            match hosts.iter().all(is_host) {
                true => {
                    settings.aliases = hosts;
                    taken(Concern::Routing, "");
                }
                false => report.left(
                    at,
                    Concern::Routing,
                    text,
                    "not all of it are hosts; write them under `host`",
                ),
            }
        }
        "app-root" if value.starts_with('/') && RedirectTarget::parse(value).is_ok() => {
            settings.app_root = Some(value.to_owned());
            taken(Concern::Routing, "");
        }
        "permanent-redirect" | "temporal-redirect" => {
            let status = if name == "permanent-redirect" {
                301
            } else {
                302
            };
            let target = match value.split_once("://") {
                Some((_, rest)) if !rest.contains('/') => format!("{value}/"),
                _ => value.to_owned(),
            };
            match RedirectTarget::parse(&target) {
                Ok(_) if !value.contains('$') => {
                    settings.redirect = Some((target, status));
                    taken(Concern::Routing, "");
                }
                _ => report.left(
                    at,
                    Concern::Routing,
                    text,
                    "its target has variables or is no URL; write `redirect`",
                ),
            }
        }
        "permanent-redirect-code" | "temporal-redirect-code" => taken(Concern::Routing, ""),
        "rewrite-target" => {
            settings.rewrite_target = Some(value.to_owned());
            taken(Concern::Routing, "");
        }
        "use-regex" => {
            settings.uses_regex = value == "true";
            taken(Concern::Routing, "");
        }
        "canary" => {
            settings.is_canary = value == "true";
            taken(Concern::Routing, "");
        }
        _ if name.starts_with("canary-") => report.left(
            at,
            Concern::Routing,
            text,
            "clients are not split by chance",
        ),
        "backend-protocol" => match value.to_ascii_uppercase().as_str() {
            "HTTP" | "AUTO_HTTP" => taken(Concern::Routing, ""),
            protocol @ ("HTTPS" | "GRPC" | "GRPCS") => {
                settings.is_tls_backend = protocol.ends_with('S');
                settings.is_grpc_backend = protocol.starts_with('G');
                taken(Concern::Routing, "");
            }
            _ => report.left(at, Concern::Routing, text, "tollgate speaks HTTP only"),
        },
        "upstream-vhost" => match canonical_host(value) {
            Some(_) if value.contains('.') => {
                settings.upstream_host = Some(value.to_owned());
                taken(Concern::Routing, "");
            }
            _ => report.left(at, Concern::Routing, text, "write `host` at the upstream"),
        },
        "upstream-hash-by" if matches!(value, "$remote_addr" | "$binary_remote_addr") => {
            settings.balance = "{ hash: ip }".into();
            taken(Concern::Routing, "");
        }
        "load-balance" if value == "ewma" => {
            settings.balance = "least_requests".into();
            report.changed(
                at,
                Concern::Routing,
                text,
                "the server with fewer open requests of two",
            );
        }
        "load-balance" if value == "round_robin" => taken(Concern::Routing, ""),
        "proxy-connect-timeout" | "proxy-read-timeout" => {
            let (field, most) = match name {
                "proxy-connect-timeout" => ("connect", 60),
                _ => ("first_byte", 86_400),
            };
            match value
                .parse::<u64>()
                .ok()
                .filter(|seconds| (1..=most).contains(seconds))
            {
                Some(seconds) => {
                    settings.timeouts.push(format!("{field}: {seconds}s"));
                    taken(Concern::Other, "");
                }
                None => report.left(
                    at,
                    Concern::Other,
                    text,
                    "write it under `timeouts` of the upstream",
                ),
            }
        }
        _ => {
            if let Some(check) = unread_check(name, value) {
                settings.unread_check = Some(check);
                settings.is_check_of_hosts |=
                    name.starts_with("auth-tls-") || name == "server-snippet";
            }
            let (concern, note) = note_of(name);
            report.left(at, concern, text, note);
        }
    }
}

/// What an annotation refuses clients by, where that has no counterpart.
fn unread_check(name: &str, value: &str) -> Option<&'static str> {
    match name {
        "auth-url" => Some("a request to another server"),
        "auth-type" | "auth-secret" => Some("a password"),
        "auth-tls-verify-client" if value == "off" => None,
        "auth-tls-secret" | "auth-tls-verify-client" => Some("certificates of clients"),
        "configuration-snippet" | "server-snippet" | "auth-snippet" => Some("a snippet of nginx"),
        "enable-modsecurity" | "modsecurity-snippet" if value != "false" => Some("a firewall"),
        _ => None,
    }
}

fn note_of(name: &str) -> (Concern, &'static str) {
    use Concern::{Limits, Other, Routing};

    match name {
        "limit-rate" | "limit-rate-after" => (
            Limits,
            "the speed of a response has no counterpart; `count: cost bytes out` counts the bytes of each client",
        ),
        "configuration-snippet" | "server-snippet" | "auth-snippet" => (
            Limits,
            "a snippet of nginx may refuse clients, so that they get 503: import it by `tollgate import nginx`",
        ),
        "ssl-redirect" | "force-ssl-redirect" => (
            Routing,
            "write a listener with `redirect: https` beside one with `tls`",
        ),
        "auth-url" | "auth-signin" | "auth-type" | "auth-secret" | "auth-realm" => (
            Routing,
            "tollgate asks nobody whether to admit a request, so that clients get 503; use `identity: user` and `require`",
        ),
        "auth-tls-secret" | "auth-tls-verify-client" => (
            Routing,
            "write `client_roots` at the listener. Clients get 503",
        ),
        "enable-cors"
        | "cors-allow-origin"
        | "cors-allow-methods"
        | "cors-allow-headers"
        | "cors-allow-credentials" => (Other, "write `cors: { origins: [...] }` in the policies"),
        "affinity" | "session-cookie-name" => (
            Routing,
            "write `balance: { hash: NAME }` with an identity of the cookie",
        ),
        "app-root" => (Routing, "its target is no path"),
        _ => (
            Other,
            "it is not about limits or routes, or has no counterpart",
        ),
    }
}
