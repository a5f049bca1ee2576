//! Fields and parameters that name another method, host or path than the request's own: what frameworks may act on is
//! counted, or refused, or does not reach them.

use crate::case::Site;

const POLICIES: [(&str, &str); 5] = [
    (
        "login",
        "match: POST /login\nupstream: up\nlimits: { login: { key: ip, rate: 100000/h } }\n",
    ),
    (
        "drop",
        "match: DELETE /items/{id}\nupstream: up\nlimits: { drop: { key: ip, rate: 100000/h } }\n",
    ),
    ("any", "match: /items/**\nupstream: up\n"),
    ("only", "match: POST /only\nupstream: up\n"),
    ("other", "match: PUT /login\nupstream: far\n"),
];

const GATEWAY: &str = "upstreams: { up: [\"http://{upstream}\"], far: [\"http://{upstream}\"] }\n";

/// Ways to name a method.
const WAYS: [&str; 8] = [
    "{path} X-HTTP-Method-Override: {method}",
    "{path} x-http-method: {method}",
    "{path} X-Method-Override: {method}",
    "{path} X-HTTP-Method-Override: POST\r\nX-HTTP-Method-Override: {method}",
    "{path}?_method={method} x: y",
    "{path}?a=b&%5Fmethod={method}&c x: y",
    "{path}?.method=+{method} x: y",
    "{path}?_method={method}&_method=POST x: y",
];

/// The status, and the limit that counted the request.
fn ask(site: &Site, method: &str, target: &str, fields: &str) -> (u16, String) {
    let mut asker = site.connect();
    asker.send(format!(
        "{method} {target} HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n{fields}\r\n\r\n"
    ));
    let answer = asker.answer(false).unwrap();
    let limit = answer.field("ratelimit").unwrap_or_default();
    let limit = limit.split('"').nth(1).unwrap_or_default();
    (answer.status(), limit.to_owned())
}

#[track_caller]
fn check(site: &Site, (own, path): (&str, &str), other: &str, status: u16, limit: &str) {
    for way in WAYS {
        for other in [other.to_owned(), other.to_ascii_lowercase()] {
            let said = way.replace("{path}", path).replace("{method}", &other);
            let (target, fields) = said.split_once(' ').unwrap();
            let got = ask(site, own, target, fields);
            assert_eq!(got, (status, limit.to_owned()), "{own} {said}");
        }
    }
}

#[test]
fn methods_that_are_named_are_counted() {
    let site = Site::start(GATEWAY, &POLICIES);
    // As DELETE it is counted, as POST it is not: it is counted.
    check(&site, ("POST", "/items/1"), "DELETE", 200, "drop");
    check(&site, ("GET", "/items/1"), "DELETE", 200, "drop");
    check(&site, ("POST", "/items/1.json"), "DELETE", 200, "drop");
    // As POST it is counted, so it is whatever else it may be.
    check(&site, ("DELETE", "/items/1"), "POST", 200, "drop");
    check(&site, ("POST", "/items/1/x"), "DELETE", 200, "");
    check(&site, ("POST", "/items/1"), "PATCH", 200, "");
    // Nothing takes it by that method.
    check(&site, ("POST", "/only"), "DELETE", 405, "");
    // Another upstream does.
    check(&site, ("POST", "/login"), "PUT", 200, "login");
    check(&site, ("PUT", "/login"), "POST", 200, "login");
    site.recorder.take();
    // Where it makes no difference it goes on.
    let field = "X-HTTP-Method-Override: PATCH";
    assert_eq!(ask(&site, "POST", "/items/1", field).0, 200);
    let seen = site.recorder.take().requests.remove(0);
    assert_eq!(seen.all("x-http-method-override"), ["PATCH"]);
}

