//! Examples and tables of the fields, and scalars.

use super::*;
use crate::limit::{OnStoreError, Sharing};
use crate::policy::section::FieldReader;
use crate::policy::table::{Table, TableField, ValueShape};
use crate::policy::tree;
use crate::record::push::Engine;

/// Decodes a text, and returns the report if it has a mistake.
fn report_of(text: &str, read: impl FnOnce(&mut LoadContext, &Node)) -> Option<String> {
    let mut cx = LoadContext::default();
    let file = cx.sources.add("file", text.into());
    let node = tree::parse(file, text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    read(&mut cx, &node);
    cx.finish().err().map(|report| report.to_string())
}

/// The text of the fields that `table` requires beside `field`, with their examples.
fn required_fields_beside(table: &Table, field: &TableField) -> String {
    let others = table.required_fields();
    let alternatives = table.alternatives().take(1);
    let is_alternative = table.alternatives().any(|other| other.name == field.name);
    others
        .filter(|other| other.name != field.name)
        .chain(alternatives.filter(|_| !is_alternative))
        .map(|other| format!("{}: {}\n", other.name, other.example))
        .collect()
}

#[test]
fn examples_of_whole_files_are_right() {
    for field in GATEWAY_TABLE.fields {
        let upstreams = match field.name {
            "upstreams" => "",
            _ => "upstreams: { shop: [http://192.0.2.11:8080] }\n",
        };
        let text = format!(
            "{}{upstreams}{}: {}\n",
            required_fields_beside(&GATEWAY_TABLE, field),
            field.name,
            field.example
        );
        assert_eq!(
            report_of(&text, |cx, node| drop(read_gateway(cx, node))),
            None,
            "{text}"
        );
    }
    for field in POLICY_TABLE.fields {
        let beside = match field.name {
            "domain" => "entries: { remote_address: any }\n".into(),
            "entries" => "domain: edge\n".into(),
            _ => required_fields_beside(&POLICY_TABLE, field),
        };
        let text = format!("{beside}{}: {}\n", field.name, field.example);
        assert_eq!(
            report_of(&text, |cx, node| drop(read_policy(cx, "x", node))),
            None,
            "{text}"
        );
    }
    for field in DEFAULTS_TABLE.fields {
        let text = format!("{}: {}\n", field.name, field.example);
        let report = report_of(&text, |cx, node| {
            drop(read_defaults(cx, "x", 0, node.clone()))
        });
        assert_eq!(report, None, "{text}");
    }
}

#[test]
fn examples_of_limits_are_right() {
    for field in limit::LIMIT_TABLE.fields {
        let others = required_fields_beside(&limit::LIMIT_TABLE, field).replace('\n', ", ");
        let text = format!(
            "listen: 127.0.0.1:1\nupstreams: {{ a: http://b }}\nlimits: {{ x: {{ {others}{}: {} }} }}\n",
            field.name, field.example
        );
        assert_eq!(
            report_of(&text, |cx, node| drop(read_gateway(cx, node))),
            None,
            "{text}"
        );
    }
}

/// Calls `visit` with each table inside a shape.
fn visit_tables(shape: &'static ValueShape, visit: &mut impl FnMut(&'static Table)) {
    match shape {
        ValueShape::Table(table) => {
            visit(table);
            table
                .fields
                .iter()
                .for_each(|field| visit_tables(&field.shape, visit));
        }
        ValueShape::List(inner)
        | ValueShape::OneOrList(inner)
        | ValueShape::NamedMap(inner)
        | ValueShape::TextMap(inner) => visit_tables(inner, visit),
        ValueShape::AnyOf(shapes) => shapes.iter().for_each(|shape| visit_tables(shape, visit)),
        _ => {}
    }
}

#[test]
fn examples_are_yaml_and_names_are_distinct() {
    let mut visited_tables: Vec<&Table> = Vec::new();
    for root in [&GATEWAY_TABLE, &POLICY_TABLE, &DEFAULTS_TABLE] {
        for field in root.fields {
            visit_tables(&field.shape, &mut |table| {
                let other = visited_tables.iter().find(|other| other.name == table.name);
                assert!(
                    other.is_none_or(|other| std::ptr::eq(*other, table)),
                    "{}",
                    table.name
                );
                visited_tables.push(table);
                for (index, field) in table.fields.iter().enumerate() {
                    let name = format!("{} {}", table.name, field.name);
                    assert!(tree::parse(0, field.example).is_ok(), "{name}");
                    assert!(!field.doc.is_empty(), "{name}");
                    let earlier_fields = &table.fields[..index];
                    assert!(
                        earlier_fields.iter().all(|other| other.name != field.name),
                        "{name}"
                    );
                }
            });
        }
    }
}

/// Responses and logs show these values by `as_str`, and people write what they saw into the files.
#[test]
fn words_are_the_names_of_their_values() {
    fn check<R: FieldReader<Value: Copy>>(values: &[R::Value], name: fn(R::Value) -> &'static str) {
        for value in values {
            assert_eq!(R::format_value(value), name(*value));
        }
    }
    check::<push::EngineField>(&Engine::ALL, Engine::as_str);
    let sharings = [Sharing::Strict, Sharing::Leased, Sharing::Local];
    check::<limit::SharingField>(&sharings, Sharing::as_str);
    let decisions = [
        OnStoreError::Local,
        OnStoreError::Open,
        OnStoreError::Closed,
    ];
    check::<limit::OnStoreErrorField>(&decisions, OnStoreError::as_str);
}

#[track_caller]
fn check_duration(text: &str, millis: Option<u128>) {
    let parsed = scalar::parse_duration(text)
        .ok()
        .map(|duration| duration.as_millis());
    assert_eq!(parsed, millis, "{text}");
}

#[test]
fn durations() {
    check_duration("10s", Some(10_000));
    check_duration("200ms", Some(200));
    check_duration(" 1m ", Some(60_000));
    check_duration("1h", Some(3_600_000));
    check_duration("0s", Some(0));
    for text in [
        "",
        "s",
        "10",
        "1.5s",
        "-1s",
        "10 s s",
        "99999999999999999999s",
        "9999999999999999d",
    ] {
        check_duration(text, None);
    }
}
