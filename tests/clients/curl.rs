//! curl: every version, uploads, parts, trailers, and what it makes of a refusal.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{assert_contains, child};
use crate::nginx::Nginx;
use crate::program::CURL;
use crate::site::Site;

/// Ways to speak to a gateway, each with the version that comes of it.
const WAYS: &[(&str, bool, &str)] = &[
    ("--http1.0", false, "1.1"),
    ("--http1.1", false, "1.1"),
    // Asks for an upgrade that it need not get.
    ("--http2", false, "1.1"),
    ("--http2-prior-knowledge", false, "2"),
    ("--http1.1", true, "1.1"),
    ("--http2", true, "2"),
];

fn url(site: &Site, tls: bool, path: &str) -> String {
    match tls {
        true => site.https(path),
        false => site.http(path),
    }
}

fn curl(site: &Site, arguments: &[&str]) -> Command {
    let authority = site.authority();
    let always = ["-sS", "--max-time", "15", "--cacert"];
    let authority = [authority.to_str().unwrap()];
    let arguments = [&always[..], &authority, arguments].concat();
    CURL.command(site.gateway.folder.path(), &arguments)
}

#[track_caller]
fn says_of(site: &Site, arguments: &[&str]) -> String {
    CURL.succeeds(&mut curl(site, arguments))
}

/// Bytes that are nowhere the same.
fn bytes(length: usize) -> String {
    let text = (0..).map(|number| format!("{number:07}\n"));
    text.take(length / 8).collect()
}

/// Every way to ask, for every way to speak: GET, HEAD, a part, the rest, an upload.
fn everything(site: &Site, nginx: &Nginx) {
    let text = bytes(1 << 20);
    nginx.put("large", &text);
    nginx.put("here", "fine");
    let written = "\n%{http_code} %{http_version}";
    for (number, (version, tls, expected)) in WAYS.iter().enumerate() {
        let at = |path: &str| url(site, *tls, path);
        let ask = |more: &[&str]| says_of(site, &[&[*version, "-w", written], more].concat());
        assert_eq!(ask(&[&at("/here")]), format!("fine\n200 {expected}"));
        let head = ask(&["-I", &at("/large")]).to_lowercase();
        assert_contains(&head, &["content-length: 1048576\r\n", "\r\n\r\n\n200"]);
        let part = ask(&["-r", "8-15", &at("/large")]);
        assert_eq!(part, format!("0000001\n\n206 {expected}"));
        let halved = site.gateway.folder.path().join("halved");
        std::fs::write(&halved, &text[..1 << 19]).unwrap();
        let rest = ask(&["-C", "-", "-o", "halved", &at("/large")]);
        assert_eq!(rest, format!("\n206 {expected}"));
        assert!(std::fs::read_to_string(&halved).unwrap() == text, "resumed");
        let name = format!("/put{number}");
        // nginx says no 100 in HTTP/2, for which one waits a second.
        let options = ["-H", "expect:", "-T", "halved", "-o", "/dev/null"];
        let sent = ask(&[&options[..], &[&at(&name)]].concat());
        assert_eq!(sent, format!("\n201 {expected}"));
        assert!(nginx.has(&name[1..]) == text.as_bytes(), "uploaded");
    }
}

#[test]
fn everything_to_http1() {
    let nginx = Nginx::start();
    everything(&Site::before(nginx.address), &nginx);
}

#[test]
fn everything_to_http2() {
    let nginx = Nginx::http2();
    everything(&Site::before_http2(nginx.address), &nginx);
}

/// A client that waits for 100 gets it at once, and one that is refused sends nothing.
#[test]
fn expects_100_continue() {
    let nginx = Nginx::start();
    let site = Site::before(nginx.address);
    let body = site.gateway.folder.path().join("body");
    std::fs::write(&body, bytes(64 << 10)).unwrap();
    let expect = ["-v", "-H", "expect: 100-continue", "--expect100-timeout"];
    let expect = [&expect[..], &["60", "-w", "%{http_code} %{size_upload}"]].concat();
    let sends = ["--http1.1", "-T", "body", "-o", "/dev/null"];
    for tls in [false, true] {
        let to = url(&site, tls, "/sent");
        let ended = child::finish(&mut curl(&site, &[&expect[..], &sends, &[&to]].concat()));
        assert_contains(&ended.err, &["< HTTP/1.1 100 Continue"]);
        assert!(ended.out.ends_with("65536"), "{ended:?}");
        assert!(nginx.has("sent") == std::fs::read(&body).unwrap());
    }
    for _ in 0..2 {
        says_of(&site, &[&site.http("/few/")]);
    }
    let to = site.http("/few/");
    let refused = says_of(&site, &[&expect[..], &sends, &[&to]].concat());
    assert_eq!(refused, "429 0");
}

