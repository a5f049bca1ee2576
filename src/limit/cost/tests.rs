//! Numbers are found however a body is cut into pieces and packed, and as a parser of whole documents finds them.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

use super::*;

mod codings;

const JSON: &str = "application/json";

fn path(text: &str) -> JsonPath {
    text.split('.').map(String::from).collect::<Vec<_>>().into()
}

fn meter(at: &JsonPath, codings: &[&str], content_type: &str) -> CostMeter {
    let codings = codings.iter().map(|coding| coding.as_bytes());
    CostMeter::new([at].into_iter(), codings, Some(content_type.as_bytes()), 0)
}

/// What is found in a body that comes in pieces of `step` bytes.
fn read(
    at: &JsonPath,
    codings: &[&str],
    content_type: &str,
    body: &[u8],
    step: usize,
) -> Option<MeasuredCost> {
    let mut meter = meter(at, codings, content_type);
    body.chunks(step).for_each(|piece| meter.feed(piece));
    meter.finish(true);
    meter.measured(at)
}

/// The same for every cut in two, and byte by byte.
#[track_caller]
fn check_typed(at: &str, content_type: &str, body: &str, expected: Option<u32>) {
    let (at, body) = (path(at), body.as_bytes());
    for step in [1, 2, 3, 7, body.len().max(1)] {
        let measured_cost = read(&at, &[], content_type, body, step);
        let units = measured_cost.map(|measured_cost| measured_cost.units);
        assert_eq!(units, expected, "{step}: {}", body.escape_ascii());
    }
    for cut in 0..body.len() {
        let mut meter = meter(&at, &[], content_type);
        meter.feed(&body[..cut]);
        meter.feed(&body[cut..]);
        let units = meter.measured(&at).map(|measured_cost| measured_cost.units);
        assert_eq!(units, expected, "{cut}: {}", body.escape_ascii());
    }
}

#[track_caller]
fn check(at: &str, body: &str, expected: impl Into<Option<u32>>) {
    check_typed(at, JSON, body, expected.into());
}

#[test]
fn documents_of_several_lines_in_a_sequence() {
    let filler = "x".repeat(200);
    let body = format!(
        "\u{1e}{{\n\"items\": [\n{{\n\"v\": \"{filler}\"\n}},\n{{\n\"v\": 1\n}}\n],\n\"usage\": {{\n\"total\": 50\n}}\n}}\n"
    );
    check_typed("usage.total", "application/json-seq", &body, Some(50));
}

