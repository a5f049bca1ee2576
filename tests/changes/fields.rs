//! Header fields that policies set, add and remove. No client injects a field or sees the identity of another client.

use serde_json::json;

use crate::common::http2::{Client as Http2Client, request, run, whole};
use crate::common::{Gateway, Message, Upstream, ok};
use crate::server::Server;
use crate::{gateway, token};

pub const IDENTITY: &str = "\
workers: 1
identity:
  user: { jwt: sub, secret: secret.txt }
  plan: { jwt: plan, default: free }
  tenant: { jwt: org.id }
  groups: { jwt: groups }
  device: { header: x-device }
  kind: { query: kind }
  account: { path: account }
plans: { free: { multiply: 1 }, gold: { multiply: 10 } }
";

/// The values of all fields of this name.
pub fn values<'m>(message: &'m Message, name: &str) -> Vec<&'m str> {
    let fields = message.fields.iter().filter(|(other, _)| other == name);
    fields.map(|(_, value)| value.as_str()).collect()
}

/// Sends a GET with these lines over a connection of its own. Returns the request that the upstream got.
fn seen(gateway: &Gateway, upstream: &Upstream, target: &str, lines: &str) -> Message {
    let mut client = gateway.connect();
    client.send(format!(
        "GET {target} HTTP/1.1\r\nhost: Shop.Example:80\r\n{lines}\r\n"
    ));
    assert_eq!(client.answer().status(), 200);
    upstream.next()
}

pub const SETS: &str = "\
match: /accounts/{account}/**
upstream: up
request:
  set:
    x-user: ${user}
    x-plan: plan ${plan}
    x-tenant: ${tenant}
    x-groups: ${groups}
    x-device: ${device}
    x-kind: ${kind}
    x-account: ${account}
    x-client: ${ip}
    x-where: ${host} by ${route}
    x-cost: $$5
  add: { x-trail: gate, x-both: '${user} of ${tenant}' }
  remove: [cookie, X-Secret]
";

#[test]
fn requests_get_what_the_policy_says() {
    let upstream = Upstream::plain();
    let gateway = gateway(upstream.address, IDENTITY, &[("shop/all", SETS)]);
    let claims = json!({
        "sub": "ann", "plan": "gold", "org": { "id": "acme" }, "groups": ["b", "a,c"],
    });
    let lines = format!(
        "{}cookie: a=b\r\nx-secret: 1\r\nx-trail: own\r\nx-device: d1\r\nx-user: eve\r\n",
        token(&claims)
    );
    let request = seen(&gateway, &upstream, "/accounts/a7/x?kind=k1", &lines);
    for (name, expected) in [
        ("x-user", &["ann"][..]),
        ("x-plan", &["plan gold"]),
        ("x-tenant", &["acme"]),
        ("x-groups", &["a%2Cc, b"]),
        ("x-device", &["d1"]),
        ("x-kind", &["k1"]),
        ("x-account", &["a7"]),
        ("x-client", &["127.0.0.1"]),
        ("x-where", &["shop.example:80 by shop/all"]),
        ("x-cost", &["$5"]),
        ("x-trail", &["own", "gate"]),
        ("x-both", &["ann of acme"]),
        ("cookie", &[]),
        ("x-secret", &[]),
    ] {
        assert_eq!(values(&request, name), expected, "{name}");
    }
}

/// A field that is set from an absent identity is not there at all, however the client spells its own.
#[test]
fn clients_cannot_set_what_the_policy_sets() {
    let upstream = Upstream::plain();
    let gateway = gateway(upstream.address, IDENTITY, &[("all", SETS)]);
    let lines = "x-user: eve\r\nX_User: eve\r\nx.user: eve\r\nX-USER: eve\r\nx_tenant: evil\r\n\
        x-both: kept\r\nx_secret: 1\r\nConnection: x-user, x-plan\r\n";
    let request = seen(&gateway, &upstream, "/accounts/a/x", lines);
    let names: Vec<_> = request.fields.iter().map(|(name, _)| &**name).collect();
    for name in [
        "x-user", "x_user", "x.user", "x-tenant", "x_tenant", "x_secret", "x-kind",
    ] {
        assert!(!names.contains(&name), "{name} in {names:?}");
    }
    // `add` leaves the client's own field, and adds nothing without an identity.
    assert_eq!(values(&request, "x-both"), ["kept"]);
    assert_eq!(values(&request, "x-plan"), ["plan free"]);
    // Trailers are fields to some servers.
    let mut client = gateway.connect();
    client.send(
        "POST /accounts/a/x HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\nx-user: eve\r\nX_Plan: gold\r\ncookie: a\r\nx-sum: 7\r\n\r\n",
    );
    assert_eq!(client.answer().status(), 200);
    let request = upstream.next();
    assert_eq!(request.trailers, [("x-sum".to_owned(), "7".to_owned())]);
}

