//! One gateway among three, in the dashboard of one of them.

use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::browser::Browser;
use crate::common::child::Server;
use crate::common::{Client, Upstream, wait_until, write};
use crate::dashboard::look;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const POLICY: &str = "match: /**\nupstream: up\nlimits:\n  per-ip: { key: ip, rate: 5/h }\n";

/// A gateway that wants [`TOKEN`] from operators if it has no peers.
fn start(upstream: SocketAddr, peers: &[SocketAddr]) -> (Server, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("some.token"), TOKEN).unwrap();
    let admin = match peers {
        [] => "{ address: 127.0.0.1:0, token_file: some.token }".to_owned(),
        _ => {
            let peers: Vec<String> = peers.iter().map(|peer| format!("\"{peer}\"")).collect();
            let peers = peers.join(", ");
            format!("{{ address: 127.0.0.1:0, peers: [{peers}], peers_token_file: some.token }}")
        }
    };
    let gateway =
        format!("admin: {admin}\nidentity: {{ ip: {{ trusted_proxies: [127.0.0.0/8] }} }}\n");
    write(&folder, upstream, &gateway, &[("shop", POLICY)]);
    (Server::start(folder.path(), true), folder)
}

/// Sends requests of which the gateway refuses all but five.
fn rain(server: &Server, ip: &str, count: usize) {
    let mut client: Client = server.connect();
    for _ in 0..count {
        client.send(format!(
            "GET / HTTP/1.1\r\nhost: t\r\nx-forwarded-for: {ip}\r\n\r\n"
        ));
        client.answer();
    }
}

#[test]
fn a_gateway_among_three_shows_the_figures_of_all() {
    let upstream = Upstream::plain();
    let (second, _second_folder) = start(upstream.address, &[]);
    let (third, _third_folder) = start(upstream.address, &[]);
    // A peer that accepts connections and never responds.
    let silent_listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent_listener.local_addr().unwrap();
    let peers = [second.admin.unwrap(), third.admin.unwrap(), silent];
    let (first, _folder) = start(upstream.address, &peers);
    rain(&first, "203.0.113.9", 25);
    rain(&second, "203.0.113.9", 35);
    rain(&second, "203.0.113.8", 15);
    rain(&third, "203.0.113.9", 45);

    let figures = || -> Value {
        let response = first.ask("GET", "/v1/gateways", "");
        assert_eq!(response.status(), 200, "{}", response.text());
        serde_json::from_slice(&response.body).unwrap()
    };
    wait_until("all refusals are recorded", || {
        figures()["sum"]["refused"] == 100
    });
    let all = figures();
    assert_eq!(all["sum"]["requests"], 120);
    assert_eq!(all["sum"]["gateways"], 3);
    assert_eq!(all["sum"]["limits"], json!({ "per-ip": 100 }));
    assert_eq!(
        all["sum"]["keys"],
        json!([
            { "limit": "per-ip", "key": "ip=203.0.113.9", "count": 90 },
            { "limit": "per-ip", "key": "ip=203.0.113.8", "count": 10 },
        ])
    );
    assert_eq!(all["gateways"][0]["refused"], 20);
    assert_eq!(all["gateways"][1]["refused"], 40);
    assert_eq!(
        all["gateways"][3],
        json!({ "address": silent, "error": "no response in 2 s" })
    );

    let browser = Browser::open(1_440, 1_900);
    browser.go(&format!("http://{}/", first.admin.unwrap()));
    wait_until("the gateways are listed", || {
        let text = browser.text("#gateways");
        let parts = [
            "3 of 4 responded",
            "this one",
            "all 3 that responded",
            "no figures",
            "per-ip 100",
            "ip=203.0.113.9",
        ];
        parts.iter().all(|part| text.contains(part))
    });
    look(&browser, "now");

    third.signal(rustix::process::Signal::KILL);
    wait_until("the third one is missing", || {
        browser.text("#gateways").contains("2 of 4 responded")
    });
    let all = figures();
    assert_eq!(all["sum"]["gateways"], 2);
    let error = all["gateways"][2]["error"].as_str().unwrap();
    assert!(error.contains("refused"), "{error}");
    // Without the token a peer says nothing.
    let without = second.ask("GET", "/v1/gateways", "");
    assert_eq!(without.status(), 401);
}
