//! `request-transformer`, `response-transformer` and `cors`.

use super::entities::{KongPlugin, is_reference};
use super::limits::text_of;
use super::plugin_rules::PluginRules;
use crate::import::documents::InputValue;
use crate::import::field_edits::EditedHead;
use crate::import::report::{Concern, ImportReport};
use crate::import::yaml_text::flow_list;
use crate::route::OriginPattern;

/// Maximum number of origins or names of a list, which each policy repeats.
const MAX_NAMES: usize = 100;

/// Reads a `request-transformer`: headers that are removed, and those that are set.
pub fn read_request_transformer(
    plugin: &KongPlugin<'_>,
    config: Option<InputValue<'_>>,
    rules: &mut PluginRules,
    report: &mut ImportReport,
) {
    report.taken(plugin.at, Concern::Routing, &text_of(plugin), "");
    for (action, part, at, items) in changes(config) {
        for item in items {
            let text = format!("{action}.{part}: {item}");
            let result = match (action, part) {
                ("remove", "headers") => rules.request.edit(EditedHead::Request, item, None),
                ("add" | "append", "headers") => set(rules, EditedHead::Request, item),
                _ => Err("this change has no counterpart".into()),
            };
            match result {
                Ok(()) if action == "remove" => report.taken(at, Concern::Other, &text, ""),
                Ok(()) => report.changed(
                    at,
                    Concern::Other,
                    &text,
                    "it is set in place of what the client sends",
                ),
                Err(reason) => {
                    let note =
                        format!("{reason}. Clients get 503, because the upstream may decide by it");
                    report.left(at, Concern::Routing, &text, &note);
                    rules.block("request-transformer");
                }
            }
        }
    }
}

/// Reads a `response-transformer`.
pub fn read_response_transformer(
    plugin: &KongPlugin<'_>,
    config: Option<InputValue<'_>>,
    rules: &mut PluginRules,
    report: &mut ImportReport,
) {
    report.taken(plugin.at, Concern::Other, &text_of(plugin), "");
    for (action, part, at, items) in changes(config) {
        for item in items {
            let text = format!("{action}.{part}: {item}");
            let result = match (action, part) {
                ("remove", "headers") => rules.response.edit(EditedHead::Response, item, None),
                ("add" | "append" | "replace", "headers") => set(rules, EditedHead::Response, item),
                _ => Err("this change has no counterpart".into()),
            };
            match result {
                Ok(()) if action == "remove" => report.taken(at, Concern::Other, &text, ""),
                Ok(()) => report.changed(
                    at,
                    Concern::Other,
                    &text,
                    "it is set in place of what the upstream sends",
                ),
                Err(reason) => report.left(at, Concern::Other, &text, &reason),
            }
        }
    }
}

type Change<'v> = (
    &'v str,
    &'v str,
    crate::import::report::Origin,
    Vec<&'v str>,
);

/// Each kind of change with its part of the message and its items.
fn changes(config: Option<InputValue<'_>>) -> Vec<Change<'_>> {
    let mut changes = Vec::new();
    for (action, at, value) in config.into_iter().flat_map(InputValue::entries) {
        if value.is_null() {
            continue;
        }
        if let Some(text) = value.text() {
            changes.push((action, "", at, vec![text]));
        }
        for (part, at, items) in value.entries() {
            let items: Vec<&str> = items
                .items_or_self()
                .into_iter()
                .map(|item| item.text().unwrap_or("..."))
                .collect();
            changes.push((action, part, at, items));
        }
    }
    // Kong makes them in this order, whatever that of the file.
    let order = ["remove", "rename", "replace", "add", "append"];
    changes.sort_by_key(|(action, ..)| order.iter().position(|known| known == action));
    changes
}

/// Sets a header that is written as `name:value`.
fn set(rules: &mut PluginRules, head: EditedHead, item: &str) -> Result<(), String> {
    let (name, value) = item
        .split_once(':')
        .ok_or("it is not written as `name:value`")?;
    if is_reference(item) || value.contains("$(") {
        return Err("its value is a reference or a template".into());
    }
    let edits = match head {
        EditedHead::Request => &mut rules.request,
        EditedHead::Response => &mut rules.response,
    };
    edits.edit(head, name.trim(), Some(value.trim()))
}

/// Reads `cors`.
pub fn read_cors(
    plugin: &KongPlugin<'_>,
    config: Option<InputValue<'_>>,
    rules: &mut PluginRules,
    report: &mut ImportReport,
) {
    let list = |field: &str| -> Vec<String> {
        let items = config
            .and_then(|config| config.get(field))
            .map(InputValue::items_or_self)
            .unwrap_or_default();
        items
            .into_iter()
            .filter_map(InputValue::text)
            .map(str::to_owned)
            .collect()
    };
    let origins = list("origins");
    let is_any = origins.is_empty() || origins.iter().any(|origin| origin == "*");
    let is_origin = |origin: &String| OriginPattern::parse(origin).is_ok() && !origin.contains('*');
    let fields = [list("headers"), list("exposed_headers")];
    let is_name = |name: &String| http::HeaderName::try_from(name.as_str()).is_ok() && name != "*";
    let is_long = origins.len() > MAX_NAMES || fields.iter().any(|names| names.len() > MAX_NAMES);
    if is_long
        || !(is_any || origins.iter().all(is_origin))
        || !fields.iter().flatten().all(is_name)
    {
        let note = "its origins or headers are not written as browsers write them; write `cors`";
        return report.left(plugin.at, Concern::Other, &text_of(plugin), note);
    }
    let origins = if is_any {
        vec!["*".to_owned()]
    } else {
        origins
    };
    let mut parts = vec![format!("origins: {}", flow_list(&origins))];
    for (word, names) in ["headers", "expose"].into_iter().zip(&fields) {
        if !names.is_empty() {
            parts.push(format!("{word}: {}", flow_list(names)));
        }
    }
    let of = |field: &str| config.and_then(|config| config.get(field));
    if of("credentials").is_some_and(InputValue::is_true) && !is_any {
        parts.push("credentials: true".into());
    }
    if let Some(seconds) = of("max_age")
        .and_then(InputValue::number)
        .filter(|seconds| *seconds <= 86_400)
    {
        parts.push(format!("max_age: {seconds}s"));
    }
    rules.cors = Some(format!("{{ {} }}", parts.join(", ")));
    let note = "the gateway answers preflights before limits, and pages may use the methods that the policy takes";
    report.changed(plugin.at, Concern::Other, &text_of(plugin), note);
    for field in ["preflight_continue", "private_network"] {
        if of(field).is_some_and(InputValue::is_true) {
            report.left(plugin.at, Concern::Other, field, "it has no counterpart");
        }
    }
}
