//! Directives that inner blocks inherit from outer ones: limits, access, settings of proxies.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::syntax::Directive;
use super::upstream::PassSettings;
use crate::import::report::{Concern, ImportReport};

/// The default of `client_max_body_size`.
const DEFAULT_MAX_BODY: u64 = 1 << 20;

/// What holds in a block, with what it inherits.
#[derive(Clone, Debug, Default)]
pub struct Level<'d> {
    /// `limit_req` of the nearest block that has one.
    pub limit_req: Vec<&'d Directive>,
    /// `limit_conn` of the nearest block that has one.
    pub limit_conn: Vec<&'d Directive>,
    /// `allow` and `deny` of the nearest block that has one.
    pub access: Vec<&'d Directive>,
    /// `proxy_set_header` of the nearest block that has one.
    pub headers: Vec<&'d Directive>,
    /// Whether `limit_req` only reports.
    pub is_req_dry: bool,
    /// Whether `limit_conn` only reports.
    pub is_conn_dry: bool,
    /// `limit_req_status`, if it is written.
    pub has_req_status: bool,
    /// `limit_conn_status`, if it is written.
    pub has_conn_status: bool,
    /// `client_max_body_size` in bytes; 0 for any size.
    max_body: Option<u64>,
    /// Variables that `set` gives a text without variables.
    pub literals: HashMap<String, String>,
    /// `default_type`.
    pub media_type: String,
    /// Whether `auth_jwt` is on.
    pub needs_token: bool,
    /// What refuses clients in nginx and is not imported, by the name of the directive.
    unread_checks: BTreeMap<String, &'static str>,
    connect_millis: Option<u64>,
    read_millis: Option<u64>,
}

impl<'d> Level<'d> {
    /// The level of a block within this one, and the directives of it that are not inherited.
    pub fn enter(
        &self,
        directives: &'d [Directive],
        report: &mut ImportReport,
    ) -> (Level<'d>, Vec<&'d Directive>) {
        let mut level = self.clone();
        let mut others = Vec::new();
        let all = |name: &str| -> Vec<&'d Directive> {
            directives
                .iter()
                .filter(|directive| directive.name == name)
                .collect()
        };
        let replace = |list: &mut Vec<&'d Directive>, own: Vec<&'d Directive>| {
            if !own.is_empty() {
                *list = own;
            }
        };
        replace(&mut level.limit_req, all("limit_req"));
        replace(&mut level.limit_conn, all("limit_conn"));
        replace(&mut level.headers, all("proxy_set_header"));
        let rules = directives
            .iter()
            .filter(|directive| matches!(&*directive.name, "allow" | "deny"));
        replace(&mut level.access, rules.collect());
        for directive in directives {
            if !level.read(directive, report) {
                others.push(directive);
            }
        }
        (level, others)
    }

    /// Reads one directive; false if it is none that is inherited.
    fn read(&mut self, directive: &Directive, report: &mut ImportReport) -> bool {
        let (at, text) = (directive.origin, directive.text());
        let is_on = directive.argument(0) == "on";
        if let Some(check) = unread_check(directive) {
            match directive.argument(0) {
                "off" => self.unread_checks.remove(&directive.name),
                _ => self.unread_checks.insert(directive.name.clone(), check),
            };
        }
        let mut other = |note: &str| report.taken(at, Concern::Other, &text, note);
        match directive.name.as_str() {
            // These are reported where a route uses them.
            "limit_req" | "limit_conn" => report.taken(at, Concern::Limits, &text, ""),
            "allow" | "deny" => report.taken(at, Concern::Routing, &text, ""),
            "proxy_set_header" => read_header(directive, report),
            "limit_req_dry_run" => {
                self.is_req_dry = is_on;
                report.taken(
                    at,
                    Concern::Limits,
                    &text,
                    if is_on { "as `mode: shadow`" } else { "" },
                );
            }
            "limit_conn_dry_run" => {
                self.is_conn_dry = is_on;
                report.taken(
                    at,
                    Concern::Limits,
                    &text,
                    if is_on { "as `mode: shadow`" } else { "" },
                );
            }
            "limit_req_status" | "limit_conn_status" => {
                match directive.name == "limit_req_status" {
                    true => self.has_req_status = true,
                    false => self.has_conn_status = true,
                }
                match directive.argument(0) {
                    "429" => report.taken(at, Concern::Limits, &text, ""),
                    _ => {
                        let note = "a limit answers 429, with `Retry-After`";
                        report.changed(at, Concern::Limits, &text, note);
                    }
                }
            }
            "client_max_body_size" => match parse_size(directive.argument(0)) {
                Some(bytes) => {
                    self.max_body = Some(bytes);
                    report.taken(at, Concern::Routing, &text, "");
                }
                None => report.left(at, Concern::Routing, &text, "its size cannot be read"),
            },
            "proxy_connect_timeout"
            | "proxy_read_timeout"
            | "grpc_connect_timeout"
            | "grpc_read_timeout" => {
                let is_connect = directive.name.contains("connect");
                let (most, field) = match is_connect {
                    true => (60_000, &mut self.connect_millis),
                    false => (86_400_000, &mut self.read_millis),
                };
                match parse_millis(directive.argument(0)) {
                    Some(millis) if (1..=most).contains(&millis) => {
                        *field = Some(millis);
                        report.taken(at, Concern::Other, &text, "");
                    }
                    _ => report.left(
                        at,
                        Concern::Other,
                        &text,
                        "write it under `timeouts` of the upstream",
                    ),
                }
            }
            "set" => {
                let name = directive
                    .argument(0)
                    .trim_start_matches('$')
                    .to_ascii_lowercase();
                match directive.argument(1).contains('$') {
                    true => {
                        self.literals.remove(&name);
                        report.left(
                            at,
                            Concern::Other,
                            &text,
                            "a variable of other variables is not read",
                        );
                    }
                    false => {
                        self.literals.insert(name, directive.argument(1).to_owned());
                        other("");
                    }
                }
            }
            "default_type" => {
                directive.argument(0).clone_into(&mut self.media_type);
                other("the media type of responses that the gateway makes");
            }
            "auth_jwt" => {
                self.needs_token = directive.argument(0) != "off";
                if directive.parameter("token").is_some() {
                    let note = "the token is read from `Authorization: Bearer` only";
                    report.changed(at, Concern::Routing, &text, note);
                }
                let note = "a token needs `exp` and `sub` here; a request without one gets 401, and counts";
                match self.needs_token {
                    true => report.changed(at, Concern::Routing, &text, note),
                    false => report.taken(at, Concern::Routing, &text, ""),
                }
            }
            _ => return false,
        }
        true
    }

    /// What holds for a request that this level sends on to the named location of `fallback`: nginx looks at limits once,
    /// at the first level that has any, and at access and passwords in both.
    pub fn sent_on(&self, fallback: &Level<'d>) -> Level<'d> {
        let mut level = fallback.clone();
        if !self.limit_req.is_empty() {
            level.limit_req.clone_from(&self.limit_req);
            level.is_req_dry = self.is_req_dry;
        }
        if !self.limit_conn.is_empty() {
            level.limit_conn.clone_from(&self.limit_conn);
            level.is_conn_dry = self.is_conn_dry;
        }
        if level.access.is_empty() {
            level.access.clone_from(&self.access);
        } else if !self.access.is_empty() && self.access != level.access {
            let check = "two lists of addresses";
            level.unread_checks.insert("allow".into(), check);
        }
        level.unread_checks.extend(self.unread_checks.clone());
        level.needs_token |= self.needs_token;
        // nginx compares the length that the client announces with the first bound alone.
        level.max_body = match (self.max_body(), fallback.max_body()) {
            (Some(first), Some(second)) => Some(first.min(second)),
            (first, second) => Some(first.or(second).unwrap_or(0)),
        };
        level
    }

    /// What refuses clients in nginx and is not imported. `has_key_set` says whether tokens can be verified.
    pub fn unread_checks(&self, has_key_set: bool) -> BTreeSet<&'static str> {
        let token = (self.needs_token && !has_key_set).then_some("a token");
        self.unread_checks.values().copied().chain(token).collect()
    }

    /// The largest body of a request in bytes; `None` for any size.
    pub fn max_body(&self) -> Option<u64> {
        Some(self.max_body.unwrap_or(DEFAULT_MAX_BODY)).filter(|bytes| *bytes > 0)
    }

    /// What a `proxy_pass` of this level says beside its URL.
    pub fn pass_settings(&self) -> PassSettings {
        let is_host = |header: &&&Directive| header.argument(0).eq_ignore_ascii_case("host");
        let host = self.headers.iter().rev().find(is_host);
        PassSettings {
            host: host.map(|header| header.argument(1).to_owned()),
            connect_millis: self.connect_millis,
            read_millis: self.read_millis,
        }
    }

    /// The field `request` of a policy for the headers that servers get; `None` without one.
    pub fn request_changes(&self) -> Option<String> {
        let fields: Vec<String> = self
            .headers
            .iter()
            .filter_map(|header| {
                let name = header.argument(0).to_ascii_lowercase();
                let value = kept_header(&name, header.argument(1))?;
                Some(format!("{name}: {value}"))
            })
            .collect();
        (!fields.is_empty()).then(|| format!("{{ set: {{ {} }} }}", fields.join(", ")))
    }
}

