//! The lines of the access log: listed members, the format of Apache, and what hostile clients put into them.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate::base::clock::Clock;

use crate::common::certificate::Certificate;
use crate::common::http2::{self, run, whole};
use crate::common::tls::{self, Tls, put, trusting};
use crate::common::{Gateway, Upstream, wait_until, write};

const ALL: (&str, &str) = ("all", "match: /**\nupstream: up\n");
const FIELDS: &str = "[host, user_agent, referer, protocol, tls, upstream, upstream_ms, bytes_in]";

/// The lines of the access log, once there are so many.
fn lines(gateway: &Gateway, number: usize) -> Vec<String> {
    let file = gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("all is logged", || read().lines().count() >= number);
    read().lines().map(str::to_owned).collect()
}

fn parsed(gateway: &Gateway, number: usize) -> Vec<Value> {
    let lines = lines(gateway, number);
    let parsed = lines.iter().map(|line| serde_json::from_str(line).unwrap());
    parsed.collect()
}

/// A gateway whose log has these settings.
fn start(upstream: &Upstream, log: &str, more: &str, policies: &[(&str, &str)]) -> Gateway {
    let gateway = format!("workers: 1\naccess_log: {{ file: access.log, {log} }}\n{more}");
    Gateway::start(upstream.address, &gateway, policies)
}

#[track_caller]
fn check(line: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(line[name], *value, "{name} in {line}");
    }
}

#[test]
fn listed_members() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, &format!("fields: {FIELDS}"), "", &[ALL]);
    let mut client = gateway.connect();
    client.send(
        "POST /a HTTP/1.1\r\nhost: shop.test:80\r\nuser-agent: curl/8\r\nreferer: http://t/b\r\n\
         content-length: 5\r\n\r\n12345",
    );
    assert_eq!(client.answer().status(), 200);
    client.send("GET http://other.test/b HTTP/1.0\r\nhost: other.test\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let request = http2::request("POST", "/c").header("user-agent", "h2");
        let (answer, mut body) = client.begin(request.body(()).unwrap(), false);
        body.send_data("12".into(), false).unwrap();
        body.send_data("345".into(), true).unwrap();
        assert_eq!(whole(answer.await.unwrap()).await.unwrap().status, 200);
    });
    let lines = parsed(&gateway, 3);
    let expected = json!({
        "host": "shop.test:80", "user_agent": "curl/8", "referer": "http://t/b", "protocol": "HTTP/1.1",
        "tls": null, "upstream": "up", "bytes_in": 5, "status": 200, "bytes": 4,
    });
    check(&lines[0], &expected);
    let expected = json!({
        "host": "other.test", "user_agent": null, "referer": null, "protocol": "HTTP/1.0", "bytes_in": 0,
    });
    check(&lines[1], &expected);
    let expected = json!({
        "host": "test", "user_agent": "h2", "protocol": "HTTP/2.0", "upstream": "up", "bytes_in": 5,
    });
    check(&lines[2], &expected);
    for line in &lines {
        let millis = line["upstream_ms"].as_f64().unwrap();
        let seconds = line["seconds"].as_f64().unwrap();
        assert!(millis > 0.0 && millis <= seconds * 1000.0, "{line}");
        assert!(line.get("request_id").is_none());
    }
}

#[test]
fn members_of_requests_that_no_server_got() {
    let upstream = Upstream::plain();
    let more = "upstreams: { up: [\"http://{upstream}\"], gone: [\"http://127.0.0.1:1\"] }\n";
    let gone = ("gone", "match: /gone\nupstream: gone\n");
    let once = (
        "once",
        "match: /once\nupstream: up\nlimits:\n  once: { key: ip, rate: 1/h }\n",
    );
    let gateway = start(&upstream, &format!("fields: {FIELDS}"), more, &[gone, once]);
    let mut client = gateway.connect();
    for (path, status) in [("/gone", 503), ("/none", 404), ("/once", 200)] {
        assert_eq!(client.get(path).status(), status);
    }
    let agents = ["a", "a", "a", "b", "b", "b"];
    for agent in agents {
        let fields = format!("host: t\r\nuser-agent: {agent}\r\n\r\n");
        client.send(format!("GET /once HTTP/1.1\r\n{fields}"));
        assert_eq!(client.answer().status(), 429);
    }
    client.send("GET /once HTTP/1.1\r\nhost: t\r\nx: \x01\r\n\r\n");
    assert_eq!(client.answer().status(), 400);
    let lines = parsed(&gateway, 10);
    check(
        &lines[0],
        &json!({ "upstream": "gone", "upstream_ms": null, "host": "test" }),
    );
    check(
        &lines[1],
        &json!({ "upstream": null, "upstream_ms": null, "host": "test" }),
    );
    for (line, agent) in lines[3..].iter().zip(agents) {
        let expected = json!({ "user_agent": agent, "upstream": "up", "upstream_ms": null });
        check(line, &expected);
    }
    check(
        &lines[9],
        &json!({ "status": 400, "host": null, "protocol": null, "bytes_in": 0 }),
    );
}

