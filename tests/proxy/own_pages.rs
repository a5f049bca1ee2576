//! The bodies that operators write for refusals: who gets which, and that no client gets another's or writes into one.

use std::net::TcpListener;

use serde_json::{Value, json};
use tollgate::base::clock::Clock;

use crate::common::http2::{self, run, whole};
use crate::common::{Client, Gateway, Message, Upstream, child, read_body, write};

const HTML: &str = "<h1 title=\"${title}\">${status}</h1><p>${detail} ${limit} ${retry_after}</p><a href='${path}'>${host}</a>";
const JSON: &str = r#"{"error":{"code":"${status}","wait":"${retry_after}","limit":"${limit}","message":"${detail}","at":"${path}","by":"${ip}"}}"#;
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const ONCE: &str = "match: /once/**\nupstream: up\nlimits:\n  once: { key: ip, rate: 1/h }\n";

/// A gateway with these files beside its gateway file.
fn gateway(
    upstream: &Upstream,
    more: &str,
    policies: &[(&str, &str)],
    files: &[(&str, &str)],
) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let more = format!("workers: 1\n{more}");
    write(&folder, upstream.address, &more, policies);
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    Gateway::start_in(folder, Clock::system())
}

/// Sends a request with these lines, and reads the response.
fn ask(client: &mut Client, line: &str, fields: &str) -> Message {
    client.send(format!(
        "{line} HTTP/1.1\r\nhost: t.example\r\n{fields}\r\n"
    ));
    client.answer()
}

/// The length that is stated is that of the body, once.
#[track_caller]
fn check_length(message: &Message) {
    let fields = message.fields.iter();
    let lengths: Vec<_> = fields
        .filter(|(name, _)| name == "content-length")
        .collect();
    assert_eq!(lengths.len(), 1, "{message:?}");
    assert_eq!(lengths[0].1, message.body.len().to_string(), "{message:?}");
}

fn vary(message: &Message) -> Vec<&str> {
    let fields = message.fields.iter().filter(|(name, _)| name == "vary");
    fields.map(|(_, value)| value.as_str()).collect()
}

#[test]
fn a_browser_gets_the_page_and_a_program_its_json() {
    let upstream = Upstream::plain();
    let errors = "errors: { 429: [429.html, 429.json], 404: 404.html, 403: 403.json }\n";
    let policies = [
        ("once", ONCE),
        (
            "denied",
            "match: /denied\nupstream: up\ndeny: { ip: 127.0.0.0/8 }\n",
        ),
    ];
    let files = [
        ("429.html", HTML),
        ("429.json", JSON),
        ("404.html", "<p>none"),
        ("403.json", "[]"),
    ];
    let gateway = gateway(&upstream, errors, &policies, &files);
    let mut client = gateway.connect();
    assert_eq!(client.get("/once/").status(), 200);
    let browser = format!("accept: {BROWSER}\r\n");
    // Repeated refusals come from a cache, and each kind of client keeps its own.
    for _ in 0..4 {
        for _ in 0..3 {
            let page = ask(&mut client, "GET /once/a", &browser);
            assert_eq!(page.status(), 429);
            assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
            let wait = page.field("retry-after").unwrap();
            let expected = format!(
                "<h1 title=\"Request quota exceeded\">429</h1><p>The request exceeds the limit once; try again in {wait} s. once {wait}</p><a href='/once/a'>t.example</a>"
            );
            assert_eq!(page.text(), expected);
            check_length(&page);
            assert_eq!(vary(&page), ["accept"]);
            assert_eq!(page.field("cache-control"), Some("no-store"));
            assert!(page.field("ratelimit").is_some());
        }
        for accept in [
            "",
            "accept: */*\r\n",
            "accept: application/json, text/html\r\n",
        ] {
            let refusal = ask(&mut client, "GET /once/b", accept);
            assert_eq!(refusal.field("content-type"), Some("application/json"));
            let body: Value = serde_json::from_slice(&refusal.body).unwrap();
            let wait: u64 = refusal.field("retry-after").unwrap().parse().unwrap();
            let message = format!("The request exceeds the limit once; try again in {wait} s.");
            assert_eq!(
                body["error"],
                json!({ "code": 429, "wait": wait, "limit": "once", "message": message, "at": "/once/b", "by": "127.0.0.1" })
            );
            check_length(&refusal);
            assert_eq!(vary(&refusal), ["accept"]);
        }
        client.send(format!(
            "HEAD /once/ HTTP/1.1\r\nhost: t.example\r\n{browser}\r\n"
        ));
        let head = client.head().unwrap();
        assert_eq!(head.field("content-type"), Some("text/html; charset=utf-8"));
        assert!(
            head.field("content-length")
                .unwrap()
                .parse::<usize>()
                .unwrap()
                > 100
        );
    }
    // Without JSON of its own a status keeps the problem document, which depends on `Accept` even so.
    let none = ask(&mut client, "GET /none", &browser);
    assert_eq!((none.status(), none.text()), (404, "<p>none".into()));
    assert!(none.field("cache-control").is_none());
    let none = ask(&mut client, "GET /none", "");
    assert_eq!(none.field("content-type"), Some("application/problem+json"));
    assert_eq!(vary(&none), ["accept"]);
    // Without a page browsers get the JSON, and nothing depends on `Accept`.
    let denied = ask(&mut client, "GET /denied", &browser);
    assert_eq!((denied.status(), denied.text()), (403, "[]".into()));
    assert_eq!(denied.field("content-type"), Some("application/json"));
    assert_eq!(
        (vary(&denied).len(), denied.field("cache-control")),
        (0, Some("no-store"))
    );
    // A gRPC call keeps its status.
    let grpc = format!("content-type: application/grpc\r\n{browser}");
    let grpc = ask(&mut client, "POST /once/g", &grpc);
    assert_eq!((grpc.status(), grpc.field("grpc-status")), (200, Some("8")));
    assert!(grpc.body.is_empty() && vary(&grpc).is_empty());
}

