//! Every trick as an attempt to pass a limit: the server never gets more than the limit admits.

use std::thread;

use crate::addresses::CLAIMS;
use crate::case::{Asker, Random, Site};
use crate::common::raw::{END_HEADERS, END_STREAM, HEADERS, Raw, frame, get};
use crate::common::wait_until;
use crate::paths::SPELLINGS;

pub const FEW: usize = 5;

const BY_IP: (&str, &str) = (
    "all",
    "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 5/h } }\n",
);

/// What is not `/api/item`, on which there is no limit.
const REST: (&str, &str) = ("rest", "match: /**\nupstream: up\n");

/// Sends each request over a connection of its own, waits for what is answered, and looks at what the
/// server got when all connections are over.
pub fn over_connections(site: &Site, requests: impl IntoIterator<Item = String>) {
    for request in requests {
        let mut asker = site.connect();
        asker.send(&request);
        let answer = asker.answer(request.starts_with("HEAD ")).unwrap();
        let status = answer.status();
        assert!(
            matches!(status, 200 | 400 | 401 | 429),
            "{status} to {request:?}"
        );
    }
}

#[track_caller]
pub fn admitted(site: &Site, exactly: usize) {
    wait_until("all connections are over", || {
        site.gateway
            .app
            .metrics()
            .contains("tollgate_connections_open 0")
    });
    let log = site.recorder.take();
    assert_eq!(log.unclean, Vec::<String>::new());
    let reached = log.requests.len() + log.begun.len();
    assert_eq!(reached, exactly, "{:?}", log.requests);
}

#[test]
fn by_spellings_of_the_path() {
    let item = (
        "item",
        "match: /api/item\nupstream: up\nlimits: { few: { key: ip, rate: 5/h } }\n",
    );
    let site = Site::start("", &[item, REST]);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n");
    over_connections(&site, SPELLINGS.iter().map(|path| get(path)));
    over_connections(
        &site,
        SPELLINGS.iter().map(|path| get(&format!("http://u{path}"))),
    );
    // These are no path for sure.
    let refused = [
        "/api/item%00",
        "/api/..;/api/item",
        "/api/item#",
        "/api/%69tem%",
        "/api/x/..;a/item",
    ];
    over_connections(&site, refused.map(get));
    admitted(&site, FEW);
}

#[test]
fn by_methods() {
    let read = (
        "read",
        "match: GET /api/item\nupstream: up\nlimits: { few: { key: ip, rate: 5/h } }\n",
    );
    let site = Site::start("", &[read, REST]);
    let methods = [
        "GET", "HEAD", "get", "Get", "head", "gET", "GET", "HEAD", "GET", "HEAD", "GET", "GET",
    ];
    over_connections(
        &site,
        methods.map(|method| format!("{method} /api/item HTTP/1.1\r\nhost: t\r\n\r\n")),
    );
    admitted(&site, FEW);
    let site = Site::start("", &[BY_IP]);
    let methods = [
        "OPTIONS", "HEAD", "TRACE", "PROPFIND", "DELETE", "QUERY", "X", "GET", "PATCH", "CONNECT",
    ];
    over_connections(
        &site,
        methods.map(|method| format!("{method} /a HTTP/1.1\r\nhost: t\r\n\r\n")),
    );
    admitted(&site, FEW);
}

#[test]
fn by_spellings_of_the_host() {
    let api = "match: /**\nhost: api.test\nupstream: up\nlimits: { few: { key: ip, rate: 5/h } }\n";
    let site = Site::start("", &[("api", api), REST]);
    let hosts = [
        "api.test",
        "API.TEST",
        "api.test.",
        "Api.Test.:80",
        "api.test:80",
        "api.test:",
        "api.test:1",
        "aPI.test",
    ];
    over_connections(
        &site,
        hosts.map(|host| format!("GET /a HTTP/1.1\r\nhost: {host}\r\n\r\n")),
    );
    over_connections(
        &site,
        hosts.map(|host| format!("GET http://{host}/a HTTP/1.1\r\nhost: other\r\n\r\n")),
    );
    let twice = "GET /a HTTP/1.1\r\nhost: other\r\nhost: api.test\r\n\r\n";
    over_connections(
        &site,
        [
            twice.to_owned(),
            twice.replace("\r\nhost: api", "\r\n host: api"),
        ],
    );
    over_connections(
        &site,
        ["api.test:80:80", "api.test/", "x@api.test", "%61pi.test"]
            .map(|host| format!("GET /a HTTP/1.1\r\nhost: {host}\r\n\r\n")),
    );
    admitted(&site, FEW);
}

#[test]
fn by_addresses_of_one_s_own() {
    let claims = |random: &mut Random| {
        CLAIMS.map(|claim| {
            let address = format!("203.0.{}.{}", random.below(256), random.below(256));
            format!(
                "GET /a HTTP/1.1\r\nhost: t\r\n{}\r\n\r\n",
                claim.replace("{}", &address)
            )
        })
    };
    let site = Site::start("", &[BY_IP]);
    over_connections(&site, claims(&mut Random(1)));
    admitted(&site, FEW);
    // Behind a proxy that adds what it saw to what the client wrote.
    let trusted = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n";
    let site = Site::start(trusted, &[BY_IP]);
    let mut random = Random(2);
    let behind = |number: usize| {
        let saw = [
            "198.51.100.1",
            "::ffff:198.51.100.1",
            "198.51.100.1:80",
            "[::ffff:c633:6401]:9",
            "\"198.51.100.1\"",
        ];
        let wrote = [
            "203.0.113.",
            "::ffff:203.0.113.",
            "\", 203.0.113.",
            "for=203.0.113.",
            "127.0.0.",
        ];
        let (saw, wrote) = (saw[number % saw.len()], wrote[random.below(wrote.len())]);
        let junction = [", ", ",", "\r\nx-forwarded-for: "][random.below(3)];
        format!(
            "GET /a HTTP/1.1\r\nhost: t\r\nx-forwarded-for: {wrote}{number}{junction}{saw}\r\n\r\n"
        )
    };
    over_connections(&site, (0..60).map(behind));
    admitted(&site, FEW);
}