/// Nothing of this ends a member or a line, and long texts are cut.
const HOSTILE: [(&str, &str); 6] = [
    ("\",\"status\":200,\"a\":\"", "\",\"status\":200,\"a\":\""),
    ("a\\", "a\\"),
    ("a\\\"b", "a\\\"b"),
    ("a\tb", "a\tb"),
    ("\u{2028}\u{e9}", "\u{2028}\u{e9}"),
    (
        "- - [01/Jan/1970] \"GET / HTTP/1.1\" 200",
        "- - [01/Jan/1970] \"GET / HTTP/1.1\" 200",
    ),
];

#[test]
fn texts_of_clients_stay_within_their_members() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, &format!("fields: {FIELDS}"), "", &[ALL]);
    let mut client = gateway.connect();
    for (sent, _) in HOSTILE {
        client.send(format!(
            "GET / HTTP/1.1\r\nhost: t\r\nuser-agent: {sent}\r\nreferer: {sent}\r\n\r\n"
        ));
        assert_eq!(client.answer().status(), 200);
    }
    client.send(b"GET / HTTP/1.1\r\nhost: t\r\nuser-agent: a\xffb\r\n\r\n");
    // The upstream of this test does not read such a field.
    assert_eq!(client.answer().status(), 502);
    let long = "\u{e9}".repeat(5000);
    client.send(format!(
        "GET / HTTP/1.1\r\nhost: t\r\nuser-agent: a{long}\r\n\r\n"
    ));
    assert_eq!(client.answer().status(), 200);
    let logged = lines(&gateway, HOSTILE.len() + 2);
    let lines = parsed(&gateway, HOSTILE.len() + 2);
    assert_eq!(lines.len(), HOSTILE.len() + 2);
    for (line, (_, expected)) in lines.iter().zip(HOSTILE) {
        check(
            line,
            &json!({ "user_agent": expected, "referer": expected, "status": 200 }),
        );
    }
    check(
        &lines[HOSTILE.len()],
        &json!({ "user_agent": "a\u{fffd}b" }),
    );
    let cut = lines[HOSTILE.len() + 1]["user_agent"].as_str().unwrap();
    assert_eq!(cut, format!("a{}\u{2026}", "\u{e9}".repeat(127)));
    assert!(logged[HOSTILE.len() + 1].len() < 700);
}