#[test]
fn the_nearest_file_decides_for_each_status() {
    let upstream = Upstream::plain();
    let errors = "errors: { 4xx: gateway.json, 429: once.json, 503: unused.json }\nupstreams: { up: [\"http://{upstream}\"], gone: [\"http://{gone}\"] }\n";
    // Nobody listens there any more.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let errors = errors.replace("{gone}", &gone.to_string());
    let deny = "deny: { ip: 127.0.0.0/8 }\n";
    let once = "limits: { once: { key: ip, rate: 1/h } }\n";
    let policies = [
        ("a", &*format!("match: /a\nupstream: up\n{deny}")),
        ("b/_defaults", "errors: { 403: b.json, 5xx: b5.json }\n"),
        ("b/one", &*format!("match: /b/one\nupstream: up\n{deny}")),
        (
            "b/two",
            &*format!("match: /b/two\nupstream: up\n{deny}errors: {{ 4xx: two.json }}\n"),
        ),
        (
            "b/gone",
            "match: /b/gone\nupstream: gone\nerrors: { 403: unused.json }\n",
        ),
        ("b/c/_defaults", "errors: { 4xx: c.json }\n"),
        (
            "b/c/three",
            &*format!("match: /b/c/three\nupstream: up\n{deny}"),
        ),
        ("b/c/gone", "match: /b/c/gone\nupstream: gone\n"),
        (
            "once",
            &*format!("match: /once\nupstream: up\n{once}errors: {{ 403: unused.json }}\n"),
        ),
    ];
    let names = ["gateway", "once", "unused", "b", "b5", "two", "c"];
    let files = names.map(|name| (format!("{name}.json"), format!("{{\"is\":\"{name}\"}}")));
    let files = files.each_ref().map(|(name, text)| (&**name, &**text));
    let gateway = gateway(&upstream, &errors, &policies, &files);
    let mut client = gateway.connect();
    assert_eq!(client.get("/once").status(), 200);
    for (path, status, expected) in [
        ("/a", 403, "gateway"),
        ("/none", 404, "gateway"),
        ("/once", 429, "once"),
        ("/b/one", 403, "b"),
        ("/b/two", 403, "two"),
        ("/b/gone", 503, "b5"),
        ("/b/c/three", 403, "c"),
        ("/b/c/gone", 503, "b5"),
    ] {
        let answer = client.get(path);
        let is = format!("{{\"is\":\"{expected}\"}}");
        assert_eq!((answer.status(), answer.text()), (status, is), "{path}");
    }
    // What cannot be read asks for nothing, and has the gateway's.
    let mut broken = gateway.connect();
    broken.send(format!(
        "GET /a HTTP/1.1\r\nhost t\r\naccept: {BROWSER}\r\n\r\n"
    ));
    let answer = broken.answer();
    assert_eq!(
        (answer.status(), &*answer.text()),
        (400, "{\"is\":\"gateway\"}")
    );
}

