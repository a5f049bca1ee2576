//! What a response says of the upstream's own place, mapped back to the client's view, over both versions of HTTP.

use crate::common::http2::{Client as Http2Client, request, run, whole};
use crate::common::{Gateway, Message, Upstream};
use crate::gateway;
use crate::server::Server;

/// The names of the fields that may be mapped.
const NAMES: [&str; 4] = ["location", "content-location", "refresh", "set-cookie"];

/// An upstream whose responses have the fields that requests name in `x-say`.
pub fn echo() -> Upstream {
    Upstream::answering(|request| {
        let said = request.fields.iter().filter(|(name, _)| name == "x-say");
        let lines: String = said.map(|(_, line)| format!("{line}\r\n")).collect();
        format!("HTTP/1.1 302 Found\r\n{lines}content-length: 0\r\n\r\n")
    })
}

pub fn start(upstream: &Upstream) -> Gateway {
    let more = "upstreams: { up: [\"http://{upstream}\"], \
                own: { servers: [\"http://{upstream}\"], host: internal.corp.test } }\n";
    let policies = [
        (
            "data",
            "match: /data/**\nupstream: up\nstrip: /data\nmap_back: true\n",
        ),
        (
            "own",
            "match: /own/**\nupstream: own\nstrip: /own\nprefix: /v1\nmap_back: true\n",
        ),
        ("host", "match: /host/**\nupstream: own\nmap_back: true\n"),
        ("off", "match: /off/**\nupstream: own\nstrip: /off\n"),
        ("away", "match: /data/away\nredirect: { to: /foo }\n"),
    ];
    gateway(upstream.address, more, &policies)
}

/// What an upstream says to requests for a path, and what the client gets. An empty text stands for the same. `SELF` is
/// the address of the server.
const MAPPED: [(&str, &str, &str); 26] = [
    (
        "/data/x",
        "location: /foo?a=b#c",
        "location: /data/foo?a=b#c",
    ),
    (
        "/data/x",
        "location: http://SELF/foo",
        "location: /data/foo",
    ),
    (
        "/data/x",
        "location: http://shop.example/foo",
        "location: /data/foo",
    ),
    (
        "/data/x",
        "location: https://shop.example/foo",
        "location: https://shop.example/data/foo",
    ),
    (
        "/data/x",
        "location: //shop.example/foo",
        "location: /data/foo",
    ),
    ("/data/x", "location: //evil.example/foo", ""),
    ("/data/x", "location: https://evil.example/foo", ""),
    ("/data/x", "location: /\\evil.example", ""),
    ("/data/x", "location: foo", ""),
    ("/data/x", "location: ../foo", ""),
    ("/data/x", "location: /../foo", ""),
    (
        "/data/x",
        "content-location: /foo",
        "content-location: /data/foo",
    ),
    (
        "/data/x",
        "refresh: 0; url=/foo",
        "refresh: 0; url=/data/foo",
    ),
    (
        "/data/x",
        "set-cookie: sid=1; Path=/; HttpOnly",
        "set-cookie: sid=1; Path=/data; HttpOnly",
    ),
    ("/data/x", "set-cookie: sid=1; Domain=shop.example", ""),
    ("/data/x", "set-cookie: __Host-sid=1; Path=/; Secure", ""),
    (
        "/own/x",
        "location: http://internal.corp.test/v1/foo",
        "location: /own/foo",
    ),
    (
        "/own/x",
        "location: http://shop.example/v1/foo",
        "location: /own/foo",
    ),
    ("/own/x", "location: /v1", "location: /own"),
    ("/own/x", "location: /foo", ""),
    (
        "/own/x",
        "set-cookie: sid=1; Domain=.corp.test; Path=/v1/a",
        "set-cookie: sid=1; Path=/own/a",
    ),
    (
        "/host/x",
        "location: http://internal.corp.test/foo",
        "location: /foo",
    ),
    (
        "/host/x",
        "location: http://internal.corp.test//evil.example",
        "",
    ),
    (
        "/host/x",
        "set-cookie: sid=1; Domain=internal.corp.test",
        "set-cookie: sid=1",
    ),
    ("/off/x", "location: http://internal.corp.test/foo", ""),
    ("/off/x", "set-cookie: sid=1; Path=/; Domain=corp.test", ""),
];