#[test]
fn secrets_are_not_logged() {
    let upstream = Upstream::plain();
    let identity = "identity:\n  token: { query: api_key }\n  session: { cookie: sid }\n\
                    \x20 device: { header: x-device }\n";
    let log = "fields: [referer, session, device]";
    let gateway = start(&upstream, log, identity, &[ALL]);
    let mut client = gateway.connect();
    for agent in ["a", "b"] {
        client.send(format!(
            "GET /?api_key=hush1 HTTP/1.1\r\nhost: t\r\nreferer: http://t/?api_key=hush2&b=c\r\n\
             cookie: sid=hush3\r\nx-device: phone\r\nuser-agent: {agent}\r\n\r\n"
        ));
        assert_eq!(client.answer().status(), 200);
    }
    client.send("GET / HTTP/1.1\r\nhost: t\r\nx-device: ann@example.com\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    let text = lines(&gateway, 3).join("\n");
    assert!(!text.contains("hush") && !text.contains("ann@"), "{text}");
    let lines = parsed(&gateway, 3);
    let expected = json!({
        "referer": "http://t/?api_key=***&b=c", "target": "/?api_key=***", "device": "phone",
    });
    check(&lines[0], &expected);
    let session = lines[0]["session"].as_str().unwrap();
    assert!(session.starts_with('#') && lines[1]["session"] == *session);
    assert!(lines[2].get("session").is_none());
    assert!(lines[2]["device"].as_str().unwrap().starts_with('#'));
}

/// No limit counts by these identities. Requests of one connection with the same fields have other paths.
#[test]
fn identities_of_each_request() {
    let upstream = Upstream::plain();
    let identity = "identity:\n  account: { path: account }\n  device: { header: x-device }\n\
                    \x20 place: { networks: { home: [127.0.0.0/8] } }\n  tool: { body: tool }\n";
    let log = "fields: [account, device, place, tool]";
    let policies = [("accounts", "match: /accounts/{account}/**\nupstream: up\n")];
    let gateway = start(&upstream, log, identity, &policies);
    let mut client = gateway.connect();
    let accounts = ["a", "a", "a", "b", "c", "c", "a"];
    for account in accounts {
        client.send(format!(
            "GET /accounts/{account}/x HTTP/1.1\r\nhost: t\r\nx-device: phone\r\n\r\n"
        ));
        assert_eq!(client.answer().status(), 200);
    }
    client.send("GET /none HTTP/1.1\r\nhost: t\r\nx-device: a\r\nx-device: b\r\n\r\n");
    assert_eq!(client.answer().status(), 404);
    let lines = parsed(&gateway, accounts.len() + 1);
    for (line, account) in lines.iter().zip(accounts) {
        check(
            line,
            &json!({ "account": account, "device": "phone", "place": "home", "tool": null }),
        );
    }
    check(
        &lines[accounts.len()],
        &json!({ "account": null, "device": null }),
    );
}

#[test]
fn lines_of_connections_with_tls() {
    let upstream = Upstream::plain();
    let certificate = Certificate::of(&["test"]);
    for (versions, expected) in [
        (&[&rustls::version::TLS13], "TLSv1.3"),
        (&[&rustls::version::TLS12], "TLSv1.2"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        put(&folder, 0, &certificate);
        let log = format!("workers: 1\naccess_log: {{ file: access.log, fields: {FIELDS} }}\n");
        write(&folder, upstream.address, &log, &[ALL]);
        let file = folder.path().join("tollgate.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let listen = "listen: { address: 127.0.0.1:0, tls: { cert: 0.pem, key: 0.key } }\n";
        std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
        let gateway = Gateway::start_in(folder, Clock::system());
        let config: Arc<_> = trusting(&[&certificate], versions);
        assert_eq!(
            Tls::connect(&gateway, "test", &config).get("/").status(),
            200
        );
        check(
            &parsed(&gateway, 1)[0],
            &json!({ "tls": expected, "host": "test" }),
        );
    }
    assert_eq!(tls::ALL.len(), 2, "each version has a name");
}

/// The parts of a line in the Combined Log Format. Panics if the line has other parts.
#[track_caller]
fn combined(line: &str) -> [String; 8] {
    let pattern = regex_lite::Regex::new(
        r#"^(\S+) - (\S+) \[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000)\] "((?:[^"\\]|\\.)*)" (\d{3}|-) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"$"#,
    )
    .unwrap();
    let parts = pattern.captures(line).unwrap_or_else(|| panic!("{line}"));
    std::array::from_fn(|part| parts[part + 1].to_owned())
}

#[test]
fn lines_in_the_format_of_apache() {
    let upstream = Upstream::plain();
    let user = "identity: { user: { header: x-user, from: 127.0.0.1 } }\n";
    let gateway = start(&upstream, "format: combined", user, &[ALL]);
    let mut client = gateway.connect();
    client.send("GET /a?b=c HTTP/1.1\r\nhost: t\r\nuser-agent: curl/8\r\nreferer: /r\r\nx-user: ann\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    for (sent, _) in HOSTILE {
        let fields = format!("user-agent: {sent}\r\nreferer: {sent}\r\nx-user: {sent}\r\n");
        client.send(format!("GET /a?b=%0a HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
        assert_eq!(client.answer().status(), 200);
    }
    let long = "a".repeat(300);
    client.send(format!(
        "HEAD / HTTP/1.0\r\nhost: t\r\nuser-agent: {long}\r\n\r\n"
    ));
    client.head().unwrap();
    let mut client = gateway.connect();
    client.send("GET /x\"\\y HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    client.send("GET /\"x\u{1}y HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.answer().status(), 400);
    run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        assert_eq!(client.get("/h2").await.status, 200);
    });
    let lines = lines(&gateway, HOSTILE.len() + 5);
    assert_eq!(lines.len(), HOSTILE.len() + 5);
    let first = combined(&lines[0]);
    let [ip, user, _, request, status, bytes, referer, agent] = &first;
    let parts = [ip, user, request, status, bytes, referer, agent].map(String::as_str);
    assert_eq!(
        parts,
        [
            "127.0.0.1",
            "ann",
            "GET /a?b=c HTTP/1.1",
            "200",
            "4",
            "/r",
            "curl/8"
        ]
    );
    for (line, (sent, _)) in lines[1..].iter().zip(HOSTILE) {
        let [_, user, _, request, status, _, referer, agent] = combined(line);
        assert!(line.is_ascii(), "{line}");
        assert_eq!((&*status, &*request), ("200", "GET /a?b=%0a HTTP/1.1"));
        assert_eq!(referer, agent);
        let plain = agent
            .replace("\\\"", "\"")
            .replace("\\\\", "\\")
            .replace("\\t", "\t");
        assert!(plain == sent || !sent.is_ascii(), "{plain}");
        assert!(!user.contains(' '));
    }
    let [_, user, _, request, _, bytes, referer, agent] = combined(&lines[HOSTILE.len() + 1]);
    let parts = [&user, &request, &bytes, &referer].map(String::as_str);
    assert_eq!(parts, ["-", "HEAD / HTTP/1.0", "-", "-"]);
    assert_eq!(agent, "a".repeat(256) + "...");
    let [_, _, _, request, ..] = combined(&lines[HOSTILE.len() + 2]);
    assert_eq!(request, "GET /x\\\"\\\\y HTTP/1.1");
    let [_, _, _, request, status, ..] = combined(&lines[HOSTILE.len() + 3]);
    assert_eq!(status, "400");
    assert!(request.starts_with("GET"), "{request}");
    let [_, _, _, request, ..] = combined(&lines[HOSTILE.len() + 4]);
    assert_eq!(request, "GET /h2 HTTP/2.0");
}
