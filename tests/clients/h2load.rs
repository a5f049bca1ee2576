//! h2load: many requests at once, in each version; and `nghttp`, which comes with it.

use tempfile::tempdir;

use crate::common::assert_contains;
use crate::nginx::Nginx;
use crate::program::{H2LOAD, NGHTTP};
use crate::site::Site;

/// The counts of a report's line: `status codes: 2000 2xx, 0 3xx` has 2000 `2xx`.
#[track_caller]
fn count(report: &str, line: &str, of: &str) -> u32 {
    let counts = report.lines().find_map(|text| text.strip_prefix(line));
    let counts = counts.unwrap_or_else(|| panic!("`{line}` in {report}"));
    let found = counts
        .split(',')
        .find_map(|one| one.trim().strip_suffix(of));
    let found = found.unwrap_or_else(|| panic!("`{of}` in {counts}"));
    found.trim().parse().unwrap()
}

#[track_caller]
fn load(arguments: &str, url: &str) -> String {
    let folder = tempdir().unwrap();
    let arguments: Vec<&str> = arguments.split(' ').chain([url]).collect();
    H2LOAD.succeeds(&mut H2LOAD.command(folder.path(), &arguments))
}

/// 2000 requests, all answered well.
#[track_caller]
fn comes_through(site: &Site) {
    for (more, url) in [
        ("--h1 -m 1", site.http("/")),
        ("--h1 -m 1", site.https("/")),
        ("-m 16", site.http("/")),
        ("-m 16", site.https("/")),
    ] {
        let report = load(&format!("-n 2000 -c 8 -t 1 {more}"), &url);
        assert_eq!(count(&report, "requests:", "succeeded"), 2000, "{report}");
        for bad in ["failed", "errored", "timeout"] {
            assert_eq!(count(&report, "requests:", bad), 0, "{report}");
        }
        assert_eq!(count(&report, "status codes:", "2xx"), 2000, "{report}");
    }
}

#[test]
fn to_http1() {
    let nginx = Nginx::start();
    comes_through(&Site::before(nginx.address));
}

#[test]
fn to_http2() {
    let nginx = Nginx::http2();
    comes_through(&Site::before_http2(nginx.address));
}

/// A limit lets through its number and no other, and refusing breaks no connection.
#[test]
fn exactly_as_many_as_the_limit_says() {
    let nginx = Nginx::start();
    for (more, tls) in [("--h1 -m 1", false), ("-m 16", false), ("-m 16", true)] {
        let site = Site::before(nginx.address);
        let url = match tls {
            true => site.https("/thousand/"),
            false => site.http("/thousand/"),
        };
        let report = load(&format!("-n 2000 -c 8 -t 1 {more}"), &url);
        assert_eq!(count(&report, "status codes:", "2xx"), 1000, "{report}");
        assert_eq!(count(&report, "status codes:", "4xx"), 1000, "{report}");
        assert_eq!(count(&report, "requests:", "errored"), 0, "{report}");
    }
}

#[test]
fn trailers_over_http2() {
    for (nginx, before) in [
        (Nginx::start(), Site::before as fn(_) -> _),
        (Nginx::http2(), Site::before_http2),
    ] {
        let site = before(nginx.address);
        for at in [site.http("/trailers"), site.https("/trailers")] {
            let folder = nginx.folder.path();
            let said = NGHTTP.succeeds(&mut NGHTTP.command(folder, &["-nv", &at]));
            let (_, after) = said.split_once("recv DATA frame <length=15").expect(&said);
            assert_contains(after, &["x-checksum: 42", "; END_STREAM | END_HEADERS"]);
        }
    }
}
