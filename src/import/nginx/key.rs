//! What a zone counts by: the key of `limit_req_zone` and `limit_conn_zone` as the key of a limit, with the clients and
//! the methods that it holds for. An empty key of nginx, which is not counted, becomes a condition.

use ipnet::IpNet;

use super::key_parts::{
    COMMON_METHODS, KeyCase, MethodChoice, VariableMeaning, ZoneKey, read_parts, read_variable,
};
use super::variables::{
    MapPattern, MapSource, MapVariable, TextPart, VariableTable, network_text, split_text,
};
use crate::import::model::{IdentityDrafts, IdentityPlace};

/// Reads the key of a zone.
///
/// # Errors
///
/// Why there is no such key, and the nearest way by hand.
pub fn read_key(
    text: &str,
    variables: &VariableTable,
    identities: &mut IdentityDrafts,
) -> Result<ZoneKey, String> {
    let parts = split_text(text);
    if let [TextPart::Variable(name)] = parts.as_slice()
        && let Some(map) = variables.get(name)
    {
        let mut key = read_map(name, &map, identities)?;
        key.origins = map.origins;
        if key.remarks.len() > 1 {
            key.differences
                .push("nginx has a counter for each of these values; here they are one, which is stricter".into());
        }
        return Ok(key);
    }
    let mut key = ZoneKey::default();
    let case = read_parts(text, variables, identities, &mut key.differences)?;
    key.cases.push(case);
    Ok(key)
}

/// Reads a key that `map` or `geo` chooses.
fn read_map(
    name: &str,
    map: &MapVariable,
    identities: &mut IdentityDrafts,
) -> Result<ZoneKey, String> {
    let mut key = ZoneKey::default();
    let source = match &map.source {
        MapSource::Address => {
            read_address_map(map, identities, &mut key)?;
            return Ok(key);
        }
        MapSource::Text(source) => split_text(source),
    };
    let [TextPart::Variable(source)] = source.as_slice() else {
        return Err(format!(
            "`${name}` looks at several variables, which has no counterpart; write limits with `for`"
        ));
    };
    match source.as_str() {
        "request_method" => read_method_map(map, identities, &mut key)?,
        "uri" | "request_uri" | "document_uri" => {
            return Err(format!(
                "`${name}` chooses by the path; write a policy for each path, with the limit or without it"
            ));
        }
        _ => read_value_map(source, map, identities, &mut key)?,
    }
    Ok(key)
}

fn constant_remark(value: &str) -> String {
    format!("all clients with the key `{value}` count together, as in nginx")
}

/// Reads the key that a value of a map is; `None` for an empty one.
fn read_value(
    value: &str,
    identities: &mut IdentityDrafts,
    key: &mut ZoneKey,
) -> Result<Option<KeyCase>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    if !value.contains('$') && !key.remarks.contains(&constant_remark(value)) {
        key.remarks.push(constant_remark(value));
    }
    let none = VariableTable::default();
    read_parts(value, &none, identities, &mut key.differences).map(Some)
}

