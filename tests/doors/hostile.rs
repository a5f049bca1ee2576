//! What clients send to a proxy that asks, in order to get around their limits.

use tollgate::http::http1::MAX_TARGET_BYTES;

use super::{Asker, DOOR, start};

/// Answers that admit nothing.
fn is_refused(status: u16) -> bool {
    (400..600).contains(&status)
}

#[test]
fn descriptions_that_are_not_clear_are_refused() {
    let gateway = start(DOOR, &[("api", "match: /**\n")]);
    let forwarded = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n";
    let original = "X-Original-Method: GET\r\nX-Original-URI: /\r\n";
    let cases = [
        String::new(),
        "X-Forwarded-Method: GET\r\n".into(),
        "X-Forwarded-Uri: /\r\n".into(),
        "X-Original-Method: GET\r\n".into(),
        "X-Original-URI: /\r\n".into(),
        "X-Original-Method: GET\r\nX-Forwarded-Uri: /\r\n".into(),
        format!("{forwarded}{original}"),
        format!("{forwarded}X-Original-Method: GET\r\n"),
        format!("{original}X-Forwarded-Uri: /other\r\n"),
        format!("{forwarded}X-Forwarded-Uri: /\r\n"),
        format!("{forwarded}X-Forwarded-Method: POST\r\n"),
        format!("{original}x-original-uri: /other\r\n"),
        format!("{original}X-Original-URL: http://a.example/\r\n"),
        "X-Forwarded-Method: G T\r\nX-Forwarded-Uri: /\r\n".into(),
        "X-Forwarded-Method: get\r\nX-Forwarded-Uri: /\r\n".into(),
        "X-Forwarded-Method: CONNECT\r\nX-Forwarded-Uri: a.example:443\r\n".into(),
        "X-Forwarded-Method: GET, POST\r\nX-Forwarded-Uri: /\r\n".into(),
        "X-Forwarded-Method: \r\nX-Forwarded-Uri: /\r\n".into(),
        "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: \r\n".into(),
        "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: a\r\n".into(),
        "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: *\r\n".into(),
        "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: http://a.example/\r\n".into(),
        "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /a#b\r\n".into(),
        "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /a b\r\n".into(),
        format!(
            "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /{}\r\n",
            "a".repeat(MAX_TARGET_BYTES)
        ),
        format!("{forwarded}X-Forwarded-Host: a.example\r\nX-Forwarded-Host: b.example\r\n"),
        format!("{forwarded}X-Forwarded-Host: a b\r\n"),
        format!("{forwarded}X-Forwarded-Host: u@a.example\r\n"),
    ];
    for fields in cases {
        let status = Asker::of(&gateway).ask_at("/", &fields).status();
        assert!(is_refused(status), "{status}: {fields:.200}");
    }
}

#[test]
fn only_trusted_proxies_may_ask() {
    let elsewhere = DOOR.replace("[127.0.0.1]", "[127.0.0.2]");
    let gateway = start(&elsewhere, &[("api", "match: /**\n")]);
    let answer = Asker::of(&gateway).ask("GET", "/", "");
    assert_eq!(answer.status(), 400);
    assert!(
        answer.text().contains("trusted_proxies"),
        "{}",
        answer.text()
    );
}

/// The server behind the proxy that asks may have the requests of all policies.
#[test]
fn no_other_spelling_of_a_path_evades_its_limits() {
    let policies = [
        ("all", "match: /**\n"),
        (
            "login",
            "match: POST /login\nlimits: { tries: { key: everyone, rate: 3/h } }\n",
        ),
    ];
    let spellings = [
        "/LOGIN",
        "/login/",
        "//login",
        "/./login",
        "/a/../login",
        "/%6cogin",
        "/login;a=b",
        "/login.json",
        "/login%2f",
        "/login?a",
    ];
    for spelling in spellings {
        let gateway = start(DOOR, &policies);
        let mut proxy = Asker::of(&gateway);
        let statuses: Vec<u16> = (0..4)
            .map(|_| proxy.ask("POST", spelling, "").status())
            .collect();
        assert!(is_refused(statuses[3]), "{spelling}: {statuses:?}");
    }
}