/// Bodies that name DELETE, each behind the field that says its type.
const BODIES: [(&str, &str); 23] = [
    (FORM, "_method=DELETE"),
    (FORM, "a=b&%5fmethod=delete"),
    (FORM, ".method=+DELETE+&_methods=x"),
    (FORM, "_method[]=DELETE"),
    ("", "_METHOD=DELETE"),
    ("content-type: multipart/form-data; boundary=x\r\n", PARTS),
    (
        "content-type: application/json\r\n",
        "{\"_method\":\"DELETE\"}",
    ),
    (
        "content-type: application/json\r\n",
        "{\"\\u005fmethod\":\"delete\"}",
    ),
    ("", "{\"_method\":\"DELETE\"}"),
    // It may be one to somebody.
    (FORM, "_method=DELETE&_method=POST"),
    (FORM, "a=b;_method=DELETE"),
    ("content-type: application/json\r\n", "{'_method':'DELETE'}"),
    // Some read JSON of any type, and text as a form.
    ("content-type: text/x-json\r\n", "{\"_method\":\"DELETE\"}"),
    ("content-type: text/plain\r\n", "{\"_method\":\"DELETE\"}"),
    (
        "content-type: application/octet-stream\r\n",
        " \r\n{ \"a\":1,\"_method\":\"DELETE\"}",
    ),
    (
        "content-type: image/png\r\n",
        "\u{feff}{\"_method\":\"DELETE\"}",
    ),
    (
        "content-type: application/jsonl\r\n",
        "{\"_method\":\"DELETE\"}",
    ),
    (
        "content-type: application/grpc+json\r\n",
        "{\"_method\":\"DELETE\"}",
    ),
    ("content-type: text/plain\r\n", "_method=DELETE"),
    ("content-type: text/plain\r\n", "a b=1&_method=DELETE"),
    (
        "content-type: application/x-ndjson\r\n",
        "{\"_method\":\"DELETE\"}",
    ),
    // Nobody waits for what these say, so that they may name any.
    ("content-type: application/grpc\r\n", "\0\0\0\0\x01x"),
    (
        "content-type: application/x-www-form-urlencodedx\r\n",
        "_method=DELETE",
    ),
];

const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";

const PARTS: &str =
    "--x\r\ncontent-disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--x--\r\n";

/// A POST with a body, in one piece or in chunks: the status, the limit, and the body that the upstream saw.
fn post(site: &Site, path: &str, fields: &str, body: &str, chunked: bool) -> (u16, String, String) {
    let mut asker = site.connect();
    let mut text = format!("POST {path} HTTP/1.1\r\nhost: t\r\n{fields}");
    if chunked {
        text += "transfer-encoding: chunked\r\n\r\n";
        for piece in body.as_bytes().chunks(1_000) {
            let piece = std::str::from_utf8(piece).unwrap();
            text += &format!("{:x}\r\n{piece}\r\n", piece.len());
        }
        text += "0\r\n\r\n";
    } else {
        text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    }
    asker.send(text);
    let answer = asker.answer(false).unwrap();
    let limit = answer.field("ratelimit").unwrap_or_default();
    let limit = limit.split('"').nth(1).unwrap_or_default();
    let seen = site.recorder.take().requests.pop();
    let seen = seen.map(|request| String::from_utf8_lossy(&request.body).into_owned());
    (answer.status(), limit.to_owned(), seen.unwrap_or_default())
}

#[test]
fn methods_that_bodies_name_are_counted() {
    let site = Site::start(GATEWAY, &POLICIES);
    for chunked in [false, true] {
        for (fields, body) in BODIES {
            let got = post(&site, "/items/1", fields, body, chunked);
            assert_eq!(got, (200, "drop".into(), body.into()), "{fields}{body}");
        }
        for (fields, body) in [
            (FORM, "a=b&method=DELETE"),
            (FORM, "_method=POST"),
            (FORM, "_method=PATCH"),
            (FORM, "_method="),
            (
                "content-type: application/json\r\n",
                "{\"method\":\"DELETE\"}",
            ),
            ("content-type: text/plain\r\n", "say _method=DELETE"),
            ("content-type: image/png\r\n", "_method=DELETE"),
            (
                "content-type: application/jsonl\r\n",
                "{\"a\":1}\n{\"_method\":\"DELETE\"}\n",
            ),
        ] {
            let got = post(&site, "/items/1", fields, body, chunked);
            assert_eq!(got, (200, String::new(), body.into()), "{fields}{body}");
        }
        // Another upstream takes it by that method, or nothing.
        for body in ["_method=PUT", "_method=DELETE", "a=b"] {
            assert_eq!(post(&site, "/login", FORM, body, chunked).1, "login");
        }
    }
    let expects = format!("{FORM}expect: 100-continue\r\n");
    let mut asker = site.connect();
    asker.send(format!(
        "POST /items/1 HTTP/1.1\r\nhost: t\r\n{expects}content-length: 14\r\n\r\n"
    ));
    // It is told to go on.
    asker.read();
    asker.send("_method=DELETE");
    let answer = asker.answer(false).unwrap();
    assert!(answer.field("ratelimit").unwrap().starts_with("\"drop\""));
}