/// The value of a claim never ends a field, and two values never look the same.
#[test]
fn values_cannot_leave_their_field() {
    let upstream = Upstream::plain();
    let gateway = gateway(upstream.address, IDENTITY, &[("all", SETS)]);
    for (name, expected) in [
        ("ann", Some("ann")),
        ("Ann Lee", Some("Ann Lee")),
        ("\u{e9}ve", Some("%C3%A9ve")),
        ("%C3%A9ve", Some("%25C3%25A9ve")),
        ("a, admin", Some("a%2C admin")),
        ("a; role=\"b\\", Some("a%3B role=%22b%5C")),
        ("\u{1f600}", Some("%F0%9F%98%80")),
        // Such a name is none.
        ("a\r\nx-admin: 1", None),
        ("a\nb", None),
        ("a\rb", None),
        ("a\0b", None),
        ("a\u{85}b", None),
        ("a\u{7f}", None),
        (" a", None),
    ] {
        let lines = token(&json!({ "sub": name, "org": { "id": name }, "groups": [name, "z"] }));
        let request = seen(&gateway, &upstream, "/accounts/a/x", &lines);
        let expected: Vec<&str> = expected.into_iter().collect();
        assert_eq!(values(&request, "x-user"), expected, "{name:?}");
        assert_eq!(values(&request, "x-tenant"), expected, "{name:?}");
        let is_injected = |(name, _): &(String, String)| name == "x-admin";
        assert!(!request.fields.iter().any(is_injected), "{name:?}");
    }
}

#[test]
fn servers_of_http2_get_the_same() {
    let server = Server::start(|asked| async move {
        let field = |name| asked.field(name).unwrap_or("none").to_owned();
        asked.tell(format!(
            "{} {} {} {}",
            field("x-user"),
            field("x-where"),
            field("cookie"),
            field("x_user")
        ));
        asked.ok("fine");
    });
    let more = format!(
        "{IDENTITY}upstreams: {{ up: {{ servers: [\"http://{{upstream}}\"], protocol: h2 }} }}\n"
    );
    let gateway = gateway(server.address, &more, &[("all", SETS)]);
    let mut client = gateway.connect();
    for (name, expected) in [("\u{e9}", "%C3%A9"), ("a\r\nb: c", "none")] {
        let lines = token(&json!({ "sub": name }));
        client.send(format!(
            "GET /accounts/a/x HTTP/1.1\r\nhost: t\r\ncookie: a=b\r\nx_user: eve\r\n{lines}\r\n"
        ));
        assert_eq!(client.answer().status(), 200);
        assert_eq!(server.next(), format!("{expected} t by all none none"));
    }
}

const ANSWERS: &str = "\
match: /**
upstream: up
limits: { few: { key: user or ip, rate: 2/h } }
response:
  set:
    strict-transport-security: max-age=31536000
    cache-control: max-age=60
    content-type: text/x-own
    x-served: ${user} at ${host} by ${route}
  add: { vary: origin }
  remove: [server, x-powered-by]
";

