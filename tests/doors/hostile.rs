//! What clients send to a proxy that asks, in order to get around their limits.

use tollgate::base::clock::Clock;
use tollgate::http::http1::MAX_TARGET_BYTES;

use super::common::Upstream;
use super::{Asker, DOOR, Gateway, start};

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
        let expected = match fields.len() > MAX_TARGET_BYTES {
            true => 414,
            false => 400,
        };
        assert_eq!(status, expected, "{fields:.200}");
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

/// A gRPC call gets its errors with the status 200, which a proxy would take for an admission.
#[test]
fn no_refusal_of_a_grpc_call_looks_like_an_admission() {
    let file = format!(
        "{DOOR}  user: {{ api_keys: keys.yaml }}\nusage: /left\ndeny: {{ ip: [192.0.2.9] }}\n"
    );
    let policies = [
        (
            "all",
            "match: GET,POST /**\nlimits: { few: { key: ip, rate: 1/h } }\n",
        ),
        ("user", "match: /user\nrequire: user\n"),
        (
            "fixed",
            "match: /fixed\nrespond: { status: 200, body: closed }\n",
        ),
        (
            "busy",
            "match: /busy\nrespond: { status: 503, body: closed }\n",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    super::write(folder.path(), &file, &policies);
    std::fs::write(
        folder.path().join("keys.yaml"),
        "0123456789abcdef: { user: ann }\n",
    )
    .unwrap();
    let gateway = Gateway::start_in(folder, Clock::system());
    assert_eq!(Asker::of(&gateway).ask("POST", "/", "").status(), 200);
    let types = [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc; a=b",
        "application/grpc-web",
    ];
    for content_type in types {
        let grpc = format!("Content-Type: {content_type}\r\n");
        for (method, uri, fields) in [
            ("POST", "/", ""),
            ("GET", "/", ""),
            ("PUT", "/", ""),
            ("POST", "/user", ""),
            ("POST", "/user", "Authorization: Bearer guess\r\n"),
            ("POST", "/fixed", ""),
            ("POST", "/busy", ""),
            ("POST", "/left", ""),
            ("POST", "/a\\%00", ""),
            ("POST", "/", "X-Forwarded-For: 192.0.2.9\r\n"),
            ("POST", "/", "X-Forwarded-Method: GET\r\n"),
        ] {
            let fields = format!("{grpc}{fields}");
            let status = Asker::of(&gateway).ask(method, uri, &fields).status();
            assert!(is_refused(status), "{status}: {method} {uri} {fields}");
        }
    }
}

/// Servers behind the proxy may believe such fields, and tollgate would have removed them.
#[test]
fn fields_that_hide_another_path_or_identity_are_refused() {
    let file = format!("{DOOR}  token: {{ header: x-api-key }}\n");
    let gateway = start(&file, &[("all", "match: /**\n")]);
    for field in [
        "X-Rewrite-URL",
        "x_rewrite_url",
        "X-Script-Name",
        "X-Host",
        "X_Original_Uri",
        "X_Api_Key",
        "x-api_key",
        "X.Api.Key",
        "X_HTTP_Method_Override",
        "X.HTTP.Method.Override",
        "X_Forwarded_Host",
        "X.Real.IP",
    ] {
        let status = Asker::of(&gateway)
            .ask("GET", "/", &format!("{field}: /login\r\n"))
            .status();
        assert!(is_refused(status), "{field}: {status}");
    }
    for field in [
        "X-Api-Key",
        "X-Other",
        "X_Other",
        "X-Request-Id",
        "Tollgate-User",
    ] {
        let status = Asker::of(&gateway)
            .ask("GET", "/", &format!("{field}: a\r\n"))
            .status();
        assert_eq!(status, 200, "{field}");
    }
}

#[test]
fn a_check_names_its_client() {
    let gateway = start(DOOR, &[("all", "match: /**\n")]);
    let mut proxy = Asker::of(&gateway);
    proxy.0.send("GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n\r\n");
    let answer = proxy.0.answer();
    assert_eq!(answer.status(), 400);
    assert!(
        answer.text().contains("X-Forwarded-For"),
        "{}",
        answer.text()
    );
}

/// The check itself is a GET, whatever it describes, so its response must be whole.
#[test]
fn responses_about_head_requests_are_whole() {
    let policies = [(
        "busy",
        "match: /busy\nrespond: { status: 503, body: closed }\n",
    )];
    let gateway = start(DOOR, &policies);
    let mut proxy = Asker::of(&gateway);
    for _ in 0..2 {
        let answer = proxy.ask("HEAD", "/busy", "");
        assert_eq!((answer.status(), answer.text().as_str()), (503, "closed"));
    }
}

/// Policies of all upstreams count where spellings are unclear, but no request leaves the upstream of its path.
#[test]
fn clients_beside_a_door_reach_no_other_upstream() {
    let (web, admin) = (Upstream::plain(), Upstream::plain());
    let file = format!(
        "listen: 127.0.0.1:0\nupstreams: {{ web: [\"http://{}\"], admin: [\"http://{}\"] }}\n{DOOR}",
        web.address, admin.address
    );
    let policies = [
        ("all", "match: /**\nupstream: web\n"),
        (
            "login",
            "match: /login\nupstream: admin\nlimits: { tries: { key: everyone, rate: 100/h } }\n",
        ),
        (
            "delete",
            "match: DELETE /items/*\nupstream: admin\nlimits: { all: { key: everyone, rate: 100/h } }\n",
        ),
    ];
    let gateway = start(&file, &policies);
    let form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 14\r\n\r\n_method=DELETE";
    for request in [
        "GET /internal/users?r=/login HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET /?rest_route=/login HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET /LOGIN HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET /login.json HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "POST /items/1 HTTP/1.1\r\nHost: a\r\nX-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n\r\n".to_owned(),
        format!("POST /items/1 HTTP/1.1\r\nHost: a\r\n{form}"),
    ] {
        let mut client = gateway.connect();
        client.send(&request);
        let _ = client.answer();
        assert!(admin.drain().is_empty(), "{request}");
    }
    assert!(!web.drain().is_empty());
    assert_eq!(gateway.connect().get("/login").status(), 200);
    assert_eq!(admin.drain().len(), 1);
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
    let described =
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Method: POST\r\nX-Forwarded-Uri: /\r\n";
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