#[test]
fn nothing_of_a_client_leaves_its_place() {
    let upstream = Upstream::plain();
    let html = "<i a=\"${path}\" b='${host}'>${path}</i><script>x = \"${path}\"</script>${request_id} ${ip}";
    let json = r#"{"path":"${path}","text":"at ${path} on ${host} by ${request_id}"}"#;
    let more = "request_id: x-request-id\nidentity: { ip: { trusted_proxies: 127.0.0.1 } }\nerrors: { 4xx: [p.html, p.json] }\n";
    let policies = [("a", "match: /a\nupstream: up\n")];
    let gateway = gateway(
        &upstream,
        more,
        &policies,
        &[("p.html", html), ("p.json", json)],
    );
    let long = format!("/{}", "'".repeat(15_000));
    let paths = [
        "/\"onclick=\"alert(1)",
        "/';alert(1)//\\",
        "/${status}${request_id}$${x}",
        "/{{7*7}}${7}",
        "/%0d%0aset-cookie:x=1",
        "/&lt;&amp;",
        "/..%00/\"a\"",
        &long,
    ];
    for path in paths {
        // A path without a normal form gets a page with the path too, and closes the connection.
        let mut client = gateway.connect();
        let fields = format!("accept: {BROWSER}\r\nx-request-id: a/b+c=@d\r\n");
        let page = ask(&mut client, &format!("GET {path}"), &fields);
        assert!([400, 404].contains(&page.status()), "{path}");
        assert_eq!(
            page.field("content-type"),
            Some("text/html; charset=utf-8"),
            "{path}"
        );
        let text = page.text();
        assert_eq!(text.matches('<').count(), 4, "{text}");
        assert_eq!(text.matches('"').count(), 4, "{text}");
        assert_eq!(text.matches('\'').count(), 2, "{text}");
        assert!(!text.contains(['\\', '`', '$', '{', '\r', '\n']), "{text}");
        assert!(text.len() < 8192, "{}", text.len());
        assert!(text.ends_with("a/b+c&#61;@d 127.0.0.1"), "{text}");
        // No cache may keep the id of another client.
        assert_eq!(page.field("cache-control"), Some("no-store"));
        assert!(page.field("set-cookie").is_none());
        let mut client = gateway.connect();
        let fields = "x-request-id: a/b+c=@d\r\n";
        let json = ask(&mut client, &format!("GET {path}"), fields);
        let body: Value = serde_json::from_slice(&json.body).unwrap();
        let shown = &path[..path.len().min(256)];
        assert_eq!(body["path"], shown);
        assert_eq!(body["text"], format!("at {shown} on t.example by a/b+c=@d"));
    }
    // A head that cannot be read has neither path nor host.
    for target in ["/<script>", "/\u{e9}\" \"", "/x#\"<b>"] {
        let mut client = gateway.connect();
        let fields = format!("accept: {BROWSER}\r\n");
        let page = ask(&mut client, &format!("GET {target}"), &fields);
        assert_eq!(
            (page.status(), page.field("content-type")),
            (400, Some("application/json"))
        );
        let body: Value = serde_json::from_slice(&page.body).unwrap();
        assert_eq!(body["path"], Value::Null);
        assert!(
            body["text"].as_str().unwrap().starts_with("at  on  by "),
            "{body}"
        );
    }
    let mut client = gateway.connect();
    // The host is in its canonical form, or there is none.
    client.send(format!(
        "GET /x HTTP/1.1\r\nhost: \"><b>\r\naccept: {BROWSER}\r\n\r\n"
    ));
    assert_eq!(client.answer().status(), 400);
}

