//! The middleware `headers`: changed header fields, CORS, and fields about security.

use super::fields::fields;
use super::rules::RouteRules;
use crate::import::documents::InputValue;
use crate::import::field_edits::EditedHead;
use crate::import::report::{Concern, ImportReport, Origin};
use crate::import::yaml_text::flow_list;
use crate::route::OriginPattern;

/// Maximum number of origins of CORS, which each policy repeats.
const MAX_ORIGINS: usize = 100;

/// Reads a `headers` middleware.
pub fn read_headers(
    value: InputValue<'_>,
    rules: &mut RouteRules,
    is_tls: bool,
    report: &mut ImportReport,
) {
    read_cors(value, rules, report);
    let mut hsts = Vec::new();
    for (field, at, value) in fields(value) {
        let text = value.text().unwrap_or("");
        let shown = format!("{field}: {text}");
        match field {
            "customRequestHeaders" => edit(value, EditedHead::Request, rules, report),
            "customResponseHeaders" => edit(value, EditedHead::Response, rules, report),
            "frameDeny" if value.is_true() => {
                set(at, &shown, rules, "x-frame-options", "DENY", report)
            }
            "customFrameOptionsValue" => set(at, &shown, rules, "x-frame-options", text, report),
            "contentTypeNosniff" if value.is_true() => {
                set(
                    at,
                    &shown,
                    rules,
                    "x-content-type-options",
                    "nosniff",
                    report,
                );
            }
            "browserXssFilter" if value.is_true() => {
                set(
                    at,
                    &shown,
                    rules,
                    "x-xss-protection",
                    "1; mode=block",
                    report,
                );
            }
            "customBrowserXSSValue" => set(at, &shown, rules, "x-xss-protection", text, report),
            "contentSecurityPolicy" => {
                set(at, &shown, rules, "content-security-policy", text, report)
            }
            "referrerPolicy" => set(at, &shown, rules, "referrer-policy", text, report),
            "permissionsPolicy" => set(at, &shown, rules, "permissions-policy", text, report),
            "stsSeconds" if text != "0" => {
                hsts.insert(0, format!("max-age={text}"));
                report.taken(at, Concern::Other, &shown, "");
            }
            "stsIncludeSubdomains" if value.is_true() => {
                hsts.push("includeSubDomains".into());
                report.taken(at, Concern::Other, &shown, "");
            }
            "stsPreload" if value.is_true() => {
                hsts.push("preload".into());
                report.taken(at, Concern::Other, &shown, "");
            }
            "allowedHosts" => {
                let note =
                    "it refuses other hosts; clients get 503 here: write `host` in the policies";
                report.left(at, Concern::Routing, field, note);
                rules.block("allowedHosts");
            }
            "sslRedirect" | "sslHost" | "sslTemporaryRedirect" | "sslForceHost" => {
                let note = "it is no part of Traefik 3: write `redirect: https`. Clients get 503";
                report.left(at, Concern::Routing, &shown, note);
                rules.block(field);
            }
            _ if field.starts_with("accessControl") || field == "addVaryHeader" => {}
            _ if text == "false" || text == "0" => report.taken(at, Concern::Other, &shown, ""),
            _ => report.left(at, Concern::Other, &shown, "it has no counterpart"),
        }
    }
    // Traefik writes it over TLS only.
    if is_tls
        && hsts
            .first()
            .is_some_and(|first| first.starts_with("max-age"))
    {
        let _ = rules.response.edit(
            EditedHead::Response,
            "strict-transport-security",
            Some(&hsts.join("; ")),
        );
    }
}

fn set(
    at: Origin,
    shown: &str,
    rules: &mut RouteRules,
    name: &str,
    value: &str,
    report: &mut ImportReport,
) {
    match rules.response.edit(EditedHead::Response, name, Some(value)) {
        Ok(()) => report.taken(at, Concern::Other, shown, ""),
        Err(reason) => report.left(at, Concern::Other, shown, &reason),
    }
}

