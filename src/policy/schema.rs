//! JSON Schema (draft 2020-12) of both kinds of file, for editors: made of the same tables of fields
//! that the files are read with.

use serde_json::{Map, Value, json};

use super::decode::{GATEWAY, POLICY};
use super::table::{Need, Table, TableField, ValueShape};
use super::tree;

/// Names of the user's choice.
const NAME: &str = "^[A-Za-z][A-Za-z0-9_-]{0,63}$";

/// The schema of the gateway file.
pub fn gateway() -> Value {
    file(&GATEWAY, "https://tollgate.example/schema/gateway.json")
}

/// The schema of a policy file.
pub fn policy() -> Value {
    file(&POLICY, "https://tollgate.example/schema/policy.json")
}

fn file(table: &'static Table, id: &str) -> Value {
    let mut defs = Map::new();
    let mut schema = Map::new();
    schema.insert(
        "$schema".into(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    schema.insert("$id".into(), id.into());
    schema.insert("title".into(), table.name.into());
    schema.extend(object(table, &mut defs));
    schema.insert("$defs".into(), Value::Object(defs));
    Value::Object(schema)
}

fn object(table: &'static Table, defs: &mut Map<String, Value>) -> Map<String, Value> {
    let properties: Map<String, Value> = table
        .fields
        .iter()
        .map(|each| (each.name.to_owned(), field(each, defs)))
        .collect();
    let required: Vec<&str> = table.needing(Need::Must).map(|field| field.name).collect();
    let either: Vec<Value> = table
        .needing(Need::Either)
        .map(|field| json!({ "required": [field.name] }))
        .collect();
    let mut object = Map::new();
    object.insert("description".into(), table.doc.into());
    object.insert("type".into(), "object".into());
    object.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        object.insert("required".into(), json!(required));
    }
    if !either.is_empty() {
        object.insert("oneOf".into(), json!(either));
    }
    object.insert("additionalProperties".into(), false.into());
    object
}

fn field(field: &'static TableField, defs: &mut Map<String, Value>) -> Value {
    let mut schema = Map::new();
    schema.insert("description".into(), field.description().into());
    if let Ok(node) = tree::parse(0, field.example) {
        schema.insert("examples".into(), json!([plain(&node)]));
    }
    match shape(&field.shape, defs) {
        Value::Object(shape) => schema.extend(shape),
        other => {
            schema.insert("const".into(), other);
        }
    }
    Value::Object(schema)
}

fn shape(of: &'static ValueShape, defs: &mut Map<String, Value>) -> Value {
    match of {
        ValueShape::Text => json!({ "type": "string", "minLength": 1 }),
        ValueShape::Flag => json!({ "type": "boolean" }),
        ValueShape::Whole(from, to) => json!({ "type": "integer", "minimum": from, "maximum": to }),
        ValueShape::Words(words) => json!({ "enum": words }),
        ValueShape::Nothing => json!({ "type": "null" }),
        ValueShape::Form(form) => {
            let text =
                json!({ "type": "string", "description": form.doc, "pattern": form.pattern });
            defs.entry(form.name).or_insert(text);
            reference(form.name)
        }
        ValueShape::List(item) => {
            json!({ "type": "array", "items": shape(item, defs), "minItems": 1 })
        }
        ValueShape::Many(item) => {
            let one = shape(item, defs);
            json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
        }
        ValueShape::Named(value) => json!({
            "type": "object",
            "propertyNames": { "pattern": NAME },
            "additionalProperties": shape(value, defs),
        }),
        ValueShape::Table(table) => {
            let name = slug(table.name);
            if !defs.contains_key(&name) {
                // Put in first, so that a table that holds itself would end.
                defs.insert(name.clone(), Value::Null);
                let object = object(table, defs);
                defs.insert(name.clone(), Value::Object(object));
            }
            reference(&name)
        }
        ValueShape::Either(shapes) => {
            let shapes: Vec<Value> = shapes.iter().map(|each| shape(each, defs)).collect();
            json!({ "anyOf": shapes })
        }
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// "an upstream's `timeouts`" as a key. A table that is called as its field is a section: the section
/// `plan` of `identity` is not a plan.
fn slug(name: &str) -> String {
    let kind = if name.starts_with('`') {
        "section"
    } else {
        "fields"
    };
    let name = name
        .strip_prefix("an ")
        .or_else(|| name.strip_prefix("a "))
        .unwrap_or(name);
    let kept = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_'));
    format!("{}-{kind}", kept.collect::<String>().replace(' ', "-"))
}

/// An example as JSON.
fn plain(node: &tree::Node) -> Value {
    match &node.value {
        tree::YamlValue::Null => Value::Null,
        tree::YamlValue::Flag(flag) => (*flag).into(),
        tree::YamlValue::Number(text) => text
            .parse::<u64>()
            .map_or_else(|_| text.as_str().into(), Value::from),
        tree::YamlValue::Text(text) => text.as_str().into(),
        tree::YamlValue::List(list) => list.iter().map(plain).collect(),
        tree::YamlValue::Map(entries) => entries
            .iter()
            .map(|(key, node)| (key.text.clone(), plain(node)))
            .collect(),
    }
}
