//! Pages of other origins: preflights that the gateway answers, and responses that pages may read.

use serde_json::json;

use crate::common::browser::Browser;
use crate::common::http2;
use crate::common::{Gateway, Message, Upstream, assert_contains, ok};

const IDENTITY: &str =
    "workers: 1\nidentity: { token: [{ header: x-api-key }, { cookie: sid }] }\n";

fn upstream() -> Upstream {
    Upstream::answering(|request| {
        let own =
            "access-control-allow-origin: https://upstream.test\r\nAccess-Control-Max-Age: 9\r\n";
        let method = request.start.split(' ').next().unwrap_or_default();
        ok(method).replacen("\r\n", &format!("\r\n{own}vary: accept\r\n"), 1)
    })
}

fn gateway(upstream: &Upstream, gateway: &str, policies: &[(&str, &str)]) -> Gateway {
    Gateway::start(upstream.address, &[IDENTITY, gateway].concat(), policies)
}

fn ask(gateway: &Gateway, line: &str, fields: &[&str]) -> Message {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let mut client = gateway.connect();
    client.send(format!("{line} HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
    client.answer()
}

const PAGE: &str = "origin: https://app.example.com";
const POST: &str = "access-control-request-method: POST";
const POLICY: &str = "match: POST /items\nupstream: up\nrequire: token\n\
    cors: { origins: [https://app.example.com, 'https://*.example.org'], credentials: true, expose: etag }\n\
    limits: { few: { key: token, rate: 1/h }, all: { key: ip, rate: 2/h } }\n";

#[track_caller]
fn assert_fields(answer: &Message, fields: &[(&str, Option<&str>)]) {
    for (name, value) in fields {
        assert_eq!(answer.field(name), *value, "{name}");
    }
}

#[test]
fn preflights_get_their_answer_here_and_use_up_nothing() {
    let upstream = upstream();
    let gateway = gateway(&upstream, "", &[("items", POLICY)]);
    for _ in 0..9 {
        let asked = "access-control-request-headers: x-api-key,content-type";
        let answer = ask(&gateway, "OPTIONS /items", &[PAGE, POST, asked]);
        assert_eq!(answer.status(), 204);
        assert_fields(
            &answer,
            &[
                (
                    "access-control-allow-origin",
                    Some("https://app.example.com"),
                ),
                ("access-control-allow-credentials", Some("true")),
                ("access-control-allow-methods", Some("POST")),
                (
                    "access-control-allow-headers",
                    Some("x-api-key,content-type"),
                ),
                ("access-control-max-age", Some("600")),
                ("vary", Some("origin")),
                ("content-length", None),
            ],
        );
    }
    let answer = ask(
        &gateway,
        "OPTIONS /items",
        &["origin: https://a.example.org", POST],
    );
    assert_eq!(answer.status(), 204);
    for origin in [
        "https://evil.test",
        "https://app.example.com.evil.test",
        "null",
    ] {
        let answer = ask(
            &gateway,
            "OPTIONS /items",
            &[&format!("origin: {origin}"), POST],
        );
        assert_eq!(answer.status(), 403, "{origin}");
        assert_fields(
            &answer,
            &[
                ("access-control-allow-origin", None),
                ("vary", Some("origin")),
            ],
        );
    }
    assert!(upstream.drain().is_empty());
    let metrics = gateway.app.metrics();
    let answered = "tollgate_requests_total{route=\"items\",outcome=\"admitted\"} 10";
    assert_contains(&metrics, &[answered]);
    let answer = ask(
        &gateway,
        "POST /items",
        &[PAGE, "x-api-key: k", "content-length: 0"],
    );
    assert_eq!(answer.status(), 200);
}

/// The names that a preflight asks for come back only if they are names.
#[test]
fn what_a_preflight_asks_for_is_checked() {
    let upstream = upstream();
    let gateway = gateway(&upstream, "", &[("items", POLICY)]);
    let long = format!("x-{}", "a".repeat(2000));
    for asked in ["x-a: b", "x-a;b", "x-a\"", "x-\u{e9}", &long] {
        let asked = format!("access-control-request-headers: {asked}");
        let answer = ask(&gateway, "OPTIONS /items", &[PAGE, POST, &asked]);
        assert_fields(&answer, &[("access-control-allow-headers", None)]);
    }
}

/// What may be more than a question of a browser is no preflight: it is refused or counted as any other request.
#[test]
fn what_is_no_preflight_gets_no_answer_here() {
    let upstream = upstream();
    let policy = POLICY.replace("POST /items", "/items");
    let gateway = gateway(&upstream, "", &[("items", &policy)]);
    let others: &[&[&str]] = &[
        &[PAGE],
        &[POST],
        &[PAGE, PAGE, POST],
        &[PAGE, POST, POST],
        &[PAGE, "access-control-request-method: "],
        &[PAGE, "access-control-request-method: post"],
        &[PAGE, "access-control-request-method: PO ST"],
        &[PAGE, POST, "x-http-method-override: POST"],
        &[PAGE, POST, "cookie: _method=POST"],
        &[PAGE, POST, "content-length: 1"],
        &[PAGE, POST, "connection: upgrade", "upgrade: websocket"],
    ];
    for fields in others {
        let mut client = gateway.connect();
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        client.send(format!(
            "OPTIONS /items HTTP/1.1\r\nhost: t\r\n{fields}\r\nx"
        ));
        let status = client.head().unwrap().status();
        assert!([401, 429].contains(&status), "{fields}: {status}");
    }
    let answer = ask(&gateway, "OPTIONS /items?_method=POST", &[PAGE, POST]);
    assert!([401, 429].contains(&answer.status()), "{}", answer.status());
    assert!(upstream.drain().is_empty());
}

#[test]
fn a_limit_for_preflights_counts_them() {
    let upstream = upstream();
    let limit = "limits:\n  asking: { key: ip, rate: 2/h, for: { preflight: present } }\n  all:";
    let policy = POLICY
        .replace("limits: { few: { key: token, rate: 1/h }, all:", limit)
        .replace("2/h } }\n", "2/h }\n");
    let gateway = gateway(&upstream, "", &[("items", &policy)]);
    let statuses: Vec<u16> = (0..4)
        .map(|_| ask(&gateway, "OPTIONS /items", &[PAGE, POST]).status())
        .collect();
    assert_eq!(statuses, [204, 204, 429, 429]);
}

#[test]
fn pages_may_read_every_answer() {
    let upstream = upstream();
    let gateway = gateway(
        &upstream,
        "cors: { origins: https://app.example.com }\n",
        &[("items", POLICY)],
    );
    let exposed = "retry-after, ratelimit, ratelimit-policy, etag";
    let key = "x-api-key: k";
    let empty = "content-length: 0";
    let answers = [
        (200, ask(&gateway, "POST /items", &[PAGE, key, empty])),
        (429, ask(&gateway, "POST /items", &[PAGE, key, empty])),
        (401, ask(&gateway, "POST /items", &[PAGE, empty])),
        (429, ask(&gateway, "POST /items", &[PAGE, empty])),
    ];
    for (status, answer) in &answers {
        assert_eq!(answer.status(), *status);
        assert_fields(
            answer,
            &[
                (
                    "access-control-allow-origin",
                    Some("https://app.example.com"),
                ),
                ("access-control-allow-credentials", Some("true")),
                ("access-control-expose-headers", Some(exposed)),
                ("access-control-max-age", None),
            ],
        );
        let names = answer.fields.iter().map(|(name, _)| name.as_str());
        let origins = names.filter(|name| *name == "access-control-allow-origin");
        assert_eq!(origins.count(), 1, "the upstream's own is dropped");
    }
    // Without a route, and with another method, the gateway file says it.
    for (line, status) in [("GET /nothing", 404), ("GET /items", 405)] {
        let answer = ask(&gateway, line, &[PAGE]);
        assert_eq!(answer.status(), status);
        assert_fields(
            &answer,
            &[
                (
                    "access-control-allow-origin",
                    Some("https://app.example.com"),
                ),
                ("access-control-allow-credentials", None),
                ("vary", Some("origin")),
            ],
        );
    }
    let answer = ask(&gateway, "GET /nothing", &["origin: https://evil.test"]);
    assert_fields(
        &answer,
        &[
            ("access-control-allow-origin", None),
            ("vary", Some("origin")),
        ],
    );
}

#[test]
fn any_origin_and_the_word_off() {
    let upstream = upstream();
    let gateway = gateway(
        &upstream,
        "cors: { origins: '*', headers: [x-one, x-two], max_age: 1h }\n",
        &[
            ("any", "match: GET /any\nupstream: up\n"),
            ("own", "match: GET /own\nupstream: up\ncors: off\n"),
        ],
    );
    let answer = ask(&gateway, "GET /any", &[]);
    assert_fields(
        &answer,
        &[
            ("access-control-allow-origin", Some("*")),
            ("vary", Some("accept")),
        ],
    );
    let get = "access-control-request-method: GET";
    let answer = ask(&gateway, "OPTIONS /any", &["origin: null", get]);
    assert_eq!(answer.status(), 204);
    assert_fields(
        &answer,
        &[
            ("access-control-allow-origin", Some("*")),
            ("access-control-allow-headers", Some("x-one, x-two")),
            ("access-control-max-age", Some("3600")),
            (
                "vary",
                Some("access-control-request-method, access-control-request-headers"),
            ),
        ],
    );
    assert_eq!(upstream.drain().len(), 1);
    // Where the upstream decides, it gets the preflight too.
    let answer = ask(&gateway, "OPTIONS /own", &[PAGE, get]);
    assert_eq!((answer.status(), answer.text()), (200, "OPTIONS".into()));
    assert_fields(
        &answer,
        &[("access-control-allow-origin", Some("https://upstream.test"))],
    );
}

/// Without `cors` a preflight is served by the policy of the method it asks about, as any other request.
#[test]
fn the_upstream_answers_preflights_without_cors() {
    let upstream = upstream();
    let policy = "match: POST /items\nupstream: up\nlimits: { all: { key: ip, rate: 2/h } }\n";
    let own = "match: POST /own\nupstream: up\nrequire: token\n";
    let gateway = gateway(&upstream, "", &[("items", policy), ("own", own)]);
    assert_eq!(ask(&gateway, "OPTIONS /own", &[PAGE, POST]).status(), 401);
    let statuses: Vec<u16> = (0..3)
        .map(|_| ask(&gateway, "OPTIONS /items", &[PAGE, POST]).status())
        .collect();
    assert_eq!(statuses, [200, 200, 429]);
    let delete = "access-control-request-method: DELETE";
    assert_eq!(
        ask(&gateway, "OPTIONS /items", &[PAGE, delete]).status(),
        405
    );
    assert_eq!(ask(&gateway, "OPTIONS /items", &[]).status(), 405);
    assert_eq!(upstream.drain().len(), 2);
}

/// A broader policy with `cors` serves preflights of a route without: the upstream decides there.
#[test]
fn the_upstream_decides_below_a_broader_policy() {
    let upstream = upstream();
    let all = "match: /**\nupstream: up\ncors: { origins: https://app.example.com }\n";
    let own = "match: PUT /own\nupstream: up\ncors: off\n";
    let gateway = gateway(&upstream, "", &[("all", all), ("own", own)]);
    let put = "access-control-request-method: PUT";
    let answer = ask(&gateway, "OPTIONS /own", &[PAGE, put]);
    assert_eq!((answer.status(), answer.text()), (200, "OPTIONS".into()));
    assert_fields(
        &answer,
        &[("access-control-allow-origin", Some("https://upstream.test"))],
    );
}

/// No spelling of a path lets pages read what its own policy keeps from them.
#[test]
fn other_spellings_of_a_path_have_its_origins() {
    let upstream = upstream();
    let all =
        "match: /**\nupstream: up\ncors: { origins: 'https://*.example.com', credentials: true }\n";
    let some = "match: /{kind}/list\nupstream: up\ncors: { origins: 'https://*.example.com' }\n";
    let admin = "match: /admin/**\nupstream: up\ncors: { origins: https://admin.example.com, credentials: true }\n";
    let gateway = gateway(
        &upstream,
        "",
        &[("all", all), ("some", some), ("admin", admin)],
    );
    for path in [
        "/admin/users",
        "/Admin/users",
        "//admin/users",
        "/x/..;/admin/users",
        "/ADMIN/list",
        "/x/%2e%2e/admin/list",
    ] {
        let answer = ask(
            &gateway,
            &format!("GET {path}"),
            &["origin: https://blog.example.com"],
        );
        assert_eq!(
            answer.field("access-control-allow-credentials"),
            None,
            "{path}"
        );
        let origin = answer.field("access-control-allow-origin");
        assert_eq!(origin, None, "{path}");
    }
    let answer = ask(
        &gateway,
        "GET /a/list",
        &["origin: https://blog.example.com"],
    );
    assert_fields(
        &answer,
        &[(
            "access-control-allow-origin",
            Some("https://blog.example.com"),
        )],
    );
}

#[test]
fn preflights_over_http2() {
    let upstream = upstream();
    let gateway = gateway(&upstream, "", &[("items", POLICY)]);
    http2::run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let request = http2::request("OPTIONS", "/items")
            .header("origin", "https://app.example.com")
            .header("access-control-request-method", "POST");
        let (answer, _) = client.begin(request.body(()).unwrap(), true);
        let answer = http2::whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.status, 204);
        let origin = answer.field("access-control-allow-origin");
        assert_eq!(origin, Some("https://app.example.com"));
        let request = http2::request("OPTIONS", "/items")
            .header("origin", "https://app.example.com")
            .header("access-control-request-method", "POST");
        let (answer, mut body) = client.begin(request.body(()).unwrap(), false);
        body.send_data("body".into(), true).unwrap();
        let answer = http2::whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.status, 405, "it has a body");
    });
}

