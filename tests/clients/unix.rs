//! curl over a Unix socket to a gateway before a server on another one.

use std::path::Path;

use tollgate::base::clock::Clock;

use crate::common::{Gateway, write};
use crate::program::{CURL, PYTHON, Server};

/// `protocol`: which one the server is spoken to in, and what it calls that.
#[track_caller]
fn check(protocol: &str, version: &str) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let _server = Server::start(&PYTHON, folder.path(), "asgi_server.py", &["app.sock"]);
    let config = tempfile::tempdir().unwrap();
    let upstreams = format!(
        "upstreams: {{ up: {{ servers: [\"unix:{}\"], protocol: {protocol}, health: {{ path: /healthz, every: 1s }} }} }}\n",
        at("app.sock")
    );
    let open = "match: /**\nupstream: up\n";
    write(
        &config,
        ([127, 0, 0, 1], 1).into(),
        &upstreams,
        &[("all", open)],
    );
    let file = config.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listen = format!("listen: [127.0.0.1:0, \"unix:{}\"]\n", at("in.sock"));
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", &listen)).unwrap();
    let gateway = Gateway::start_in(config, Clock::system());
    let ask = |path: &Path, more: &[&str]| {
        let always = ["-sS", "--max-time", "15", "--unix-socket", "in.sock"];
        CURL.succeeds(&mut CURL.command(path, &[&always[..], more].concat()))
    };
    for client in ["--http1.1", "--http2-prior-knowledge"] {
        let seen = ask(folder.path(), &[client, "http://test/version"]);
        assert!(
            seen.contains(&format!("\"version\": \"{version}\"")),
            "{seen}"
        );
        // More than a socket holds, both ways.
        let sent = "0123456789abcdef".repeat(1 << 16);
        std::fs::write(folder.path().join("sent"), &sent).unwrap();
        let upload = ["--data-binary", "@sent", "http://test/echo"];
        let got = ask(folder.path(), &[&[client][..], &upload].concat());
        assert!(got == sent, "{client}: {} bytes came back", got.len());
    }
    let up = format!(
        "tollgate_upstream_server_up{{upstream=\"up\",server=\"unix:{}\"}} 1",
        at("app.sock")
    );
    assert!(gateway.app.metrics().contains(&up));
}

#[test]
fn to_http1() {
    check("h1", "1.1");
}

#[test]
fn to_http2() {
    check("h2", "2");
}
