//! What the words of a file become.

use super::*;
use crate::policy::table::{Need, Table, TableField, ValueShape};
use crate::policy::tree;

/// Decodes a text and gives what was said.
fn said(text: &str, read: impl FnOnce(&mut Cx, &Node)) -> Option<String> {
    let mut cx = Cx::default();
    let file = cx.sources.add("file", text.into());
    let node = tree::parse(file, text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    read(&mut cx, &node);
    let failed = cx.failed();
    let report = cx.finish().err().map(|report| report.to_string());
    failed.then_some(report).flatten()
}

fn other_fields(table: &Table, field: &TableField) -> String {
    let others = table.needing(Need::Must);
    let either = table.needing(Need::Either).take(1);
    others
        .filter(|other| other.name != field.name)
        .chain(either.filter(|_| field.need != Need::Either))
        .map(|other| format!("{}: {}\n", other.name, other.example))
        .collect()
}

#[test]
fn examples_of_whole_files_are_right() {
    for field in GATEWAY.fields {
        let text = format!(
            "{}{}: {}\n",
            other_fields(&GATEWAY, field),
            field.name,
            field.example
        );
        assert_eq!(
            said(&text, |cx, node| drop(gateway(cx, node))),
            None,
            "{text}"
        );
    }
    for field in POLICY.fields {
        let text = format!(
            "{}{}: {}\n",
            other_fields(&POLICY, field),
            field.name,
            field.example
        );
        assert_eq!(
            said(&text, |cx, node| drop(policy(cx, "x", node))),
            None,
            "{text}"
        );
    }
}

#[test]
fn examples_of_limits_are_right() {
    for field in limit::LIMIT.fields {
        let others = other_fields(&limit::LIMIT, field).replace('\n', ", ");
        let text = format!(
            "listen: 127.0.0.1:1\nupstreams: {{ a: http://b }}\nlimits: {{ x: {{ {others}{}: {} }} }}\n",
            field.name, field.example
        );
        assert_eq!(
            said(&text, |cx, node| drop(gateway(cx, node))),
            None,
            "{text}"
        );
    }
}

/// Calls `see` with each table that can be reached.
fn tables(shape: &'static ValueShape, see: &mut impl FnMut(&'static Table)) {
    match shape {
        ValueShape::Table(table) => {
            see(table);
            table
                .fields
                .iter()
                .for_each(|field| tables(&field.shape, see));
        }
        ValueShape::List(inner) | ValueShape::Many(inner) | ValueShape::Named(inner) => {
            tables(inner, see)
        }
        ValueShape::Either(shapes) => shapes.iter().for_each(|shape| tables(shape, see)),
        _ => {}
    }
}

#[test]
fn examples_are_yaml_and_names_are_distinct() {
    let mut seen: Vec<&Table> = Vec::new();
    for root in [&GATEWAY, &POLICY] {
        for field in root.fields {
            tables(&field.shape, &mut |table| {
                let other = seen.iter().find(|other| other.name == table.name);
                assert!(
                    other.is_none_or(|other| std::ptr::eq(*other, table)),
                    "{}",
                    table.name
                );
                seen.push(table);
                for (index, field) in table.fields.iter().enumerate() {
                    let name = format!("{} {}", table.name, field.name);
                    assert!(tree::parse(0, field.example).is_ok(), "{name}");
                    assert!(!field.doc.is_empty(), "{name}");
                    let before = &table.fields[..index];
                    assert!(
                        before.iter().all(|other| other.name != field.name),
                        "{name}"
                    );
                }
            });
        }
    }
}

#[test]
fn words_for_identities_are_those_of_the_limits() {
    let known: Vec<_> = crate::limit::Identity::ALL
        .iter()
        .map(|id| id.as_str())
        .collect();
    assert_eq!(leaf::IDENTITIES, known);
}

#[track_caller]
fn span(text: &str, millis: Option<u128>) {
    let got = leaf::parse_span(text).ok().map(|span| span.as_millis());
    assert_eq!(got, millis, "{text}");
}

#[test]
fn spans() {
    span("10s", Some(10_000));
    span("200ms", Some(200));
    span(" 1m ", Some(60_000));
    span("1h", Some(3_600_000));
    span("0s", Some(0));
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
        span(text, None);
    }
}