#[test]
fn documents() {
    let at = "usage.total";
    check(at, r#"{"usage":{"total":42}}"#, 42);
    check(
        at,
        "\u{feff} \r\n{ \"a\" : [1,{}], \"usage\"\t:\n{ \"total\" : 8 } } \n",
        8,
    );
    check(at, r#"{"usage":{"total":"42"}}"#, 42);
    check(at, r#"{"usage":{"total":41.5}}"#, 42);
    check(at, r#"{"usage":{"total":5e3}}"#, 5000);
    check(at, r#"{"usage":{"total":99999999999}}"#, u32::MAX);
    check(at, r#"{"usage":{"total":0}}"#, 0);
    for none in ["-3", "null", "true", "[42]", "{}", "\"many\"", "\"\""] {
        check(at, &format!("{{\"usage\":{{\"total\":{none}}}}}"), None);
    }
    check(at, r#"{"usage":{"total":{"total":42}}}"#, None);
    check(at, r#"{"usage":[42]}"#, None);
    check(at, r#"{"total":42}"#, None);
    check(at, r#"{"a":{"usage":{"total":42}}}"#, None);
    check(at, r#"{"usage":{"a":{"total":42}}}"#, None);
    check(
        at,
        r#"{"usages":{"total":42},"usage":{"totals":1,"tota":2}}"#,
        None,
    );
    check(at, r#""{\"usage\":{\"total\":42}}""#, None);
    check(at, "", None);
    check(at, "no", None);
    check("a", r#"{"":1,"a":2}"#, 2);
    // Of doubled names the last number.
    check(
        at,
        r#"{"usage":{"total":1,"total":2},"usage":{"total":3,"total":null}}"#,
        3,
    );
    // What is no JSON and is sent all the same.
    check(
        at,
        r#"{"a":NaN,"b":Infinity,"c":-Infinity,"usage":{"a":NaN,"total":42}}"#,
        42,
    );
    check("c", r#"[NaN,{"c":2}]"#, 2);
    // Names and values with escapes.
    check(at, r#"{"\u0075sage":{"tot\u0061l":"\u0034\u0032"}}"#, 42);
    check("ü😀/\"", r#"{"\u00fc\ud83d\ude00\/\"":5}"#, 5);
    check("\u{fffd}x", r#"{"\ud83dx":5}"#, 5);
    check("ab", r#"{"a\ud83db":5}"#, None);
    // What looks like structure in strings, and how deep the rest may be.
    check("c", r#"{"a":"}]\"\\","b":["\\\"]",{"c":1}],"c":7}"#, 7);
    let deep = format!(
        "{{\"a\":{}{},\"c\":7}}",
        "[{\"c\":".repeat(500),
        "}]".repeat(500)
    );
    check("c", &deep, 7);
    let long = format!(
        "{{\"c\":{}}}",
        "0".repeat(number_finder::MAX_NUMBER_BYTES + 1)
    );
    check("c", &long, None);
}

#[test]
fn several_documents() {
    check("c", "{\"c\":1}\n{\"c\":2}\n{\"d\":{\"c\":9}}\n", 2);
    check("c", "{\"c\":1}{\"c\":2}{}", 2);
    check("c", "\u{1e}{\"c\":1}\n\u{1e}{\"c\":2}\n", 2);
    check("c", "[{\"c\":1},\n{\"c\":2}]", 2);
    check("c", "null\n5 \"a\" {\"c\":2}\n", 2);
    // A line that breaks off does not hide the next one.
    check("c", "{\"c\":1\n{\"c\":2}\n", 2);
    check("c", "{\"a\":\"open\n{\"c\":2}\n", 2);
    check("c", "{\"a\":tru\u{7f}\n{\"c\":2}\n", 2);
    check("c", "{\"a\"\r\n{\"c\":2}\r\n", 2);
    check("c", ")]}'\n{\"c\":2}", 2);
    check("c", "<p>{\"c\":2}</p>", None);
}

#[test]
fn event_streams() {
    let events = "text/event-stream; charset=utf-8";
    for (body, expected) in [
        (
            "data: {\"c\":1}\n\ndata: {\"c\":2}\n\ndata: [DONE]\n\n",
            Some(2),
        ),
        ("data:{\"c\":1}\r\rdata:{\"c\":2}\r\r", Some(2)),
        (
            "\u{feff}: ping\r\n\r\nevent: x\r\nid: 1\r\ndata: {\"c\":\r\ndata: 7}\r\n\r\n",
            Some(7),
        ),
        ("data\ndata:\n\ndata: {\"c\":3}\n\n", Some(3)),
        // Fields that are not data, and data that is no document.
        (
            "datas: {\"c\":9}\nid: {\"c\":9}\ndata: {\"c\":4}\n\n",
            Some(4),
        ),
        ("data: {\"c\":5\n\ndata: {\"d\":6}\n\n", Some(5)),
        ("data: {\"a\":\"\n\ndata: {\"c\":6}\n\n", Some(6)),
        ("data: {\"a\":[[{\n\ndata: {\"c\":6}\n\n", Some(6)),
        ("data: one\ndata: {\"c\":6}\n\n", Some(6)),
        // The last event may lack its end.
        ("data: {\"c\":8}", Some(8)),
        // The other one's type.
        ("{\"c\":1}", Some(1)),
    ] {
        check_typed("c", events, body, expected);
        check_typed("c", "text/plain", body, expected);
    }
    for first in ["todo: 1", "_x: 1", "1", "-"] {
        let body = format!("{first}\ndata: {{\"c\":1}}\n\n");
        check_typed("c", events, &body, Some(1));
    }
}

#[test]
fn a_number_is_exact_only_where_nothing_was_cut() {
    let at = path("c");
    let exact = |body: &str, whole: bool| {
        let mut meter = meter(&at, &[], "application/json");
        meter.feed(body.as_bytes());
        meter.finish(whole);
        meter
            .measured(&at)
            .map(|measured_cost| (measured_cost.units, measured_cost.is_exact))
    };
    assert_eq!(exact("{\"c\":50}", true), Some((50, true)));
    assert_eq!(exact("{\"c\":50}", false), Some((50, false)));
    assert_eq!(exact("{\"c\":50,", true), Some((50, false)));
    assert_eq!(exact("{\"c\":50", false), None, "it may go on");
}

/// The parts of an incremental response, as servers of GraphQL send them.
#[test]
fn multipart_bodies() {
    let mut body = String::new();
    for cost in [1, 2] {
        let head = "content-type: application/json\r\n\r\n";
        body += &format!("\r\n--a_b'(\r\n{head}{{\"data\":{{}},\"c\":{cost}}}");
    }
    body += "\r\n--a_b'(--\r\n";
    check_typed("c", "multipart/mixed; boundary=\"a_b'(\"", &body, Some(2));
}

/// JSON as the argument of a call, and behind what keeps others from running it.
#[test]
fn scripts_and_guarded_json() {
    let body = "/**/ typeof cb === 'function' && cb({\"a\":\"(\",\"c\":3});";
    check_typed("c", "text/javascript; charset=utf-8", body, Some(3));
    check_typed(
        "c",
        "application/javascript",
        "cb([{\"c\":1},{\"c\":2}])",
        Some(2),
    );
    check_typed("c", "text/javascript", " {\"c\":3}", Some(3));
    check("c", ")]}',\n{\"c\":3}", 3);
}

/// A server may repeat what a client sent in a text; in JSON and events it is a string.
#[test]
fn numbers_of_other_types_are_not_sure() {
    for (content_type, exact) in [
        (JSON, true),
        ("application/problem+json; charset=utf-8", true),
        ("Text/Event-Stream", true),
        ("application/x-ndjson", true),
        ("text/html", false),
        ("text/plain", false),
        ("text/javascript", false),
        ("", true),
    ] {
        let body = match content_type {
            "text/javascript" => "cb({\"c\":3})",
            _ => "{\"c\":3}",
        };
        let measured_cost = read(&path("c"), &[], content_type, body.as_bytes(), 100);
        assert_eq!(
            measured_cost.map(|measured_cost| (measured_cost.units, measured_cost.is_exact)),
            Some((3, exact)),
            "{content_type}"
        );
    }
}

fn document(bytes: usize) -> Vec<u8> {
    let words: String = (0..bytes / 16)
        .map(|n| format!("w{:x} ", n * 7919 % 4096))
        .collect();
    json!({ "text": words, "usage": { "total": 4711 } })
        .to_string()
        .into()
}

fn packed(coding: &str, body: &[u8]) -> Vec<u8> {
    let level = Compression::default();
    match coding {
        "gzip" | "x-gzip" => {
            let mut out = GzEncoder::new(Vec::new(), level);
            out.write_all(body).unwrap();
            out.finish().unwrap()
        }
        "deflate" => {
            let mut out = ZlibEncoder::new(Vec::new(), level);
            out.write_all(body).unwrap();
            out.finish().unwrap()
        }
        "raw" => {
            let zlib = packed("deflate", body);
            // Without its header and its checksum.
            zlib[2..zlib.len() - 4].to_vec()
        }
        "zstd" => compress_to_vec(body, CompressionLevel::Fastest),
        _ => body.to_vec(),
    }
}

/// Long streams, of which most is not read closely, in pieces of any length.
#[test]
fn long_streams() {
    let at = path("usage.total");
    let event = |end: &str| format!("data: {{\"text\":\"a \\\" }} b\",\"usage\":null}}{end}{end}");
    let last = "{\"usage\":{\"total\":42}}";
    let escaped = "{\"usage\":{\"t\\u006ftal\":43}}";
    for end in ["\n", "\r\n", "\r"] {
        let many = event(end).repeat(50);
        let data = |document: &str| format!("data: {document}{end}{end}");
        for (body, units) in [
            (many.clone() + &data(last), 42),
            (data(last) + &many, 42),
            (many.clone() + &data(last) + &many, 42),
            (
                many.clone() + &data(last) + &many + &data(escaped) + &many,
                43,
            ),
            (
                many.clone() + &data("{\"total\":7}") + &data(last) + &many,
                42,
            ),
            (
                many.clone()
                    + &data(&format!(
                        "{{\"a\":{end}data: {last},{end}data: \"usage\":{{\"total\":44}}}}"
                    )),
                44,
            ),
        ] {
            for step in [1, 64, 127, 128, 200, 1000, body.len()] {
                let measured_cost = read(&at, &[], "text/event-stream", body.as_bytes(), step);
                assert_eq!(
                    measured_cost.map(|measured_cost| measured_cost.units),
                    Some(units),
                    "{step}: {body}"
                );
            }
        }
    }
    let line = "{\"text\":\"a \\\" } b\",\"usage\":null,\"c\":[{\"d\":1}]}\n".repeat(50);
    for (body, units) in [
        (line.clone() + last, 42),
        (line.clone() + last + "\n" + &line, 42),
        (
            line.clone() + last + "\n" + &line + escaped + "\n" + &line,
            43,
        ),
    ] {
        for step in [1, 64, 128, 200, 1000, body.len()] {
            let measured_cost = read(&at, &[], "application/x-ndjson", body.as_bytes(), step);
            assert_eq!(
                measured_cost.map(|measured_cost| measured_cost.units),
                Some(units),
                "{step}: {body}"
            );
        }
    }
}

/// Documents whose names are often those of the path.
fn values() -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("a".to_owned()), Just("b\"é".to_owned()), ".{0,3}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0_u32..100).prop_map(|n| Value::from(n.to_string())),
        ".{0,9}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let object = prop::collection::vec((name.clone(), inner.clone()), 0..5);
        prop_oneof![
            object.prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            prop::collection::vec(inner, 0..4).prop_map(Value::Array),
        ]
    })
}

/// What a parser finds in the whole document.
fn at(root: &Value, path: &[String]) -> Option<u32> {
    let value = path
        .iter()
        .try_fold(root, |value, name| value.as_object()?.get(name))?;
    match value {
        Value::Number(number) => parse_units(number.to_string().as_bytes()),
        Value::String(text) => parse_units(text.as_bytes()),
        _ => None,
    }
}

proptest! {
    #[test]
    fn any_document_reads_as_a_parser_reads_it(
        first in values(), second in values(), pretty in any::<bool>(), codings in 0_u8..4, step in 1_usize..40,
    ) {
        let paths = [path("a"), path("a.a"), path("b\"é.a.a")];
        let (wrap, coding) = match codings {
            0 => ("[", "identity"),
            1 => ("", "gzip"),
            2 => ("", "zstd"),
            _ => ("", "identity"),
        };
        let object = |value: Value| json!({ "a": value });
        let (first, second) = (object(first), object(second));
        let text = |value: &Value| match pretty {
            true => serde_json::to_string_pretty(value).unwrap(),
            false => value.to_string(),
        };
        let body = match wrap {
            "" => text(&first) + "\n" + &text(&second),
            _ => format!("[{},{}]", text(&first), text(&second)),
        };
        let bytes = packed(coding, body.as_bytes());
        let mut meter = CostMeter::new(paths.iter(), [coding.as_bytes()].into_iter(), Some(JSON.as_bytes()), 0);
        bytes.chunks(step).for_each(|piece| meter.feed(piece));
        meter.finish(true);
        for path in &paths {
            let expected = at(&second, path).or(at(&first, path));
            let measured_cost = meter.measured(path);
            prop_assert_eq!(measured_cost.map(|measured_cost| measured_cost.units), expected, "{:?} of {}", path, body);
            prop_assert!(measured_cost.is_none_or(|measured_cost| measured_cost.is_exact));
        }
    }

    #[test]
    fn whatever_comes_is_read_in_bounds(
        bytes in prop::collection::vec(any::<u8>(), 0..300), coding in 0_usize..5, step in 1_usize..50,
    ) {
        let coding = ["identity", "gzip", "deflate", "br", "zstd"][coding];
        read(&path("a.b"), &[coding], "text/event-stream", &bytes, step);
        let mut packed = packed(coding, &document(2000));
        for (offset, byte) in bytes.iter().enumerate() {
            let at = offset * 31 % packed.len();
            packed[at] ^= byte & 1;
        }
        read(&path("a.b"), &[coding], JSON, &packed, step);
    }

    #[test]
    fn any_structure_reads_alike_in_any_pieces(
        body in r#"(\{|\}|\[|\]|"|\\|:|,|a|"a":|1|\n|\r|data:| ){0,40}"#, step in 1_usize..9,
    ) {
        let path: JsonPath = Arc::from(["a".to_owned(), "a".to_owned()]);
        let whole = read(&path, &[], JSON, body.as_bytes(), 1000);
        prop_assert_eq!(read(&path, &[], JSON, body.as_bytes(), step), whole);
    }
}
