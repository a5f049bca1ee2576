//! httpx for Python, in front of hypercorn.

use tempfile::tempdir;

use crate::program::{PYTHON, Server};
use crate::site::Site;

/// Everything that `httpx_client.py` does, in one version.
#[track_caller]
fn check(version: &str, tls: bool, behind: &str) {
    let folder = tempdir().unwrap();
    let server = Server::start(&PYTHON, folder.path(), "asgi_server.py", &[]);
    let site = match behind {
        "2" => Site::before_http2(server.address),
        _ => Site::before(server.address),
    };
    let direct = format!("http://{}", server.address);
    let (url, authority) = match tls {
        true => (site.https(""), site.authority()),
        false => (site.http(""), Default::default()),
    };
    let mut arguments = vec![&*url, &direct, version, behind];
    if tls {
        arguments.push(authority.to_str().unwrap());
    }
    let mut client = PYTHON.script(folder.path(), "httpx_client.py", &arguments);
    let done = PYTHON.succeeds(&mut client);
    let all = "simple streams_up streams_down leaves is_refused many";
    assert_eq!(done.split_whitespace().collect::<Vec<_>>().join(" "), all);
}

#[test]
fn http1() {
    check("1.1", false, "1.1");
}

#[test]
fn http1_over_tls() {
    check("1.1", true, "1.1");
}

#[test]
fn http2() {
    check("2", false, "1.1");
}

#[test]
fn http2_over_tls() {
    check("2", true, "1.1");
}

#[test]
fn http2_to_http2() {
    check("2", true, "2");
}
