//! Costs that requests state: taken at admission, before an upstream works, and never twice.

use super::common::http2;
use super::common::{Client, Upstream};
use super::*;

const JSON: &str = "content-type: application/json\r\n";

/// Sends a POST with this body and these fields.
fn post(client: &mut Client, fields: &str, body: impl AsRef<[u8]>) {
    post_to(client, "/a", fields, body);
}

fn post_to(client: &mut Client, target: &str, fields: &str, body: impl AsRef<[u8]>) {
    let length = body.as_ref().len();
    client.send(format!(
        "POST {target} HTTP/1.1\r\nhost: t\r\n{fields}content-length: {length}\r\n\r\n"
    ));
    client.send(body);
}

fn site(count: &str) -> Site {
    let limit = format!("units: {{ key: ip, rate: 100/h, count: {count} }}");
    Site::start("", &[&limit], Upstream::plain())
}

/// What one request takes of 100 an hour; `None` if it is refused with 400 and reaches no server.
#[track_caller]
fn check(count: &str, fields: &str, body: impl AsRef<[u8]>, expected: Option<u32>) {
    check_target(count, "/a", fields, body, expected);
}

#[track_caller]
fn check_target(
    count: &str,
    target: &str,
    fields: &str,
    body: impl AsRef<[u8]>,
    expected: Option<u32>,
) {
    let site = site(count);
    let mut client = site.gateway.connect();
    post_to(&mut client, target, fields, &body);
    let answer = client.answer();
    let start = &body.as_ref()[..body.as_ref().len().min(100)];
    let what = format!("{count}, {target} {fields}{}", start.escape_ascii());
    match expected {
        Some(units) => {
            assert_eq!(answer.status(), 200, "{what}: {}", answer.text());
            assert_eq!(told(&answer), format!("units {}", 100 - units), "{what}");
            assert_eq!(site.upstream.next().body, body.as_ref(), "{what}");
        }
        None => {
            assert_eq!(answer.status(), 400, "{what}");
            assert!(site.upstream.drain().is_empty(), "{what}");
            // Such a request uses nothing.
            assert_eq!(told(&site.get("")), "units 99", "{what}");
        }
    }
}

#[test]
fn the_number_in_a_request() {
    let count = "cost request json n";
    for (body, units) in [
        ("{\"n\": 7}", Some(7)),
        ("{\"n\": \"7\"}", Some(7)),
        ("{\"n\": 2.1}", Some(3)),
        ("{\"n\": 1e1}", Some(10)),
        ("{\"n\": 100}", Some(100)),
        // A request costs at least one unit.
        ("{\"n\": 0}", Some(1)),
        ("{\"n\": 0.001}", Some(1)),
        ("{\"n\": null}", Some(1)),
        ("{}", Some(1)),
        ("", Some(1)),
        // Some frameworks take other spellings for the name, and one element for the list.
        ("{\"N\": 7}", Some(7)),
        ("{\"n\": [7]}", Some(7)),
        ("[{\"n\": 7}]", Some(7)),
        // The number could be read in two ways.
        ("{\"n\": -7}", None),
        ("{\"n\": \"7 apples\"}", None),
        ("{\"n\": true}", None),
        // Some readers end a number at its exponent.
        ("{\"n\": 100e-2}", Some(1)),
        ("{\"n\": \"100e-2\"}", None),
        ("{\"n\": \"inf\"}", None),
        ("{\"n\": \"+7.5\"}", Some(8)),
        ("{\"n\": \"7.\"}", None),
        ("{\"n\": 1, \"n\": 70}", None),
        ("{\"n\": 1, \"N\": 70}", None),
        ("{\"n\": [1, 70]}", None),
        ("[{\"n\": 1}, {\"n\": 1}]", None),
        ("{\"n\": 1}{\"n\": 70}", None),
        ("{\"n\": 1} // 70", None),
        ("{n: 70}", None),
        ("no JSON", None),
        ("\u{0}{\u{0}}", None),
    ] {
        check(count, JSON, body, units);
    }
    for (fields, body, units) in [
        ("content-type: text/plain\r\n", "{\"n\": 7}", Some(7)),
        ("", "{\"n\": 7}", Some(7)),
        ("content-type: image/png\r\n", "{\"n\": 7}", Some(7)),
        // A format in which no number is looked for.
        ("content-type: image/png\r\n", "\u{89}PNG\r\n", None),
        ("content-type: text/plain\r\n", "no JSON", None),
        ("content-type: application/xml\r\n", "<n>7</n>", None),
        ("content-type: application/yaml\r\n", "n: 7", None),
        ("content-type: application/cbor\r\n", "\u{1}an\u{7}", None),
        ("content-type: application/xml\r\n", "", Some(1)),
        // Frameworks read forms as they read JSON.
        (
            "content-type: application/x-www-form-urlencoded\r\n",
            "n=7",
            Some(7),
        ),
        (
            "content-type: application/x-www-form-urlencoded\r\n",
            "n=1&n=7",
            None,
        ),
        (
            "content-type: application/x-www-form-urlencoded\r\n",
            "n=100e-2",
            None,
        ),
        (
            "content-type: multipart/form-data; boundary=x\r\n",
            "--x\r\ncontent-disposition: form-data; name=\"n\"\r\n\r\n7\r\n--x--\r\n",
            Some(7),
        ),
        (
            "content-type: application/json; charset=utf-16\r\n",
            "{}",
            None,
        ),
        ("content-encoding: gzip\r\n", "{\"n\": 7}", None),
        ("content-encoding: identity\r\n", "{\"n\": 7}", Some(7)),
    ] {
        check(count, fields, body, units);
    }
    check(
        "cost request json a.b",
        JSON,
        "{\"a\": {\"b\": 5}}",
        Some(5),
    );
    let pad = "a".repeat(1024 * 1024 - 20);
    check(
        count,
        JSON,
        format!("{{\"pad\": \"{pad}\",\"n\": 7}}"),
        Some(7),
    );
    let pad = "a".repeat(1024 * 1024);
    check(
        count,
        JSON,
        format!("{{\"n\": 7, \"pad\": \"{pad}\"}}"),
        None,
    );
}

