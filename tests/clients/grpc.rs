//! grpcio for Python, in front of its own server.

use tempfile::tempdir;

use crate::common::certificate::Certificate;
use crate::program::{PYTHON, Server};
use crate::site::Site;

/// Everything that `grpc_client.py` does.
#[track_caller]
fn check(tls: bool, behind_tls: bool) {
    let folder = tempdir().unwrap();
    let theirs = Certificate::of(&["127.0.0.1"]);
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (pem, key) = (file("theirs.pem"), file("theirs.key"));
    std::fs::write(&pem, &theirs.pem).unwrap();
    std::fs::write(&key, &theirs.key).unwrap();
    let arguments: &[&str] = if behind_tls { &[&pem, &key] } else { &[] };
    let server = Server::start(&PYTHON, folder.path(), "grpc_server.py", arguments);
    let site = match behind_tls {
        true => {
            let server_tls = "protocol: h2, tls: { roots: theirs.pem }";
            let upstreams =
                format!("{{ up: {{ servers: [\"https://{{upstream}}\"], {server_tls} }} }}");
            Site::with(&upstreams, server.address, &[("theirs.pem", &theirs.pem)])
        }
        false => Site::before_http2(server.address),
    };
    // One file of all that is to be trusted.
    let trusted = file("trusted.pem");
    let own = std::fs::read_to_string(site.authority()).unwrap();
    std::fs::write(&trusted, own + &theirs.pem).unwrap();
    let url = if tls { site.https("") } else { site.http("") };
    let (_, address) = url.split_once("://").unwrap();
    let around = server.address.to_string();
    let word = |tls: bool| if tls { "tls" } else { "plain" };
    let arguments = [address, &around, &trusted, word(tls), word(behind_tls)];
    let mut client = PYTHON.script(folder.path(), "grpc_client.py", &arguments);
    let done = PYTHON.succeeds(&mut client);
    let all = "simple streams errors deadlines cancels many is_refused in_asyncio";
    assert_eq!(done.split_whitespace().collect::<Vec<_>>().join(" "), all);
}

#[test]
fn plain() {
    check(false, false);
}

#[test]
fn over_tls() {
    check(true, false);
}

#[test]
fn over_tls_both_ways() {
    check(true, true);
}

/// A client that may try again sees that it may.
#[test]
fn a_server_that_is_gone() {
    let folder = tempdir().unwrap();
    let mut server = Server::start(&PYTHON, folder.path(), "grpc_server.py", &[]);
    let site = Site::before_http2(server.address);
    server.stop();
    let url = site.http("");
    let (_, address) = url.split_once("://").unwrap();
    let mut client = PYTHON.script(folder.path(), "grpc_unavailable.py", &[address]);
    assert_eq!(PYTHON.succeeds(&mut client).trim(), "UNAVAILABLE");
}