/// The cases, with the address of the server.
fn cases(upstream: &Upstream) -> impl Iterator<Item = (&'static str, String, String)> {
    let address = upstream.address.to_string();
    MAPPED.into_iter().map(move |(path, said, expected)| {
        let expected = if expected.is_empty() { said } else { expected };
        let filled = |text: &str| text.replace("SELF", &address);
        (path, filled(said), filled(expected))
    })
}

/// The fields of a response that may be mapped, in order.
pub fn mapped(answer: &Message) -> Vec<String> {
    let fields = answer.fields.iter();
    let fields = fields.filter(|(name, _)| NAMES.contains(&name.as_str()));
    fields
        .map(|(name, value)| format!("{name}: {value}"))
        .collect()
}

#[test]
fn responses_speak_of_the_clients_view() {
    let upstream = echo();
    let gateway = start(&upstream);
    let mut client = gateway.connect();
    let mut wrong = Vec::new();
    for (path, said, expected) in cases(&upstream) {
        client.send(format!(
            "GET {path} HTTP/1.1\r\nhost: shop.example\r\nx-say: {said}\r\n\r\n"
        ));
        let answer = mapped(&client.answer());
        if answer != [&*expected] {
            wrong.push(format!("{path} {said}: {answer:?}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn clients_of_http2_get_the_same() {
    let upstream = echo();
    let gateway = start(&upstream);
    run(async {
        let mut client = Http2Client::connect(gateway.address).await;
        for (path, said, expected) in cases(&upstream) {
            let uri = format!("http://shop.example{path}");
            let request = request("GET", "/").uri(uri).header("x-say", &said);
            let (answer, _) = client.begin(request.body(()).unwrap(), true);
            let answer = whole(answer.await.unwrap()).await.unwrap();
            let (name, value) = expected.split_once(": ").unwrap();
            assert_eq!(answer.field(name), Some(value), "{path} {said}");
        }
    });
}

#[test]
fn servers_of_http2_are_mapped_too() {
    let server = Server::start(|mut asked| async move {
        let head = http::Response::builder()
            .status(302)
            .header("location", "http://internal.corp.test/v1/foo")
            .header("set-cookie", "sid=1; Path=/");
        let _ = asked.respond.send_response(head.body(()).unwrap(), true);
    });
    let more = "upstreams: { up: { servers: [\"http://{upstream}\"], protocol: h2, host: internal.corp.test } }\n";
    let policy = "match: /data/**\nupstream: up\nstrip: /data\nprefix: /v1\nmap_back: true\n";
    let gateway = gateway(server.address, more, &[("all", policy)]);
    let answer = gateway.connect().get("/data/a");
    assert_eq!(
        mapped(&answer),
        ["location: /data/foo", "set-cookie: sid=1; Path=/data"]
    );
}

/// All fields of a name are mapped, and those that stay keep their place among them.
#[test]
fn several_cookies_of_one_response() {
    let upstream = echo();
    let gateway = start(&upstream);
    let mut client = gateway.connect();
    client.send(
        "GET /data/x HTTP/1.1\r\nhost: shop.example\r\nx-say: set-cookie: a=1; Path=/\r\n\
         x-say: set-cookie: __Host-b=2; Path=/; Secure\r\nx-say: x-other: 1\r\n\
         x-say: set-cookie: c=3; Path=/c\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!(
        mapped(&answer),
        [
            "set-cookie: a=1; Path=/data",
            "set-cookie: __Host-b=2; Path=/; Secure",
            "set-cookie: c=3; Path=/data/c"
        ]
    );
    assert_eq!(answer.field("x-other"), Some("1"));
}

/// Redirects of the gateway itself lead where the policy says.
#[test]
fn responses_of_the_gateway_stay() {
    let upstream = echo();
    let gateway = start(&upstream);
    let answer = gateway.connect().get("/data/away");
    assert_eq!(answer.field("location"), Some("/foo"));
    assert!(upstream.drain().is_empty());
}