/// Refusals are remembered, by connections and by the worker. No client sees the fields of another one.
#[test]
fn responses_get_what_the_policy_says() {
    let upstream = Upstream::answering(|_| {
        let fields = "server: x\r\nX-Powered-By: y\r\nvary: cookie\r\ncontent-type: text/plain\r\n";
        ok("fine").replacen("\r\n", &format!("\r\n{fields}x-served: z\r\n"), 1)
    });
    let gateway = gateway(upstream.address, IDENTITY, &[("all", ANSWERS)]);
    let names = ["ann", "bob", "\u{e9}"];
    let mut clients: Vec<_> = names.iter().map(|_| gateway.connect()).collect();
    for round in 0..8 {
        for (name, client) in names.iter().zip(&mut clients) {
            let lines = token(&json!({ "sub": name }));
            client.send(format!(
                "GET /a HTTP/1.1\r\nhost: Shop.Example\r\n{lines}\r\n"
            ));
            let response = client.answer();
            let is_served = round < 2;
            assert_eq!(response.status(), if is_served { 200 } else { 429 });
            let shown_name = name.replace('\u{e9}', "%C3%A9");
            let served = format!("{shown_name} at shop.example by all");
            assert_eq!(values(&response, "x-served"), [served], "round {round}");
            assert_eq!(
                values(&response, "strict-transport-security"),
                ["max-age=31536000"]
            );
            assert_eq!(values(&response, "server"), [""; 0]);
            assert_eq!(values(&response, "x-powered-by"), [""; 0]);
            let (vary, kept, kind) = match is_served {
                true => (&["cookie", "origin"][..], "max-age=60", "text/x-own"),
                // What describes the gateway's own content stays.
                false => (&["origin"][..], "no-store", "application/problem+json"),
            };
            assert_eq!(values(&response, "vary"), vary);
            assert_eq!(values(&response, "cache-control"), [kept]);
            assert_eq!(values(&response, "content-type"), [kind]);
            assert!(response.field("ratelimit").is_some());
        }
    }
    // Without a user the field is not there, not even the server's own.
    let mut client = gateway.connect();
    let response = client.get("/a");
    assert_eq!(response.status(), 200);
    assert_eq!(values(&response, "x-served"), [""; 0]);
}

#[test]
fn responses_of_the_gateway_itself_are_changed_too() {
    let upstream = Upstream::plain();
    let changes = "response: { set: { x-hsts: '1' }, remove: [www-authenticate] }\n";
    let policy =
        |matches: &str, more: &str| format!("match: {matches}\nupstream: up\n{more}{changes}");
    let gateway = gateway(
        upstream.address,
        IDENTITY,
        &[
            ("user", &policy("/user", "require: user\n")),
            ("small", &policy("/small", "max_body: 1B\n")),
        ],
    );
    let mut client = gateway.connect();
    let response = client.get("/user");
    assert_eq!(response.status(), 401);
    assert_eq!(values(&response, "x-hsts"), ["1"]);
    assert_eq!(values(&response, "www-authenticate"), [""; 0]);
    client.send("POST /small HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nab");
    let response = client.answer();
    assert_eq!(
        (response.status(), values(&response, "x-hsts")),
        (413, vec!["1"])
    );
    // A request without a route has no policy.
    let response = gateway.connect().get("/other");
    assert_eq!((response.status(), response.field("x-hsts")), (404, None));
    run(async {
        let mut client = Http2Client::connect(gateway.address).await;
        let asked = request("GET", "/user").body(()).unwrap();
        let response = client.begin(asked, true).0;
        let answer = whole(response.await.unwrap()).await.unwrap();
        assert_eq!(answer.field("x-hsts"), Some("1"));
    });
}

/// A spelling that servers take for the path of a policy has the changes of that policy.
#[test]
fn other_spellings_do_not_escape_the_changes() {
    let upstream = Upstream::plain();
    let gateway = gateway(
        upstream.address,
        IDENTITY,
        &[
            (
                "all",
                "match: /**\nupstream: up\nrequest: { set: { x-all: all } }\n",
            ),
            (
                "admin",
                "match: /admin/**\nupstream: up\nrequest: { set: { x-role: \"${user}\" }, remove: [x-debug] }\n",
            ),
        ],
    );
    for target in [
        "/admin/x",
        "/ADMIN/x",
        "/%61dmin/x",
        "/x/..%2fadmin/x",
        "//admin/x",
        "/admin;a/x",
    ] {
        let request = seen(
            &gateway,
            &upstream,
            target,
            "x-role: boss\r\nx-debug: 1\r\n",
        );
        assert_eq!(values(&request, "x-role"), [""; 0], "{target}");
        assert_eq!(values(&request, "x-debug"), [""; 0], "{target}");
    }
    let request = seen(&gateway, &upstream, "/other", "x-role: boss\r\n");
    assert_eq!(values(&request, "x-role"), ["boss"]);
    assert_eq!(values(&request, "x-all"), ["all"]);
}