/// Many frameworks read the query, cookies and the body as one.
#[test]
fn the_number_in_the_query_and_in_cookies() {
    let count = "cost request json n";
    for (target, fields, body, units) in [
        ("/a?n=7", "", "", Some(7)),
        ("/a?n=7", JSON, "{}", Some(7)),
        ("/a?n=7", JSON, "{\"n\": 7}", Some(7)),
        ("/a?n=7", JSON, "{\"n\": 1}", None),
        ("/a?n=1&n=7", "", "", None),
        ("/a?n=1e1", "", "", None),
        ("/a;n=7", "", "", None),
        ("/a?n=1", JSON, "{\"n\": 7}", None),
        ("/a?m=7", JSON, "{}", Some(1)),
        ("/a", "cookie: n=7\r\n", "", Some(7)),
        (
            "/a",
            "cookie: n=7\r\ncontent-type: application/json\r\n",
            "{\"n\": 1}",
            None,
        ),
        ("/a?n=7", "cookie: n=1\r\n", "", None),
    ] {
        check_target(count, target, fields, body, units);
    }
    check_target("cost request json a.b", "/a?a[b]=5", JSON, "{}", Some(5));
}

#[test]
fn a_cost_is_taken_whole_or_not_at_all() {
    for algorithm in [
        "sliding-log",
        "sliding-window",
        "multi-level",
        "fixed-window",
        "gcra",
    ] {
        let site = site(&format!("cost request json n, algorithm: {algorithm}"));
        // One connection, so that it could remember an earlier decision.
        let mut client = site.gateway.connect();
        let mut ask = |n: u32| {
            post(&mut client, JSON, format!("{{\"n\": {n}}}"));
            client.answer()
        };
        assert_eq!(told(&ask(60)), "units 40", "{algorithm}");
        let refused = ask(41);
        assert_eq!(violated(&refused), ["units"], "{algorithm}");
        assert!(refused.field("retry-after").is_some(), "{algorithm}");
        assert_eq!(violated(&ask(41)), ["units"], "{algorithm}");
        assert_eq!(told(&ask(40)), "units 0", "{algorithm}");
        assert_eq!(violated(&ask(1)), ["units"], "{algorithm}");
        assert_eq!(violated(&ask(1)), ["units"], "{algorithm}");
        // More than the limit ever has.
        assert_eq!(violated(&ask(101)), ["units"], "{algorithm}");
        site.pass(Nanos::from_secs(2 * 3600));
        assert_eq!(told(&ask(100)), "units 0", "{algorithm}");
        assert_eq!(site.upstream.drain().len(), 3, "{algorithm}");
    }
}

