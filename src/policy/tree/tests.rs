//! Trees of YAML texts, the locations of their values, and texts that make no tree.

use super::*;

#[track_caller]
fn check_error(text: &str, line: u32, column: u32, message: &str) {
    let error = parse(0, text).expect_err("no tree");
    let reported = (
        error.location.line,
        error.location.column,
        error.message.as_str(),
    );
    assert_eq!(reported, (line, column, message));
}

/// Adds the text, line, column and width of each key and each scalar to `out`.
fn collect_locations(node: &Node, out: &mut Vec<(String, u32, u32, u32)>) {
    let SourceLocation {
        line,
        column,
        width,
        ..
    } = node.location;
    match &node.value {
        YamlValue::List(list) => list.iter().for_each(|item| collect_locations(item, out)),
        YamlValue::Map(entries) => {
            for (key, value) in entries {
                out.push((
                    key.text.clone(),
                    key.location.line,
                    key.location.column,
                    key.location.width,
                ));
                collect_locations(value, out);
            }
        }
        _ => out.push((node.scalar().unwrap_or("~").into(), line, column, width)),
    }
}

#[test]
fn every_value_knows_its_location() {
    let text = "a: 1\nb: [x, 'y z', 2.50, ~, yes]\nc:\n  é: \"q\"\n";
    let node = parse(0, text).expect("a tree");
    let mut locations = Vec::new();
    collect_locations(&node, &mut locations);
    let expected = [
        ("a", 1, 1, 1),
        ("1", 1, 4, 1),
        ("b", 2, 1, 1),
        ("x", 2, 5, 1),
        ("y z", 2, 8, 5),
        ("2.50", 2, 15, 4),
        ("~", 2, 21, 1),
        ("yes", 2, 24, 3),
        ("c", 3, 1, 1),
        ("é", 4, 3, 1),
        ("q", 4, 6, 3),
    ];
    let expected: Vec<_> = expected
        .map(|(text, line, column, width)| (String::from(text), line, column, width))
        .into();
    assert_eq!(locations, expected);
}

#[test]
fn offsets_inside_a_text() {
    for (text, offset, column) in [
        ("m: GET /a", 4, 8),
        ("m: 'GET /a'", 4, 9),
        ("m: \"\\x47ET /a\"", 4, 4),
        ("m: 'GET /a'", 99, 4),
        ("m: é/a", 2, 5),
        ("m: é/a", 1, 4),
    ] {
        let node = parse(0, text).expect("a tree");
        let YamlValue::Map(entries) = &node.value else {
            panic!("a map")
        };
        assert_eq!(
            entries[0].1.location_at(offset).column,
            column,
            "{text} {offset}"
        );
    }
}

#[test]
fn bounds() {
    let too_deep = "lists and maps are too deep inside each other; split it";
    let too_costly = "the file costs too much to read";
    for text in [
        "[".repeat(10_000),
        "{a: ".repeat(10_000),
        "- ".repeat(10_000),
    ] {
        let error = parse(0, &text).expect_err("too deep");
        assert_eq!(
            (error.message.as_str(), error.help.as_deref()),
            (too_costly, Some(too_deep))
        );
    }
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..30 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(",");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let error = parse(0, &bomb).expect_err("a bomb");
    assert_eq!(
        error.help.as_deref(),
        Some("its aliases repeat too much; split it")
    );
    let error = parse(0, &format!("[{}]", "a,".repeat(MAX_NODES + 1))).expect_err("too many");
    assert_eq!(
        error.help.as_deref(),
        Some("it has too many values; split it")
    );
    check_size_error();
}

fn check_size_error() {
    let error = parse(0, &" ".repeat(MAX_FILE_BYTES + 1)).expect_err("too large");
    assert_eq!(error.message, "the file is larger than 1 MiB");
}

#[test]
fn odd_documents() {
    check_error("a: 1\n---\nb: 2\n", 2, 1, "a file holds one document");
    check_error("? [a, b]\n: c\n", 1, 3, "a key is a plain word");
    check_error("~: x\n", 1, 1, "a key is a plain word");
    check_error(
        "a: &a [*a]\n",
        1,
        8,
        "an alias stands inside its own anchor",
    );
    check_error(
        "a: \0\n",
        1,
        4,
        "this is not YAML: unexpected character: `\\u{0}'",
    );
    assert!(matches!(
        parse(0, "").map(|node| node.value),
        Ok(YamlValue::Null)
    ));
    assert!(matches!(
        parse(0, "\u{feff}a: 1\n").map(|node| node.value),
        Ok(YamlValue::Map(_))
    ));
}
