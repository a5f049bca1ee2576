//! Routers of the dynamic configuration.

use super::fields::fields;
use super::middlewares::references;
use super::names::{NamedObject, Provider};
use crate::import::documents::InputValue;
use crate::import::model::UpstreamDraft;
use crate::import::report::{Concern, ImportReport, Origin};

/// A router as it is written.
#[derive(Clone, Debug)]
pub struct Router {
    /// Its name without the provider.
    pub name: String,
    /// Its full name. Of two routers with one Traefik serves neither.
    pub key: String,
    /// Where it stands.
    pub at: Origin,
    /// Its rule.
    pub rule: String,
    /// Its priority: the greater one is first.
    pub priority: i64,
    /// Names of its entry points with their places; empty for the default ones.
    pub entry_points: Vec<(String, Origin)>,
    /// Full names of its middlewares.
    pub middlewares: Vec<String>,
    /// Its service.
    pub service: ServiceUse,
    /// The full name of its options of TLS, empty for the default ones; `None` without TLS.
    pub tls_options: Option<String>,
}

/// The service of a router.
#[derive(Clone, Debug)]
pub enum ServiceUse {
    /// The service of this full name.
    Named(String),
    /// Servers, or why there are none.
    Inline(Result<UpstreamDraft, String>),
}

impl Router {
    /// What the report calls it.
    pub fn text(&self) -> String {
        format!("router {}", self.name)
    }
}

/// The name of a middleware that no input has, so that routers with it answer 503.
pub const UNREAD_FIELD: &str = "of a field that is not read";

/// Reads a router of a file. `None` if Traefik does not serve it either.
pub fn read_router(router: &NamedObject<'_>, report: &mut ImportReport) -> Option<Router> {
    let NamedObject {
        name,
        provider,
        value,
        at,
    } = router;
    let short = name.split('@').next().unwrap_or(name).to_owned();
    let text = format!("router {short}");
    let Some(rule) = value.text_of("rule").filter(|rule| !rule.trim().is_empty()) else {
        report.left(
            *at,
            Concern::Routing,
            &text,
            "it has no rule, so Traefik does not serve it",
        );
        return None;
    };
    let mut middlewares = references(provider, value.get("middlewares"));
    for (field, at, value) in fields(*value) {
        match field {
            "rule" | "priority" | "entryPoints" | "middlewares" | "service" | "tls" => {}
            "ruleSyntax" => report.taken(at, Concern::Other, field, "both versions are read"),
            "observability" => report.left(at, Concern::Other, field, "it is not read"),
            // It may deny requests, as the middlewares of a parent router do.
            _ => {
                let text = format!("{field}: {}", value.text().unwrap_or("..."));
                let note = "it is not read: clients get 503";
                report.left(at, Concern::Routing, &text, note);
                middlewares.push(UNREAD_FIELD.into());
            }
        }
    }
    let service = match value.text_of("service") {
        Some(service) => ServiceUse::Named(provider.full_name(service, None)),
        None => ServiceUse::Inline(Err("it has no service".into())),
    };
    Some(Router {
        name: short,
        key: name.clone(),
        at: *at,
        rule: rule.to_owned(),
        priority: read_priority(*value, rule, &text, report),
        entry_points: read_entry_points(value.get("entryPoints")),
        middlewares,
        service,
        tls_options: has_field(*value, "tls").then(|| read_tls(value.get("tls"), provider, report)),
    })
}

/// Whether a field is there, also without a value.
pub fn has_field(value: InputValue<'_>, field: &str) -> bool {
    value
        .entries()
        .any(|(key, _, value)| key.eq_ignore_ascii_case(field) && value.text() != Some("false"))
}

/// Names of entry points with their places.
pub fn read_entry_points(value: Option<InputValue<'_>>) -> Vec<(String, Origin)> {
    let items = value.map(InputValue::items_or_self).unwrap_or_default();
    items
        .into_iter()
        .map(|item| (item.text().unwrap_or("").to_owned(), item.origin()))
        .collect()
}

/// The priority of a router: what it says, or the length of its rule.
pub fn read_priority(
    value: InputValue<'_>,
    rule: &str,
    text: &str,
    report: &mut ImportReport,
) -> i64 {
    let default = i64::try_from(rule.len()).unwrap_or(i64::MAX);
    let Some(priority) = value.get("priority") else {
        return default;
    };
    let shown = format!("priority: {}", priority.text().unwrap_or(""));
    let is_octal = |text: &&str| text.len() > 1 && text.starts_with('0');
    let number = priority.text().filter(|text| !is_octal(text));
    match number.and_then(|text| text.parse::<i64>().ok()) {
        Some(0) => default,
        Some(number) => {
            report.taken(priority.origin(), Concern::Routing, &shown, "");
            number
        }
        None => {
            let note = format!("it is no number; {text} has that of its rule");
            report.left(priority.origin(), Concern::Routing, &shown, &note);
            default
        }
    }
}

/// The full name of the options of TLS; empty for the default ones.
fn read_tls(tls: Option<InputValue<'_>>, provider: &Provider, report: &mut ImportReport) -> String {
    let mut options = String::new();
    for (field, at, value) in tls.into_iter().flat_map(fields) {
        match (field, value.text()) {
            ("options", Some("default" | "")) => report.taken(at, Concern::Routing, field, ""),
            ("options", Some(name)) => options = provider.full_name(name, None),
            ("domains", _) => report.taken(at, Concern::Other, field, ""),
            _ => report.left(
                at,
                Concern::Other,
                field,
                "write `tls: { acme: { domains: ... } }` at the listener",
            ),
        }
    }
    options
}