/// Which of several methods a framework takes differs: Symfony that of the body, others that of the query or of a field.
#[test]
fn methods_that_are_named_in_two_places() {
    let limited = |method: &str| {
        format!(
            "match: {method} /items/{{id}}\nupstream: up\nlimits: {{ {method}: {{ key: ip, rate: 9/h }} }}\n"
        )
        .replace(&format!("{{ {method}:"), "{ one:")
    };
    let (delete, put) = (limited("DELETE"), limited("PUT"));
    let any = "match: /items/**\nupstream: up\n";
    let site = Site::start(
        GATEWAY,
        &[
            ("delete", &delete),
            ("put", &put),
            ("any", any),
            POLICIES[4],
        ],
    );
    for (target, field) in [
        ("/items/1?_method=DELETE", ""),
        ("/items/1", "X-HTTP-Method-Override: DELETE\r\n"),
    ] {
        for (kind, body) in [
            (FORM, "_method=PUT"),
            (
                "content-type: application/x-www-form-urlencoded x\r\n",
                "_method=PUT",
            ),
            (
                "content-type: application/x-www-form-urlencoded,x; a=\"b\"\r\n",
                "_method=PUT",
            ),
        ] {
            let fields = format!("{field}{kind}");
            let (status, ..) = post(&site, target, &fields, body, false);
            assert_eq!(status, 200, "{target} {fields}");
        }
        let fields = format!("{field}{FORM}");
        assert_eq!(post(&site, target, &fields, "a=b", false).0, 200);
    }
    // Eight for DELETE, six of them for PUT.
    let left = |method: &str| {
        let mut asker = site.connect();
        asker.send(format!("{method} /items/1 HTTP/1.1\r\nhost: t\r\n\r\n"));
        let answer = asker.answer(false).unwrap();
        let left = answer.field("ratelimit").unwrap_or_default().to_owned();
        left.split(';').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!([left("DELETE"), left("PUT")], ["r=0", "r=2"]);
}

/// What cannot be searched may name any method: it is counted by all routes that it may lead to.
#[test]
fn bodies_that_hide_a_method() {
    let site = Site::start(GATEWAY, &POLICIES);
    let long = format!("f={}&_method=DELETE", "x".repeat(1_100_000));
    let coded = format!("{FORM}content-encoding: gzip\r\n");
    for chunked in [false, true] {
        let got = post(&site, "/items/1", FORM, &long, chunked);
        assert!(
            got == (200, "drop".into(), long.clone()),
            "{} {}",
            got.0,
            got.1
        );
        let got = post(&site, "/items/1", &coded, "x", chunked);
        assert_eq!(got, (200, "drop".into(), "x".into()));
        // Whatever upstream takes them by that method.
        assert_eq!(post(&site, "/login", FORM, &long, chunked).1, "login");
        assert_eq!(post(&site, "/login", &coded, "x", chunked).1, "login");
        let object = format!("{{\"f\":\"{}\"}}", "x".repeat(1_100_000));
        let plain = "content-type: text/plain\r\n";
        assert_eq!(post(&site, "/items/1", plain, &object, chunked).1, "drop");
        let packed = "content-type: image/png\r\ncontent-encoding: gzip\r\n";
        assert_eq!(post(&site, "/items/1", packed, "x", chunked).1, "drop");
        assert_eq!(post(&site, "/items/1", plain, &long, chunked).1, "drop");
        // No fields, or no other route.
        let lines = "{\"f\":\"x\"}\n".repeat(100_000);
        for (plain, body) in [
            ("application/octet-stream", &long),
            ("application/x-ndjson", &long),
            ("application/x-ndjson", &lines),
        ] {
            let plain = format!("content-type: {plain}\r\n");
            assert_eq!(post(&site, "/items/1", &plain, body, chunked).1, "");
        }
        let image = "\0".repeat(1_100_000);
        let disk = "content-type: application/octet-stream\r\n";
        assert_eq!(post(&site, "/items/1", disk, &image, chunked).1, "");
        let pushed = "content-type: application/x-protobuf\r\ncontent-encoding: snappy\r\n";
        assert_eq!(post(&site, "/items/1", pushed, "x", chunked).1, "drop");
        let got = post(&site, "/items/1/x", FORM, &long, chunked);
        assert_eq!((got.0, got.1), (200, String::new()));
    }
    // Where the operator says that no upstream reads them, bodies are not looked at.
    let exact = Site::start(&format!("{GATEWAY}paths: exact\n"), &POLICIES);
    let got = post(&exact, "/login", FORM, &long, false);
    assert_eq!((got.0, &*got.1), (200, "login"));
    let got = post(&exact, "/items/1", FORM, "_method=DELETE", false);
    assert_eq!((got.0, &*got.1), (200, ""));
}

#[test]
fn uploads_that_hide_a_method_are_counted_by_all() {
    let policies = [
        (
            "post",
            "match: POST /files/{id}\nupstream: up\nlimits: { post: { key: ip, rate: 100/h } }\n",
        ),
        (
            "drop",
            "match: DELETE /files/{id}\nupstream: up\nlimits: { drop: { key: ip, rate: 5/h } }\n",
        ),
        (
            "rest",
            "match: /**\nupstream: up\nrequire: token\nlimits: { rest: { key: token, rate: 7/h } }\n",
        ),
    ];
    let site = Site::start("identity: { token: { header: x-key } }\n", &policies);
    let remaining = |method: &str, path: &str, fields: &str, body: &str| {
        let mut asker = site.connect();
        asker.send(format!(
            "{method} {path} HTTP/1.1\r\nhost: t\r\n{fields}content-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let answer = asker.answer(false).unwrap();
        let left = answer.field("ratelimit").unwrap_or_default().to_owned();
        (answer.status(), left)
    };
    let upload = "f".repeat(1_100_000);
    let coded = "x-key: a\r\ncontent-encoding: gzip\r\n";
    let long = format!("x-key: a\r\n{FORM}");
    for (round, (fields, body)) in [(coded, "x"), (&*long, &*upload), (coded, "x")]
        .into_iter()
        .enumerate()
    {
        assert_eq!(remaining("POST", "/files/1", fields, body).0, 200);
        let (_, post) = remaining("POST", "/files/1", "", "");
        let left = 100 - 2 * (round + 1);
        assert!(post.contains(&format!("\"post\";r={left};")), "{post}");
    }
    assert!(
        remaining("DELETE", "/files/1", "", "")
            .1
            .starts_with("\"drop\";r=1;")
    );
    // Without what one of them requires none serves it, and all count it that can.
    let anonymous = "content-encoding: gzip\r\n";
    assert_eq!(remaining("POST", "/files/1", anonymous, "x").0, 401);
    for _ in 0..2 {
        let (status, told) = remaining("POST", "/files/1", coded, "x");
        assert_eq!(status, 429);
        assert!(told.starts_with("\"drop\""), "{told}");
    }
    assert_eq!(remaining("POST", "/files/1", "", "").0, 200);
    let (status, rest) = remaining("GET", "/other", "x-key: a\r\n", "");
    assert_eq!(status, 200);
    assert!(rest.contains("\"rest\";r=3;"), "{rest}");
}

/// WordPress takes the path of a form before that of the query.
#[test]
fn paths_that_bodies_name_to_wordpress() {
    let users = "match: POST /wp-json/wp/v2/users\nupstream: up\nlimits: { users: { key: ip, rate: 100000/h } }\n";
    let site = Site::start(
        "",
        &[("users", users), ("rest", "match: /**\nupstream: up\n")],
    );
    let coded = format!("{FORM}content-encoding: gzip\r\n");
    let parts = PARTS
        .replace("_method", "rest_route")
        .replace("DELETE", "/wp/v2/users");
    for path in ["/", "/index.php", "/a?x=y"] {
        for chunked in [false, true] {
            for (fields, body) in [
                (FORM, "rest_route=/wp/v2/users"),
                (FORM, "a=b&rest%5froute=%2Fwp/v2//users/"),
                (FORM, "[rest_route=/wp/v2/users/../users"),
                ("content-type: multipart/form-data; boundary=x\r\n", &*parts),
                (&coded, "x"),
            ] {
                let got = post(&site, path, fields, body, chunked);
                assert_eq!(
                    got,
                    (200, "users".into(), body.into()),
                    "{path} {fields}{body}"
                );
            }
            for (fields, body) in [
                (FORM, "rest_route=/wp/v2/posts"),
                (FORM, "a=b"),
                ("content-type: image/png\r\n", "rest_route=/wp/v2/users"),
            ] {
                let got = post(&site, path, fields, body, chunked);
                assert_eq!((got.0, &*got.1), (200, ""), "{path} {fields}{body}");
            }
        }
    }
}

/// Neither route counts what the other counts, so both count.
#[test]
fn limits_that_depend_on_the_method_that_is_believed() {
    let policies = [
        (
            "post",
            "match: POST /x\nupstream: up\nlimits: { post: { key: ip, rate: 100000/h } }\n",
        ),
        (
            "drop",
            "match: DELETE /x\nupstream: up\nlimits: { drop: { key: ip, rate: 100000/h } }\n",
        ),
    ];
    let site = Site::start("", &policies);
    check(&site, ("POST", "/x"), "DELETE", 200, "post");
    check(&site, ("POST", "/x"), "POST", 200, "post");
    let left = |method: &str| {
        let mut asker = site.connect();
        asker.send(format!("{method} /x HTTP/1.1\r\nhost: t\r\n\r\n"));
        let answer = asker.answer(false).unwrap();
        answer.field("ratelimit").unwrap_or_default().to_owned()
    };
    // Each way as it is and in small letters.
    let named = 2 * WAYS.len();
    let drop = format!("\"drop\";r={};", 100_000 - named - 1);
    assert!(left("DELETE").starts_with(&drop));
    let post = format!("\"post\";r={};", 100_000 - 2 * named - 1);
    assert!(left("POST").starts_with(&post));
    let many = "X-HTTP-Method: a, b, c, d, e";
    assert_eq!(ask(&site, "POST", "/x", many).0, 400);
}

/// Only trusted proxies may name another host or path; nobody by a name that CGI takes for such a field's.
#[test]
fn hosts_and_paths_that_strangers_name() {
    let fields = [
        "X-Original-URL",
        "X-Original-URI",
        "X-Original-Path",
        "X-Original-Host",
        "X-Rewrite-URL",
        "X-Override-URL",
        "X-Host",
        "X-HTTP-Host-Override",
        "X-Envoy-Original-Path",
        "X-WAWS-Unencoded-URL",
        "X-Script-Name",
        "X-Forwarded-Prefix",
        "X-Forwarded-Path",
        "X-Forwarded-Server",
        "Script-Name",
    ];
    let all = ("all", "match: /**\nupstream: up\n");
    for (gateway, trusted) in [
        ("", false),
        (
            "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n",
            true,
        ),
    ] {
        let site = Site::start(gateway, &[all]);
        for field in fields {
            let merged = field.replace('-', "_");
            let lines = format!("{field}: /login\r\n{merged}: /login");
            assert_eq!(ask(&site, "GET", "/a", &lines).0, 200);
            let seen = site.recorder.take().requests.remove(0);
            let field = field.to_ascii_lowercase();
            assert_eq!(!seen.all(&field).is_empty(), trusted, "{field}");
            let gunicorns = trusted && field == "script-name";
            let merged = merged.to_ascii_lowercase();
            assert_eq!(!seen.all(&merged).is_empty(), gunicorns, "{merged}");
        }
    }
}