#[test]
fn over_http2_too() {
    let upstream = Upstream::plain();
    let errors = "errors: { 429: [429.html, 429.json] }\n";
    let files = [("429.html", HTML), ("429.json", JSON)];
    let gateway = gateway(&upstream, errors, &[("once", ONCE)], &files);
    run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        assert_eq!(client.get("/once/").await.status, 200);
        for _ in 0..3 {
            let request = |method| http2::request(method, "/once/").header("accept", BROWSER);
            let (answer, _) = client.begin(request("GET").body(()).unwrap(), true);
            let page = whole(answer.await.unwrap()).await.unwrap();
            assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
            assert!(
                page.body
                    .starts_with(b"<h1 title=\"Request quota exceeded\">429</h1>")
            );
            assert_eq!(
                page.field("content-length"),
                Some(&*page.body.len().to_string())
            );
            let (answer, _) = client.begin(request("HEAD").body(()).unwrap(), true);
            let head = whole(answer.await.unwrap()).await.unwrap();
            assert_eq!((head.status, head.body.len()), (429, 0));
            assert_eq!(head.field("content-length"), page.field("content-length"));
            let json = client.get("/once/").await;
            assert_eq!(json.field("content-type"), Some("application/json"));
            assert_eq!(json.field("vary"), Some("accept"));
            let body: Value = serde_json::from_slice(&json.body).unwrap();
            assert_eq!(body["error"]["code"], 429);
        }
    });
}

#[test]
fn pages_can_be_read_by_other_origins_and_are_explained() {
    let upstream = Upstream::plain();
    let more = "cors: { origins: https://app.example }\nerrors: { 4xx: [e.html, e.json] }\n";
    let files = [("e.html", "<p>${limit}"), ("e.json", "\"${limit}\"")];
    // No policy takes out on what a page depends.
    let once = format!("{ONCE}response: {{ set: {{ vary: x-own }} }}\n");
    let gateway = gateway(&upstream, more, &[("once", &once)], &files);
    let mut client = gateway.connect();
    let fields = format!("accept: {BROWSER}\r\norigin: https://app.example\r\n");
    assert_eq!(ask(&mut client, "GET /once/", &fields).status(), 200);
    let page = ask(&mut client, "GET /once/", &fields);
    assert_eq!((page.status(), &*page.text()), (429, "<p>once"));
    assert_eq!(
        page.field("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert_eq!(vary(&page), ["x-own", "accept", "origin"]);
    let none = ask(&mut client, "GET /none", "");
    assert_eq!((none.status(), &*none.text()), (404, "null"));

    let explain = |arguments: &[&str]| {
        let all = [&["explain", "GET", "/none"], arguments].concat();
        child::run(gateway.folder.path(), &all).out
    };
    let accept = format!("accept: {BROWSER}");
    let text = explain(&["-H", &accept]);
    assert!(
        text.starts_with("404 not served: no policy matches this request; the body is e.html\n"),
        "{text}"
    );
    let text = explain(&[]);
    assert!(text.contains("the body is e.json"), "{text}");
    let text = explain(&["-H", "content-type: application/grpc"]);
    assert!(!text.contains("the body"), "{text}");
    let text = child::run(gateway.folder.path(), &["check"]).out;
    assert!(
        text.contains("\nbodies of refusals: 400 e.html and e.json, 401 e.html"),
        "{text}"
    );
}

#[test]
fn a_changed_page_is_a_reload() {
    let upstream = Upstream::plain();
    let errors = "errors: { 404: e.json }\n";
    let gateway = gateway(&upstream, errors, &[("once", ONCE)], &[("e.json", "1")]);
    let file = gateway.folder.path().join("e.json");
    let mut client = gateway.connect();
    assert_eq!(client.get("/none").text(), "1");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    std::fs::write(&file, "2").unwrap();
    runtime.block_on(gateway.app.reload()).unwrap();
    let mut next = gateway.connect();
    assert_eq!(next.get("/none").text(), "2");
    // One that is too large changes nothing.
    std::fs::write(&file, format!("\"{}\"", "x".repeat(32 * 1024 - 1))).unwrap();
    let error = runtime
        .block_on(gateway.app.reload())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot read the page `e.json`: it is larger than 32 KiB"),
        "{error}"
    );
    assert_eq!(next.get("/none").text(), "2");
    std::fs::write(&file, format!("\"{}\"", "x".repeat(32 * 1024 - 2))).unwrap();
    runtime.block_on(gateway.app.reload()).unwrap();
    let mut client = gateway.connect();
    client.send("GET /none HTTP/1.1\r\nhost: t\r\n\r\n");
    let mut answer = client.head().unwrap();
    read_body(&mut client.reader, &mut answer).unwrap();
    assert_eq!(answer.body.len(), 32 * 1024);
}