/// What a directive refuses clients by, where that has no counterpart.
pub fn unread_check(directive: &Directive) -> Option<&'static str> {
    let refuses = |inner: &Directive| matches!(&*inner.name, "deny" | "return");
    match directive.name.as_str() {
        "auth_basic" | "auth_digest" | "auth_ldap" | "auth_pam" => Some("a password"),
        "auth_request" => Some("a request to another server"),
        "auth_jwt_require" => Some("a condition on tokens"),
        "ssl_verify_client" => Some("certificates of clients"),
        "modsecurity" => Some("a firewall"),
        "js_access" => Some("a script"),
        name if name.contains("access_by_lua") || name.contains("rewrite_by_lua") => {
            Some("a script")
        }
        "if" if directive.children().iter().any(refuses) => Some("a condition"),
        _ => None,
    }
}

/// The value that a policy sets for a header; `None` if it sets none.
fn kept_header(name: &str, value: &str) -> Option<&'static str> {
    (name == "x-real-ip" && matches!(value, "$remote_addr" | "$realip_remote_addr"))
        .then_some("\"${ip}\"")
}

fn read_header(directive: &Directive, report: &mut ImportReport) {
    let (at, text) = (directive.origin, directive.text());
    let name = directive.argument(0).to_ascii_lowercase();
    let value = directive.argument(1);
    match name.as_str() {
        "host" => report.taken(at, Concern::Routing, &text, ""),
        "upgrade" | "connection" | "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host"
        | "forwarded" => {
            report.taken(at, Concern::Other, &text, "tollgate does that anyway");
        }
        _ if kept_header(&name, value).is_some() => report.taken(at, Concern::Other, &text, ""),
        _ => {
            let note = "write it under `request: { set: … }` of the policies";
            report.left(at, Concern::Other, &text, note);
        }
    }
}

/// A size such as `10m`, `512k`, `1g` or `100`, in bytes; at most 1 TiB. Annotations of ingress-nginx have them too.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (bytes <= 1 << 40).then_some(bytes)
}

/// A time such as `60s`, `500ms`, `2m` or `30`, in milliseconds.
fn parse_millis(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
