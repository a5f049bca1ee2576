//! WebSockets: `websockets` for Python and `ws` for Node, each in front of its own server.

use tempfile::tempdir;

use crate::common::child;
use crate::program::{NODE, PYTHON, Program, Server};
use crate::site::Site;

const PYTHONS: (&Program, &str, &str) = (&PYTHON, "websockets_server.py", "websockets_client.py");
const NODES: (&Program, &str, &str) = (&NODE, "ws_server.cjs", "ws_client.cjs");

/// Everything that a client does, with and without TLS.
#[track_caller]
fn check((program, server, client): (&Program, &str, &str), tls: bool) {
    let folder = tempdir().unwrap();
    let server = Server::start(program, folder.path(), server, &[]);
    let site = Site::before(server.address);
    let authority = site.authority();
    let authority = authority.to_str().unwrap();
    let url = match tls {
        true => site.https("").replace("https:", "wss:"),
        false => site.http("").replace("http:", "ws:"),
    };
    let arguments: &[&str] = if tls { &[&url, authority] } else { &[&url] };
    let mut client = program.script(folder.path(), client, arguments);
    let done = program.succeeds(client.env("NODE_EXTRA_CA_CERTS", authority));
    let all = "echo pings fragments closes many is_refused";
    assert_eq!(done.split_whitespace().collect::<Vec<_>>().join(" "), all);
    // What the client said at its end reached the server.
    child::line_with(&server.out, "closed 4001 from the client");
}

#[test]
fn of_python() {
    check(PYTHONS, false);
}

#[test]
fn of_python_over_tls() {
    check(PYTHONS, true);
}

#[test]
fn of_node() {
    check(NODES, false);
}

#[test]
fn of_node_over_tls() {
    check(NODES, true);
}