#[test]
fn by_pipelining() {
    let site = Site::start("", &[BY_IP]);
    let mut asker = site.connect();
    asker.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n".repeat(100));
    let statuses: Vec<u16> = (0..100)
        .map(|_| asker.answer(false).unwrap().status())
        .collect();
    assert_eq!(statuses[..FEW], [200; FEW]);
    assert!(
        statuses[FEW..].iter().all(|status| *status == 429),
        "{statuses:?}"
    );
    drop(asker);
    admitted(&site, FEW);
}

/// On both workers at once.
#[test]
fn by_connections_at_once() {
    let site = Site::with_files("workers: 2\n", &[BY_IP], &[]);
    let askers: Vec<_> = (0..50).map(|_| site.connect()).collect();
    let threads = askers.into_iter().map(|mut asker| {
        thread::spawn(move || {
            asker.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n".repeat(4));
            (0..4)
                .filter(|_| asker.answer(false).unwrap().status() == 200)
                .count()
        })
    });
    let threads: Vec<_> = threads.collect();
    let passed: usize = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(passed, FEW);
    admitted(&site, FEW);
}

/// The single-packet attack: as many streams as one write takes.
#[test]
fn by_streams_in_one_packet() {
    let site = Site::start("", &[BY_IP]);
    let mut raw = Raw::connect(site.gateway.address, &[]);
    let head = |number: u32| get(["/a", "/b", "//a", "/%61"][number as usize % 4], &[]);
    let streams = (0..100).map(|n| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head(n)));
    raw.send(&streams.collect::<Vec<_>>().concat());
    let heads = (0..100).filter_map(|_| raw.next(HEADERS)).count();
    assert_eq!(heads, 100);
    drop(raw);
    admitted(&site, FEW);
}

/// Requests that are begun and never finished, or whose answer nobody waits for, are requests.
#[test]
fn by_hanging_up() {
    let site = Site::start("", &[BY_IP]);
    let halves = [
        "GET /a HTTP/1.1\r\nhost: t\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\nhalf",
        "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\n",
        "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
        "POST /a HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n",
        "GET /a HTTP/1.1\r\nhost: t\r\n\r\nGET /a HTTP/1.1\r\nhost: t\r\n\r\nGET /a HTTP/1.1\r\nhos",
        "GET /a HTTP/1.1\r\nhost: t\r\n",
    ];
    for _ in 0..20 {
        let askers: Vec<Asker> = halves
            .iter()
            .map(|half| {
                let mut asker = site.connect();
                asker.send(half);
                asker
            })
            .collect();
        // A reset for those that were answered, an end for the others.
        drop(askers);
    }
    wait_until("all connections are over", || {
        site.gateway
            .app
            .metrics()
            .contains("tollgate_connections_open 0")
    });
    let reached = site.recorder.count();
    assert!(reached <= FEW, "{reached} reached the server");
    over_connections(
        &site,
        (0..FEW).map(|_| "GET /a HTTP/1.1\r\nhost: t\r\n\r\n".to_owned()),
    );
    let reached = site.recorder.count();
    assert!(reached <= FEW, "{reached} reached the server");
}

#[test]
fn by_upgrades() {
    let site = Site::start("", &[BY_IP]);
    let upgrades = ["websocket", "x", "h2c", "connect-udp", "websocket"];
    over_connections(
        &site,
        (0..20).map(|number| {
            let upgrade = upgrades[number % upgrades.len()];
            format!(
                "GET /a HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: {upgrade}\r\n\r\n"
            )
        }),
    );
    admitted(&site, FEW);
}

/// What is refused for its form is not counted, and what is refused by the limit goes to no server.
#[test]
fn by_requests_inside_requests() {
    let site = Site::start("", &[BY_IP]);
    let inner = "GET /b HTTP/1.1\r\nhost: t\r\n\r\n".repeat(20);
    let length = inner.len();
    let shapes = [
        format!("content-length: {length}\r\n\r\n{inner}"),
        format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n{inner}\r\n0\r\n\r\n"),
        format!("expect: 100-continue\r\ncontent-length: {length}\r\n\r\n{inner}"),
        format!(
            "connection: upgrade\r\nupgrade: websocket\r\ncontent-length: {length}\r\n\r\n{inner}"
        ),
        format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("transfer-encoding: chunked\r\n\r\nx\r\n{inner}"),
    ];
    over_connections(
        &site,
        shapes
            .iter()
            .cycle()
            .take(60)
            .map(|rest| format!("POST /a HTTP/1.1\r\nhost: t\r\n{rest}")),
    );
    wait_until("all connections are over", || {
        site.gateway
            .app
            .metrics()
            .contains("tollgate_connections_open 0")
    });
    let log = site.recorder.take();
    assert!(log.requests.len() + log.begun.len() <= FEW, "{log:?}");
    assert!(
        !log.requests
            .iter()
            .any(|request| request.start.contains("/b")),
        "{log:?}"
    );
}
