//! Routes that require a user of certain sources: an issuer of tokens, or the file of API keys.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::child::Server;
use crate::common::{Client, Upstream, http2, write};
use crate::issuers::{A, B, SECRET_OF_A, SECRET_OF_B, token};

const KEY: &str = "x-api-key: first-key\r\n";

const POLICIES: [(&str, &str); 5] = [
    (
        "staff",
        "match: /staff/**\nupstream: up\nrequire: { user: https://a.example }\n",
    ),
    (
        "machines",
        "match: /machines/**\nupstream: up\nrequire: [{ user: [api_keys, https://b.example] }, ip]\n",
    ),
    (
        "tokens",
        "match: /tokens/**\nupstream: up\nrequire: { user: jwt }\n",
    ),
    ("any", "match: /any/**\nupstream: up\nrequire: user\n"),
    (
        "few",
        "match: /few/**\nupstream: up\nrequire: { user: https://a.example }\nlimits: { per-ip: { key: ip, rate: 4/h } }\n",
    ),
];

struct Site {
    server: Server,
    folder: TempDir,
    upstream: Upstream,
}

impl Site {
    fn start() -> Site {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.txt", SECRET_OF_A),
            ("b.txt", SECRET_OF_B),
            ("keys.yaml", "first-key: ann\n"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let upstream = Upstream::plain();
        let gateway = format!(
            "\
admin: 127.0.0.1:0
identity:
  user:
    - {{ jwt: sub, secret: a.txt, issuer: {A} }}
    - {{ api_keys: keys.yaml }}
    - {{ jwt: sub, secret: b.txt, issuer: {B} }}
  token: {{ header: x-api-key }}
"
        );
        write(&folder, upstream.address, &gateway, &POLICIES);
        let server = Server::start(folder.path(), true);
        Site {
            server,
            folder,
            upstream,
        }
    }

    fn explain(&self, path: &str, fields: &str) -> Value {
        let headers = fields.lines().filter_map(|line| line.split_once(": "));
        let headers: Vec<_> = headers.collect();
        let request = json!({ "method": "GET", "path": path, "headers": headers });
        let answer = self.server.ask("POST", "/v1/explain", &request.to_string());
        serde_json::from_str(&answer.text()).unwrap()
    }
}

fn ask(client: &mut Client, path: &str, fields: &str) -> u16 {
    client.send(format!("GET {path} HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
    client.answer().status()
}

/// The fields of requests, with the statuses that `/staff`, `/machines`, `/tokens` and `/any` give.
fn cases() -> Vec<(String, [u16; 4])> {
    let of_a = token("ann", json!(A), SECRET_OF_A);
    let of_b = token("ann", json!(B), SECRET_OF_B);
    vec![
        (of_a.clone(), [200, 403, 200, 200]),
        (of_b.clone(), [403, 200, 200, 200]),
        (KEY.into(), [403, 200, 403, 200]),
        (String::new(), [401; 4]),
        ("x-api-key: guessed\r\n".into(), [401; 4]),
        ("authorization: Basic YTpi\r\n".into(), [401; 4]),
        (token("ann", json!(A), SECRET_OF_B), [401; 4]),
        (
            token("ann", json!("https://c.example"), SECRET_OF_A),
            [401; 4],
        ),
        // A name that looks like one of the other issuer.
        (
            token("https://a.example#ann", json!(B), SECRET_OF_B),
            [403, 200, 200, 200],
        ),
        // The first source that verifies says who the user is. All issuers stand in the place of the first.
        (format!("{of_a}{KEY}"), [200, 403, 200, 200]),
        (format!("{of_b}{KEY}"), [403, 200, 200, 200]),
    ]
}

const PATHS: [&str; 4] = ["/staff/x", "/machines/x", "/tokens/x", "/any/x"];

#[test]
fn only_users_of_the_required_sources_are_served() {
    let site = Site::start();
    let mut client = site.server.connect();
    for (fields, statuses) in cases() {
        // Each twice, as the connection remembers the request before.
        for (path, status) in PATHS.into_iter().zip(statuses).flat_map(|it| [it, it]) {
            assert_eq!(ask(&mut client, path, &fields), status, "{path} {fields}");
            let reached = site.upstream.drain().len();
            assert_eq!(reached, usize::from(status == 200), "{path} {fields}");
            let explanation = site.explain(path, &fields);
            assert_eq!(explanation["status"], status, "{path} {explanation:#}");
        }
    }
    http2::run(async {
        let mut client = http2::Client::connect(site.server.address).await;
        for (fields, statuses) in cases() {
            for (path, status) in PATHS.into_iter().zip(statuses) {
                let mut request = http2::request("GET", path);
                for (name, value) in fields.lines().filter_map(|line| line.split_once(": ")) {
                    request = request.header(name, value);
                }
                let (response, _) = client.begin(request.body(()).unwrap(), true);
                let answer = http2::whole(response.await.unwrap()).await.unwrap();
                assert_eq!(answer.status, status, "{path} {fields}");
            }
        }
    });
}

#[test]
fn a_refusal_names_no_issuer_and_is_explained() {
    let site = Site::start();
    let of_b = token("ann", json!(B), SECRET_OF_B);
    let mut client = site.server.connect();
    client.send(format!("GET /staff/x HTTP/1.1\r\nhost: t\r\n{of_b}\r\n"));
    let refusal = client.answer();
    assert_eq!(refusal.status(), 403);
    assert_eq!(refusal.field("www-authenticate"), None);
    assert_eq!(refusal.field("cache-control"), Some("no-store"));
    assert!(!refusal.text().contains("example"), "{}", refusal.text());
    client.send(format!(
        "POST /staff/x HTTP/1.1\r\nhost: t\r\n{of_b}content-type: application/grpc\r\ncontent-length: 0\r\n\r\n"
    ));
    let refusal = client.answer();
    assert_eq!(refusal.status(), 200);
    assert_eq!(refusal.field("grpc-status"), Some("7"));

    let explanation = site.explain("/staff/x", &of_b);
    assert_eq!(
        explanation["reason"],
        "this route requires a user of https://a.example, and this one is of https://b.example"
    );
    assert_eq!(explanation["who"]["user_source"], B);
    assert_eq!(explanation["route"]["user_sources"], json!([A]));
    let explanation = site.explain("/machines/x", KEY);
    assert_eq!(explanation["who"]["user_source"], "api_keys");
    assert_eq!(explanation["route"]["user_sources"], json!([B, "api_keys"]));
    let explanation = site.explain("/any/x", "");
    assert_eq!(explanation["route"]["user_sources"], Value::Null);
}

#[test]
fn no_spelling_of_a_path_accepts_another_source() {
    let site = Site::start();
    let of_b = token("ann", json!(B), SECRET_OF_B);
    for path in [
        "/staff/x",
        "//staff/x",
        "/%73taff/x",
        "/any/../staff/x",
        "/./staff/x",
        "/staff;a=b/x",
        "/any/%2e%2e/staff/x",
        "/STAFF/x",
        "http://t/staff/x",
    ] {
        let status = ask(&mut site.server.connect(), path, &of_b);
        assert!([400, 403, 404].contains(&status), "{path}: {status}");
        assert!(site.upstream.drain().is_empty(), "{path}");
    }
}

#[test]
fn limits_count_refused_users() {
    let site = Site::start();
    let of_a = token("ann", json!(A), SECRET_OF_A);
    let of_b = token("ann", json!(B), SECRET_OF_B);
    let mut client = site.server.connect();
    let requests = [&of_b, KEY, "x-api-key: guessed\r\n", "", &of_b, &of_a];
    let statuses = requests.map(|fields| ask(&mut client, "/few/x", fields));
    assert_eq!(statuses, [403, 403, 401, 401, 429, 429]);
}

#[test]
fn a_reload_changes_the_required_source() {
    let site = Site::start();
    let of_a = token("ann", json!(A), SECRET_OF_A);
    let of_b = token("ann", json!(B), SECRET_OF_B);
    let mut client = site.server.connect();
    let mut statuses = || [&of_a, &of_b].map(|fields| ask(&mut client, "/staff/x", fields));
    assert_eq!(statuses(), [200, 403]);
    let policy = site.folder.path().join("policies/staff.yaml");
    let text = POLICIES[0].1.replace("a.example", "b.example");
    std::fs::write(&policy, text).unwrap();
    // The gateway may have seen the change before it is told.
    assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
    assert_eq!(statuses(), [403, 200]);
}