fn edit(list: InputValue<'_>, head: EditedHead, rules: &mut RouteRules, report: &mut ImportReport) {
    for (name, at, value) in list.entries() {
        let value = value.text().unwrap_or("").trim();
        let shown = format!("{name}: {value}");
        let edits = match head {
            EditedHead::Request => &mut rules.request,
            EditedHead::Response => &mut rules.response,
        };
        match edits.edit(head, name, Some(value).filter(|value| !value.is_empty())) {
            Ok(()) => report.taken(at, Concern::Other, &shown, ""),
            // What the upstream decides by such a field would then be what the client says.
            Err(reason) if head == EditedHead::Request => {
                let note =
                    format!("{reason}. Clients get 503, because the upstream may decide by it");
                report.left(at, Concern::Routing, &shown, &note);
                rules.block("a header of requests");
            }
            Err(reason) => report.left(at, Concern::Other, &shown, &reason),
        }
    }
}

fn read_cors(value: InputValue<'_>, rules: &mut RouteRules, report: &mut ImportReport) {
    let list = |field: &str| -> Vec<String> {
        let items = value
            .get(field)
            .map(InputValue::items_or_self)
            .unwrap_or_default();
        items
            .into_iter()
            .filter_map(InputValue::text)
            .map(str::to_owned)
            .collect()
    };
    let origins = list("accessControlAllowOriginList");
    let is_any = origins.iter().any(|origin| origin == "*");
    let are_origins =
        |origin: &String| OriginPattern::parse(origin).is_ok() && !origin.contains('*');
    let is_taken =
        (1..=MAX_ORIGINS).contains(&origins.len()) && (is_any || origins.iter().all(are_origins));
    let mut parts = Vec::new();
    for (field, at, value) in fields(value) {
        if !field.starts_with("accessControl") && field != "addVaryHeader" {
            continue;
        }
        if !is_taken {
            let note = "write `cors: { origins: [...] }` with the origins as browsers write them";
            report.left(at, Concern::Other, field, note);
            continue;
        }
        match field {
            "accessControlAllowOriginList" => {
                let origins = if is_any {
                    vec!["*".to_owned()]
                } else {
                    origins.clone()
                };
                parts.push(format!("origins: {}", flow_list(&origins)));
                let note = "the gateway answers preflights before limits, and drops what the upstream says of CORS";
                report.changed(at, Concern::Other, field, note);
            }
            "accessControlAllowCredentials" if value.is_true() && !is_any => {
                parts.push("credentials: true".into());
                report.taken(at, Concern::Other, field, "");
            }
            "accessControlAllowHeaders" | "accessControlExposeHeaders" => {
                let names = list(field);
                let is_name = |name: &String| http::HeaderName::try_from(name.as_str()).is_ok();
                let word = if field.contains("Allow") {
                    "headers"
                } else {
                    "expose"
                };
                if names.len() > MAX_ORIGINS {
                    report.left(
                        at,
                        Concern::Other,
                        field,
                        "these are too many for each policy",
                    );
                } else if names.iter().any(|name| name == "*") && word == "headers" {
                    report.taken(at, Concern::Other, field, "");
                } else if names.iter().all(is_name) && !names.iter().any(|name| name == "*") {
                    parts.push(format!("{word}: {}", flow_list(&names)));
                    report.taken(at, Concern::Other, field, "");
                } else {
                    report.left(
                        at,
                        Concern::Other,
                        field,
                        "not all of it are names of headers",
                    );
                }
            }
            "accessControlMaxAge" => match value.number().filter(|seconds| *seconds <= 86_400) {
                Some(seconds) => {
                    parts.push(format!("max_age: {seconds}s"));
                    report.taken(at, Concern::Other, field, "");
                }
                None => report.left(
                    at,
                    Concern::Other,
                    field,
                    "it is no number of seconds up to a day",
                ),
            },
            "accessControlAllowMethods" => {
                let note = "browsers may use the methods that the policy takes";
                report.changed(at, Concern::Other, field, note);
            }
            "addVaryHeader" => report.taken(at, Concern::Other, field, ""),
            _ => report.left(at, Concern::Other, field, "it has no counterpart in `cors`"),
        }
    }
    if is_taken {
        rules.cors = Some(format!("{{ {} }}", parts.join(", ")));
    }
}