#[test]
fn policies_on_other_upstreams_hold_for_proxies_that_ask() {
    let file = format!(
        "listen: 127.0.0.1:0\nupstreams: {{ a: [\"http://127.0.0.1:9\"], b: [\"http://127.0.0.1:9\"] }}\n{DOOR}"
    );
    let policies = [
        ("all", "match: /**\nupstream: a\n"),
        (
            "login",
            "match: /login\nupstream: b\nlimits: { tries: { key: everyone, rate: 1/h } }\n",
        ),
    ];
    let gateway = start(&file, &policies);
    let door = gateway.app.addresses()[1].tcp().unwrap();
    let mut proxy = Asker(super::Client::connect(door));
    assert_eq!(proxy.ask("GET", "/Login", "").status(), 200);
    assert_eq!(proxy.ask("GET", "/LOGIN", "").status(), 429);
}

#[test]
fn other_methods_count_where_a_server_may_read_them() {
    let policies = [
        ("all", "match: /**\n"),
        (
            "delete",
            "match: DELETE /items/*\nlimits: { deletes: { key: everyone, rate: 1/h } }\n",
        ),
    ];
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let json = "Content-Type: application/json\r\n";
    let overridden = "X-HTTP-Method-Override: DELETE\r\n";
    for (uri, fields) in [
        ("/items/1", form),
        ("/items/1", overridden),
        ("/items/1?_method=DELETE", json),
    ] {
        let gateway = start(DOOR, &policies);
        let mut proxy = Asker::of(&gateway);
        assert_eq!(proxy.ask("POST", uri, fields).status(), 200, "{fields}");
        assert_eq!(proxy.ask("POST", uri, fields).status(), 429, "{fields}");
    }
}

/// None of these may look like an admission: the proxy would send the request to its server.
#[test]
fn responses_of_the_gateway_itself_admit_nothing() {
    let file = format!(
        "{DOOR}usage: /left\ncors: {{ origins: https://app.example }}\ndeny: {{ ip: [192.0.2.9], silent: true }}\n"
    );
    let policies = [
        (
            "all",
            "match: /**\nlimits: { few: { key: ip, rate: 1/h } }\n",
        ),
        (
            "fixed",
            "match: /fixed\nrespond: { status: 200, body: closed }\n",
        ),
        (
            "moved",
            "match: /moved\nredirect: https://www.example.com\n",
        ),
    ];
    let gateway = start(&file, &policies);
    let mut proxy = Asker::of(&gateway);
    assert_eq!(proxy.ask("GET", "/left", "").status(), 403);
    assert_eq!(proxy.ask("GET", "/fixed", "").status(), 403);
    let moved = proxy.ask("GET", "/moved", "");
    assert_eq!(moved.status(), 308);
    assert_eq!(
        moved.field("location"),
        Some("https://www.example.com/moved")
    );
    let denied = proxy.ask("GET", "/", "X-Forwarded-For: 192.0.2.9\r\n");
    assert_eq!(denied.status(), 403);
    // A preflight is a request like any other, which a server may act upon.
    let preflight = "Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\nX-Forwarded-For: 192.0.2.1\r\n";
    assert_eq!(proxy.ask("OPTIONS", "/", preflight).status(), 200);
    let refused = proxy.ask("OPTIONS", "/", preflight);
    assert_eq!(refused.status(), 429);
    assert_eq!(
        refused.field("access-control-allow-origin"),
        Some("https://app.example")
    );
}

/// What passes as a check must not be read as two.
#[test]
fn bodies_and_upgrades_of_a_check_do_no_harm() {
    let gateway = start(
        DOOR,
        &[(
            "api",
            "match: /**\nlimits: { few: { key: everyone, rate: 3/h } }\n",
        )],
    );
    let mut proxy = Asker::of(&gateway);
    let described = "X-Forwarded-Method: POST\r\nX-Forwarded-Uri: /\r\n";
    let with_body = format!("{described}Content-Length: 5\r\n\r\nhello");
    let head = format!("GET / HTTP/1.1\r\nHost: a.example\r\n{with_body}");
    proxy.0.send(head);
    assert_eq!(proxy.0.answer().status(), 200);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    assert_eq!(proxy.ask("GET", "/", upgrade).status(), 200);
    assert_eq!(
        proxy.ask("GET", "/", "Expect: 100-continue\r\n").status(),
        200
    );
    assert_eq!(proxy.ask("GET", "/", "").status(), 429);
}