#[test]
fn costs_of_requests_over_http2() {
    http2::run(async {
        let site = site("cost request json n");
        let mut client = http2::Client::connect(site.gateway.address).await;
        for (body, status) in [
            ("{\"n\":60}", 200),
            ("{\"n\":41}", 429),
            ("{\"n\":40}", 200),
        ] {
            let request = http2::request("POST", "/a").body(()).unwrap();
            let (answer, mut stream) = client.begin(request, false);
            stream.send_data(body.into(), true).unwrap();
            assert_eq!(answer.await.unwrap().status(), status, "{body}");
        }
    });
}

#[test]
fn the_items_of_a_batch() {
    let count = "cost request items";
    for (body, units) in [
        ("[{}, {}, {}]", Some(3)),
        ("[1, [2, 3], {\"a\": [4, 5]}]", Some(3)),
        ("{}", Some(1)),
        ("{\"batch\": [1, 2]}", Some(1)),
        ("[]", Some(1)),
        ("[{}]", Some(1)),
        ("7", Some(1)),
        ("\"text\"", Some(1)),
        ("no JSON", Some(1)),
        ("", Some(1)),
        ("  ", Some(1)),
        // The text of a GraphQL query begins as an object.
        ("{ user { id, name } }", None),
        // Some servers skip what stands before a document.
        (" \r\n[{}, {}]", Some(2)),
        ("\u{feff}[{}, {}]", Some(2)),
        // Some read all documents, or the first.
        ("{}\n{}\n{}\n", Some(3)),
        ("[{}, {}]{}[{}]", Some(4)),
        ("\u{1e}{}\n\u{1e}{}\n", Some(2)),
        // What is no document could hide others.
        ("{}{} and more", None),
        ("{bad\n{\"a\": 1}\n{\"a\": 2}", None),
        ("7 apples", None),
        // A lenient server may read an array here.
        ("[{}, {},]", None),
        ("[{}, {}] and more", None),
        ("/* a */ // b\n [{}, {}]", None),
        ("[{a: 1}, {}]", None),
        ("[\u{0}]\u{0}", None),
        // But none here.
        ("// [{}]", Some(1)),
        ("/* a */ no JSON", Some(1)),
        ("/* a */ {a: 1}", None),
        // Lenient readers skip the blanks of Unicode.
        ("\u{a0}[{}, {}]", None),
        ("\u{2003}[{}, {}]", None),
        ("\u{3000}\n[{}, {}]", None),
        ("\u{2028}/* a */\u{a0}[{}, {}]", None),
        (" \u{feff}\u{feff}[{}, {}]", Some(2)),
        ("\u{a0}no JSON", Some(1)),
        // PHP reads lists so, and Rails arrays.
        ("{\"0\": {}, \"1\": {}}", None),
        ("{\"\\u0030\": {}}", None),
        ("{\"a\": 1, \"_json\": [{}, {}]}", None),
        ("{}{\"_json\": [{}, {}]}", None),
        ("{\"a\": {\"0\": {}}, \"json\": 1, \"10\": 2}", Some(1)),
    ] {
        check(count, JSON, body, units);
    }
    check(count, "", b"\xff\xfe[\0{\0}\0]\0", None);
    let kinds = [
        "text/plain",
        "image/png",
        "application/x-www-form-urlencoded",
    ];
    for kind in kinds {
        let kind = format!("content-type: {kind}\r\n");
        check(count, &kind, "[{}, {}]", Some(2));
    }
    check(count, "", "[{}, {}]", Some(2));
    check(
        count,
        "content-type: application/json; charset=utf-7\r\n",
        "+AFs-",
        None,
    );
    check(count, "content-encoding: br\r\n", "[{}, {}]", None);
    let part = |name: &str, text: &str| {
        format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
    };
    let multipart = "content-type: multipart/form-data; boundary=x\r\n";
    let operations = part("operations", "[{}, {}, {}]");
    for (parts, units) in [
        (operations.clone(), Some(3)),
        (part("operations", "{}"), Some(1)),
        (part("other", "[{}, {}, {}]"), Some(1)),
        (format!("{operations}{operations}"), None),
        (part("operations", "{\"0\": {}}"), None),
        (part("0[query]", "a") + &part("1[query]", "b"), None),
        (part("_json[][query]", "a"), None),
        // Uploads of GraphQL number their files.
        (
            part("operations", "{}") + &part("0\"; filename=\"a", "a"),
            Some(1),
        ),
    ] {
        check(count, multipart, format!("{parts}--x--\r\n"), units);
    }
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    for (body, units) in [
        ("a=0&b=_json", Some(1)),
        ("0[query]=a&1[query]=b", None),
        ("%30%5Bquery%5D=a", None),
        ("a=1&_json[][query]=a", None),
    ] {
        check(count, form, body, units);
        check(count, "", body, units);
    }
    for (target, units) in [
        ("/a?query=0", Some(1)),
        ("/a?0[query]=a&1[query]=b", None),
        ("/a?_json[][query]=a", None),
        ("/a?%5Fjson%5B%5D[query]=a", None),
    ] {
        check_target(count, target, "", "", units);
        check_target(count, target, JSON, "{}", units);
    }
    // Behind the first MiB there may be more items, but a body that begins as no JSON has none.
    let long = "a".repeat(1024 * 1024);
    check(count, JSON, format!("[{{}}, \"{long}\"]"), None);
    check(count, JSON, format!("{{\"a\": \"{long}\"}}"), None);
    check(count, "", " ".repeat(1024 * 1024 + 1), None);
    for first in ["0", "-1", "\"a\"", "true", "false", "null", "\u{a0}{}"] {
        check(count, JSON, format!("{first} [{{}}, \"{long}\"]"), None);
    }
    check(count, form, format!("a={long}&0[query]=a"), None);
    check(
        count,
        "content-type: video/mp4\r\n",
        format!("\0\0\0 ftyp{long}"),
        Some(1),
    );
    check(count, multipart, part("file", &long), None);
    check(count, "content-type: image/png\r\n", &long, Some(1));
}

