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
    // Nothing takes it by that method, or another upstream does.
    check(&site, ("POST", "/only"), "DELETE", 405, "");
    check(&site, ("POST", "/login"), "PUT", 400, "");
    site.recorder.take();
    // Where it makes no difference it goes on.
    let field = "X-HTTP-Method-Override: PATCH";
    assert_eq!(ask(&site, "POST", "/items/1", field).0, 200);
    let seen = site.recorder.take().requests.remove(0);
    assert_eq!(seen.all("x-http-method-override"), ["PATCH"]);
}

/// Neither route counts what the other counts, so no choice of one is safe.
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
    check(&site, ("POST", "/x"), "DELETE", 400, "");
    check(&site, ("POST", "/x"), "POST", 200, "post");
    assert_eq!(ask(&site, "DELETE", "/x", "x: y"), (200, "drop".into()));
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