/// A page in a real browser reads the status and the limits of a refusal.
#[test]
fn a_page_reads_its_refusal() {
    let upstream = upstream();
    let page = Upstream::answering(|_| {
        ok("<!doctype html><title>page</title>").replacen(
            "\r\n",
            "\r\ncontent-type: text/html\r\n",
            1,
        )
    });
    let origin = format!("http://{}", page.address);
    let policy = POLICY.replace("https://app.example.com", &origin);
    let gateway = gateway(&upstream, "", &[("items", &policy)]);
    let browser = Browser::open(800, 600);
    browser.go(&origin);
    for (credentials, key) in [("omit", "'x-api-key': 'k'"), ("include", "'x-other': 'o'")] {
        let script = format!(
            "const done = arguments[0]; document.cookie = 'sid=s; path=/';\
             const ask = () => fetch('http://{}/items', {{ method: 'POST', credentials: '{credentials}',\
               headers: {{ {key} }} }});\
             (async () => {{ let first = await ask(), last = first;\
               for (let i = 0; i < 3 && last.status === 200; i++) last = await ask();\
               const read = name => last.headers.get(name);\
               done([first.status, last.status, !!read('retry-after'), !!read('ratelimit'),\
                 !!read('ratelimit-policy'), (await last.json()).status]); }})().catch(e => done(String(e)))",
            gateway.address
        );
        let read = browser.script_later(&script);
        assert_eq!(
            read,
            json!([200, 429, true, true, true, 429]),
            "{credentials}"
        );
    }
}