#[test]
fn a_batch_is_admitted_whole_or_not_at_all() {
    let site = site("cost request items");
    let mut client = site.gateway.connect();
    let mut ask = |items: usize| {
        post(
            &mut client,
            JSON,
            format!("[{}]", vec!["{}"; items].join(",")),
        );
        client.answer()
    };
    assert_eq!(told(&ask(99)), "units 1");
    assert_eq!(violated(&ask(2)), ["units"]);
    assert_eq!(told(&ask(1)), "units 0");
    assert_eq!(violated(&ask(101)), ["units"]);
    assert_eq!(site.upstream.drain().len(), 2);
}

/// Many frameworks read JSON whatever the content type.
#[test]
fn a_batch_under_the_name_of_a_stream_is_counted() {
    let stream = "content-type: application/grpc\r\n";
    check("cost request items", stream, "[{}, {}, {}]", Some(3));
    check("cost request items", stream, "\0\0\0\0\u{2}ab", Some(1));
}

#[test]
fn a_shadow_limit_refuses_nothing() {
    for count in ["cost request items", "cost request json n"] {
        let site = site(&format!("{count}, mode: shadow"));
        let mut client = site.gateway.connect();
        for body in ["[{\"n\": 1}, {\"n\": 2},]", "{\"n\": -1, \"0\": 2"] {
            post(&mut client, JSON, body);
            assert_eq!(client.answer().status(), 200, "{count} {body}");
        }
        post_to(&mut client, "/a?n=x&0=1", "", "");
        assert_eq!(client.answer().status(), 200, "{count}");
        assert_eq!(site.decisions("units"), [3, 0, 0, 0], "{count}");
    }
}

/// The refusal of an unclear cost counts by the fields of the body, as others do.
#[test]
fn refusals_of_unclear_costs_count_by_fields_of_the_body() {
    let identity = "identity: { email: { body: email } }\n";
    let limits = [
        "units: { key: ip, rate: 100/h, count: cost request json n }",
        "bad: { key: email, rate: 2/h, count: status 400 }",
    ];
    let site = Site::start(identity, &limits, Upstream::plain());
    let ask = |email: &str| {
        let mut client = site.gateway.connect();
        post(
            &mut client,
            JSON,
            format!("{{\"email\": \"{email}\", \"n\": -1}}"),
        );
        client.answer().status()
    };
    assert_eq!([(); 3].map(|()| ask("a@b.example")), [400, 400, 429]);
    assert_eq!(ask("c@b.example"), 400);
}
