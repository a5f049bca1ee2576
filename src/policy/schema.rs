//! JSON Schemas (draft 2020-12) of the gateway file, of a policy file and of `_defaults.yaml`, for editors. They are
//! generated from the tables of fields that also read the files. A schema checks shapes only; `tollgate check` checks
//! how values fit together.

use serde_json::{Map, Value, json};

use super::decode::{DEFAULTS_TABLE, GATEWAY_TABLE, POLICY_TABLE};
use super::table::{FieldNeed, Table, TableField, ValueShape};
use super::tree;

/// The pattern of names that the user chooses, for instance of limits and upstreams: what `LimitName` accepts.
const NAME_PATTERN: &str = "^[A-Za-z][A-Za-z0-9_-]{0,63}$";

/// The schema of the gateway file.
pub fn gateway_schema() -> Value {
    file_schema(
        &GATEWAY_TABLE,
        "https://tollgate.example/schema/gateway.json",
    )
}

/// The schema of a policy file.
pub fn policy_schema() -> Value {
    file_schema(&POLICY_TABLE, "https://tollgate.example/schema/policy.json")
}

/// The schema of a `_defaults.yaml`.
pub fn defaults_schema() -> Value {
    file_schema(
        &DEFAULTS_TABLE,
        "https://tollgate.example/schema/defaults.json",
    )
}

fn file_schema(table: &'static Table, id: &str) -> Value {
    let mut definitions = Map::new();
    let mut schema = Map::new();
    schema.insert(
        "$schema".into(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    schema.insert("$id".into(), id.into());
    schema.insert("title".into(), table.name.into());
    schema.extend(table_schema(table, &mut definitions));
    schema.insert("$defs".into(), Value::Object(definitions));
    Value::Object(schema)
}

/// The schema of a map. Schemas that it refers to are added to `definitions`. Fields that a policy may inherit are not
/// required, because an editor sees one file only.
fn table_schema(table: &'static Table, definitions: &mut Map<String, Value>) -> Map<String, Value> {
    let properties: Map<String, Value> = table
        .fields
        .iter()
        .map(|field| (field.name.to_owned(), field_schema(field, definitions)))
        .collect();
    let required: Vec<&str> = table
        .fields_with_need(FieldNeed::Required)
        .map(|field| field.name)
        .collect();
    let alternatives: Vec<Value> = table
        .fields_with_need(FieldNeed::Alternative)
        .map(|field| json!({ "required": [field.name] }))
        .collect();
    let choices: Vec<Value> = table
        .fields
        .iter()
        .flat_map(|field| match field.need {
            FieldNeed::RequiredUnless(other) => vec![field.name, other],
            FieldNeed::AtLeastOne => vec![field.name],
            _ => Vec::new(),
        })
        .map(|name| json!({ "required": [name] }))
        .collect();
    let mut object = Map::new();
    object.insert("description".into(), table.doc.into());
    object.insert("type".into(), "object".into());
    object.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        object.insert("required".into(), json!(required));
    }
    // `oneOf` allows exactly one alternative. The sections with several alternatives reject two of them, too.
    if !alternatives.is_empty() {
        object.insert("oneOf".into(), json!(alternatives));
    }
    if !choices.is_empty() {
        object.insert("anyOf".into(), json!(choices));
    }
    // `additionalProperties` holds for the fields without a fixed name only; `patternProperties` would hold for all.
    let others = match &table.others {
        Some(others) => field_schema(&others.field, definitions),
        None => false.into(),
    };
    object.insert("additionalProperties".into(), others);
    object
}

fn field_schema(field: &'static TableField, definitions: &mut Map<String, Value>) -> Value {
    let mut schema = Map::new();
    schema.insert("description".into(), field.description().into());
    if let Ok(node) = tree::parse(0, field.example) {
        schema.insert("examples".into(), json!([node_to_json(&node)]));
    }
    // The schema of every shape is an object.
    if let Value::Object(shape) = shape_schema(&field.shape, definitions) {
        schema.extend(shape);
    }
    Value::Object(schema)
}

/// The schema of the values of a shape. Schemas that it refers to are added to `definitions`.
fn shape_schema(shape: &'static ValueShape, definitions: &mut Map<String, Value>) -> Value {
    match shape {
        ValueShape::Text => json!({ "type": "string", "minLength": 1 }),
        ValueShape::Bool => json!({ "type": "boolean" }),
        ValueShape::WholeNumber(min, max) => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        ValueShape::Words(words) => json!({ "enum": words }),
        ValueShape::Null => json!({ "type": "null" }),
        ValueShape::Format(format) => {
            let text =
                json!({ "type": "string", "description": format.doc, "pattern": format.pattern });
            definitions.entry(format.name).or_insert(text);
            reference_to(format.name)
        }
        ValueShape::List(item) => {
            json!({ "type": "array", "items": shape_schema(item, definitions), "minItems": 1 })
        }
        ValueShape::OneOrList(item) => {
            let item = shape_schema(item, definitions);
            json!({ "anyOf": [item, { "type": "array", "items": item, "minItems": 1 }] })
        }
        ValueShape::NamedMap(value) => json!({
            "type": "object",
            "propertyNames": { "pattern": NAME_PATTERN },
            "additionalProperties": shape_schema(value, definitions),
        }),
        ValueShape::TextMap(value) => json!({
            "type": "object",
            "additionalProperties": shape_schema(value, definitions),
        }),
        ValueShape::Table(table) => {
            let name = definition_name(table.name);
            if !definitions.contains_key(&name) {
                // A placeholder ends the recursion of a table that contains itself.
                definitions.insert(name.clone(), Value::Null);
                let schema = table_schema(table, definitions);
                definitions.insert(name.clone(), Value::Object(schema));
            }
            reference_to(&name)
        }
        ValueShape::AnyOf(shapes) => {
            let shapes = shapes.iter().map(|shape| shape_schema(shape, definitions));
            json!({ "anyOf": shapes.collect::<Vec<Value>>() })
        }
    }
}

fn reference_to(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// The key of a table in `$defs`: "an upstream's `tls`" becomes `upstreams-tls-fields`. The key of a table that is
/// named after its field ends in `-section`. So the section `plan` of `identity` and "a plan" have different keys.
fn definition_name(name: &str) -> String {
    let kind = if name.starts_with('`') {
        "section"
    } else {
        "fields"
    };
    let name = name
        .strip_prefix("an ")
        .or_else(|| name.strip_prefix("a "))
        .unwrap_or(name);
    let key_chars = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_'));
    format!("{}-{kind}", key_chars.collect::<String>().replace(' ', "-"))
}

/// Converts an example to JSON. Numbers other than whole ones from 0 to 2^64 - 1 become strings.
fn node_to_json(node: &tree::Node) -> Value {
    match &node.value {
        tree::YamlValue::Null => Value::Null,
        tree::YamlValue::Bool(value) => (*value).into(),
        tree::YamlValue::Number(text) => text
            .parse::<u64>()
            .map_or_else(|_| text.as_str().into(), Value::from),
        tree::YamlValue::Text(text) => text.as_str().into(),
        tree::YamlValue::List(list) => list.iter().map(node_to_json).collect(),
        tree::YamlValue::Map(entries) => entries
            .iter()
            .map(|(key, value)| (key.text.clone(), node_to_json(value)))
            .collect(),
    }
}