fn read_address_map(
    map: &MapVariable,
    identities: &mut IdentityDrafts,
    key: &mut ZoneKey,
) -> Result<(), String> {
    let default = read_value(&map.default, identities, key)?;
    let (mut exempt, mut counted): (Vec<IpNet>, Vec<IpNet>) = (Vec::new(), Vec::new());
    let mut counted_case: Option<KeyCase> = None;
    for (pattern, value) in &map.entries {
        let case = read_value(value, identities, key)?;
        let MapPattern::Network(network) = pattern else {
            let MapPattern::Other(text) = pattern else {
                continue;
            };
            match (&case, &default) {
                (None, Some(_)) => key
                    .differences
                    .push(format!("clients by `{text}` are counted too")),
                (case, default) if case == default => {}
                _ => {
                    return Err(format!(
                        "the pattern `{text}` has no counterpart; write its networks under `for: {{ ip: [...] }}`"
                    ));
                }
            }
            continue;
        };
        match case {
            None => exempt.push(*network),
            Some(case) if Some(&case) == default.as_ref() => counted.push(*network),
            Some(case)
                if counted_case.as_ref().is_none_or(|other| *other == case)
                    && default.is_none() =>
            {
                counted_case = Some(case);
                counted.push(*network);
            }
            Some(_) => {
                return Err(format!(
                    "networks with other keys have no counterpart; write a limit for {} with `for: {{ ip: [...] }}`",
                    network_text(*network)
                ));
            }
        }
    }
    let Some(case) = default.clone().or(counted_case) else {
        key.remarks.push("no client is counted by it".into());
        return Ok(());
    };
    if default.is_some() {
        // A network that is not counted may hold one that is. The inner one is the more specific.
        let holds_counted = |outer: &IpNet| {
            counted
                .iter()
                .any(|inner| outer.contains(inner) && outer != inner)
        };
        for network in exempt.iter().filter(|network| holds_counted(network)) {
            key.differences.push(format!(
                "{} is counted, because a part of it is; nginx leaves out the rest",
                network_text(*network)
            ));
        }
        let exempt = exempt.iter().filter(|network| !holds_counted(network));
        let exempt = exempt.map(|network| network_text(*network)).collect();
        key.cases.push(KeyCase { exempt, ..case });
        return Ok(());
    }
    let holds_counted = |outer: &IpNet| {
        counted
            .iter()
            .any(|inner| outer.contains(inner) && outer != inner)
    };
    if counted.is_empty() {
        return Ok(());
    }
    let exempt = exempt.iter().filter(|network| !holds_counted(network));
    key.cases.push(KeyCase {
        exempt: exempt.map(|network| network_text(*network)).collect(),
        clients: vec![(
            "ip".into(),
            counted
                .iter()
                .map(|network| network_text(*network))
                .collect(),
        )],
        ..case
    });
    Ok(())
}

fn read_method_map(
    map: &MapVariable,
    identities: &mut IdentityDrafts,
    key: &mut ZoneKey,
) -> Result<(), String> {
    let default = read_value(&map.default, identities, key)?;
    let (mut with_key, mut without): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut case_of_listed: Option<KeyCase> = None;
    for (pattern, value) in &map.entries {
        let case = read_value(value, identities, key)?;
        let method = match pattern {
            MapPattern::Exact(method) => method.to_ascii_uppercase(),
            _ => {
                return Err(
                    "a pattern for methods has no counterpart; write the methods in `match`".into(),
                );
            }
        };
        if !COMMON_METHODS.contains(&method.as_str()) {
            return Err(format!("`{method}` is no method that is read here"));
        }
        match case {
            None => without.push(method),
            Some(case) if Some(&case) == default.as_ref() => {}
            Some(case)
                if default.is_none()
                    && case_of_listed.as_ref().is_none_or(|other| *other == case) =>
            {
                case_of_listed = Some(case);
                with_key.push(method);
            }
            Some(_) => {
                return Err(
                    "methods with other keys have no counterpart; write a policy for each".into(),
                );
            }
        }
    }
    match (default, case_of_listed) {
        (Some(case), _) if without.is_empty() => key.cases.push(case),
        (Some(case), _) => key.cases.push(KeyCase {
            methods: MethodChoice::Except(without),
            ..case
        }),
        (None, Some(case)) => key.cases.push(KeyCase {
            methods: MethodChoice::Only(with_key),
            ..case
        }),
        (None, None) => key.remarks.push("no request is counted by it".into()),
    }
    Ok(())
}

