//! Node's fetch, in front of Node's own servers.

use tempfile::tempdir;

use crate::common::child;
use crate::program::{NODE, Server};
use crate::site::Site;

/// Everything that `fetch_client.mjs` does.
#[track_caller]
fn check(tls: bool, behind: &str) {
    let folder = tempdir().unwrap();
    let server = Server::start(&NODE, folder.path(), "http_server.mjs", &[&behind[..1]]);
    let around = child::line_with(&server.out, "around ");
    let around = format!("http://127.0.0.1:{}", &around["around ".len()..]);
    let site = match behind {
        "2.0" => Site::before_http2(server.address),
        _ => Site::before(server.address),
    };
    let url = if tls { site.https("") } else { site.http("") };
    let arguments = [&*url, &around, behind];
    let mut client = NODE.script(folder.path(), "fetch_client.mjs", &arguments);
    let done = NODE.succeeds(client.env("NODE_EXTRA_CA_CERTS", site.authority()));
    let all = "simple streams_up streams_down aborts many is_refused";
    assert_eq!(done.split_whitespace().collect::<Vec<_>>().join(" "), all);
}

#[test]
fn plain() {
    check(false, "1.1");
}

#[test]
fn over_tls() {
    check(true, "1.1");
}

#[test]
fn to_http2() {
    check(false, "2.0");
}