/// A body whose length nobody knows before its end.
#[test]
fn uploads_from_standard_input() {
    let nginx = Nginx::start();
    let site = Site::before(nginx.address);
    let text = bytes(3 << 20);
    for (version, tls, _) in &WAYS[1..] {
        let to = url(&site, *tls, "/piped");
        let options = [*version, "-T", "-", "-o", "/dev/null", "-w", "%{http_code}"];
        let mut command = curl(&site, &[&options[..], &[&to]].concat());
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        let out = child.wait_with_output().unwrap();
        assert_contains(&String::from_utf8_lossy(&out.stdout), &["20"]);
        assert!(nginx.has("piped") == text.as_bytes(), "{version} {out:?}");
        std::fs::remove_file(nginx.folder.path().join("files/piped")).unwrap();
    }
}

/// Over HTTP/1.1, where this curl shows them; `nghttp` of h2load's package shows them over HTTP/2.
#[test]
fn hears_trailers() {
    let nginx = Nginx::start();
    let site = Site::before(nginx.address);
    for tls in [false, true] {
        let at = url(&site, tls, "/trailers");
        let whole = says_of(&site, &["-i", "-H", "te: trailers", "--http1.1", &at]);
        let (_, after) = whole.split_once("with a checksum").expect(&whole);
        assert_eq!(after.trim_end(), "x-checksum: 42", "{whole}");
    }
}

/// Without TLS curl 7.88 takes no connection of HTTP/2 twice.
#[test]
fn many_at_once_over_one_connection() {
    let nginx = Nginx::start();
    let site = Site::before(nginx.address);
    let many = site.https("/index.html?[1-200]");
    let parallel = ["-Z", "--parallel-max", "50", "-o", "/dev/null", "--http2"];
    let written = ["-w", "%{http_code} %{http_version} %{num_connects}\n"];
    let all = says_of(&site, &[&parallel[..], &written, &[&many]].concat());
    assert_eq!(all.lines().count(), 200, "{all}");
    assert!(all.lines().all(|line| line.starts_with("200 2 ")), "{all}");
    let connections = all.lines().filter(|line| line.ends_with(" 1")).count();
    assert_eq!(connections, 1, "{all}");
}

#[test]
fn reads_a_refusal() {
    let nginx = Nginx::start();
    for (version, tls, expected) in &WAYS[1..] {
        if *version == "--http2-prior-knowledge" {
            // This curl takes no such connection twice.
            continue;
        }
        let site = Site::before(nginx.address);
        let at = url(&site, *tls, "/few/");
        // All over one connection, which the refusal leaves open.
        let open = url(&site, *tls, "/");
        let written = ["-w", "|%{http_code} %{http_version} %{num_connects}|"];
        let all = [&["-i", version], &written[..], &[&at, &at, &at, &open]].concat();
        let all = says_of(&site, &all);
        let answers: Vec<&str> = all.split('|').collect();
        let ends = [answers[1], answers[3], answers[5], answers[7]];
        let expected = ["200 ", "200 ", "429 ", "200 "].map(|code| format!("{code}{expected}"));
        assert_eq!(ends[0], format!("{} 1", expected[0]));
        for place in 1..4 {
            assert_eq!(ends[place], format!("{} 0", expected[place]), "{all}");
        }
        let (head, body) = answers[4].split_once("\r\n\r\n").expect(&all);
        let body: Value = serde_json::from_str(body).expect(body);
        assert_eq!(
            body["type"],
            "https://iana.org/assignments/http-problem-types#quota-exceeded"
        );
        assert_eq!(body["status"], 429);
        assert_eq!(body["violated-policies"], serde_json::json!(["few"]));
        let head = head.to_lowercase();
        assert_contains(&head, &["content-type: application/problem+json"]);
        let wait = head
            .lines()
            .find_map(|line| line.strip_prefix("retry-after: "));
        let wait: u64 = wait.expect(&head).parse().unwrap();
        assert!((3590..=3600).contains(&wait), "{wait}");
    }
}

/// `--retry` waits as long as `Retry-After` says. By itself it would come after a second, too early.
#[test]
fn comes_back_when_it_is_told_to() {
    let nginx = Nginx::start();
    let site = Site::before(nginx.address);
    let at = site.http("/pair/");
    let options = ["-v", "--retry", "3", "-w", "|%{http_code}|", &at, &at];
    let ended = child::finish(&mut curl(&site, &options));
    assert!(ended.out.ends_with("fine|200|"), "{ended:?}");
    assert_contains(&ended.err, &["< HTTP/1.1 429", "< retry-after: 2\r\n"]);
    assert_eq!(ended.err.matches("> GET").count(), 3, "{ended:?}");
}