/// Reads a map of a header, a cookie, an argument or a claim.
fn read_value_map(
    source: &str,
    map: &MapVariable,
    identities: &mut IdentityDrafts,
    key: &mut ZoneKey,
) -> Result<(), String> {
    let default = read_value(&map.default, identities, key)?;
    let absent = read_value(map.value_of(""), identities, key)?;
    let mut listed: Vec<(KeyCase, Vec<String>)> = Vec::new();
    let mut exempt_values = Vec::new();
    for (pattern, value) in &map.entries {
        let case = read_value(value, identities, key)?;
        match (pattern, case) {
            (MapPattern::Exact(text), _) if text.is_empty() => {}
            (MapPattern::Exact(text), _) if text.chars().any(char::is_control) => {
                return Err(
                    "a value with control characters has no counterpart under `for`".into(),
                );
            }
            (MapPattern::Exact(text), _) if matches!(&**text, "present" | "absent") => {
                return Err(format!(
                    "`{text}` is a word that means something else under `for`"
                ));
            }
            (MapPattern::Exact(text), None) if default.is_some() => {
                exempt_values.push(text.clone())
            }
            (MapPattern::Exact(_), case) if case == default => {}
            (MapPattern::Exact(text), Some(case)) if default.is_none() => {
                match listed.iter_mut().find(|(other, _)| *other == case) {
                    Some((_, values)) => values.push(text.clone()),
                    None => listed.push((case, vec![text.clone()])),
                }
            }
            (MapPattern::Other(text), None) if default.is_some() => {
                exempt_values.push(text.clone())
            }
            (MapPattern::Other(_), case) if case == default => {}
            (pattern, _) => {
                let (MapPattern::Exact(text) | MapPattern::Other(text)) = pattern else {
                    continue;
                };
                return Err(format!(
                    "clients with `{text}` in `${source}` have no counterpart; name single values under `for`"
                ));
            }
        }
    }
    if !exempt_values.is_empty() {
        key.differences.push(format!(
            "clients with {} in `${source}` are counted too: there is no list of values that are not",
            exempt_values.iter().take(5).map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
        ));
    }
    if default == absent && listed.is_empty() {
        match default {
            Some(case) => key.cases.push(case),
            None => key.remarks.push("no client is counted by it".into()),
        }
        return Ok(());
    }
    let needs_values = !listed.is_empty();
    let word = source_word(source, needs_values, identities, key)?;
    match (absent, default) {
        // The first identity that a request has. A constant is no identity, and gets a limit of its own.
        (Some(first), Some(second))
            if second.parts == [word.clone()]
                && first.parts.len() == 1
                && first.parts != ["everyone"]
                && second != first =>
        {
            let part = format!("{word} or {}", first.parts.concat());
            key.cases.push(KeyCase {
                parts: vec![part],
                ..first
            });
        }
        (absent, default) => {
            for (case, presence) in [(absent, "absent"), (default, "present")] {
                let Some(case) = case else { continue };
                let clients = match case.parts == [word.clone()] {
                    true => Vec::new(),
                    false => vec![(word.clone(), vec![presence.to_owned()])],
                };
                key.cases.push(KeyCase { clients, ..case });
            }
        }
    }
    let has_letters = |value: &String| value.chars().any(|c| c.is_ascii_alphabetic());
    if listed
        .iter()
        .flat_map(|(_, values)| values)
        .any(has_letters)
    {
        key.differences.push(format!(
            "values of `${source}` are compared with their case, which nginx ignores: write each spelling that servers accept"
        ));
    }
    for (case, values) in listed {
        key.cases.push(KeyCase {
            clients: vec![(word.clone(), values)],
            ..case
        });
    }
    Ok(())
}

/// The word for the variable that a map looks at.
fn source_word(
    source: &str,
    needs_values: bool,
    identities: &mut IdentityDrafts,
    key: &mut ZoneKey,
) -> Result<String, String> {
    let place = match source.split_once('_') {
        Some(("http", header)) => Some(IdentityPlace::Header(header.replace('_', "-"))),
        Some(("cookie", cookie)) => Some(IdentityPlace::Cookie(cookie.into())),
        Some(("arg", argument)) => Some(IdentityPlace::Query(argument.into())),
        _ => None,
    };
    let hosts = ["http_host", "http_x_forwarded_for"];
    let place = place.filter(|_| !hosts.contains(&source));
    let word = match (place, needs_values) {
        (Some(place), true) => identities.word_with_values(&place),
        (Some(place), false) => identities.word(&place),
        (None, _) => match read_variable(source, true, identities, &mut key.differences) {
            Ok(VariableMeaning::Part(word)) if word != "ip" => Some(word),
            _ => None,
        },
    };
    word.ok_or_else(|| format!("`${source}` is no identity that `for` could name"))
}
