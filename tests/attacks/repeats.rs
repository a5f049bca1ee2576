//! What a connection's last request said is remembered, and must change nothing: a request on a connection
//! with any others before it means what it means alone.

use std::collections::HashMap;

use tollgate::base::clock::{Clock, Nanos};

use crate::case::{ALL, Asker, Random, Site};
use crate::common::{self, Client, Gateway, Upstream, write};
use crate::strict::Message;

const IDENTITY: &str = "identity:\n  user: { header: x-user, from: [10.0.0.0/8] }\n  \
    token: { header: x-api-key }\n";

const COUNTED: (&str, &str) = (
    "counted",
    "match: /counted/**\nupstream: up\nlimits:\n  few: { key: token, rate: 5000/h, algorithm: fixed-window }\n",
);

/// What stands below the first line, and the body.
const FIELDS: [&str; 20] = [
    "\r\n",
    "x-api-key: a\r\nhost: t\r\n\r\n",
    "host: t\r\n\r\n",
    "host: u\r\n\r\n",
    "Host:t\r\n\r\n",
    "host: t\r\nx-api-key: a\r\n\r\n",
    "host: t\r\nx-api-key: b\r\n\r\n",
    "host: t\r\nx-api-key: a\r\nx-api-key: b\r\n\r\n",
    "host: t\r\nconnection: x-own\r\nx-own: 1\r\nx-other: 2\r\n\r\n",
    "host: t\r\nx-own: 1\r\nx-other: 2\r\n\r\n",
    "host: t\r\nte: trailers\r\n\r\n",
    "host: t\r\nx-user: forged\r\nx-forwarded-for: 6.6.6.6\r\ntollgate-user: me\r\n\r\n",
    "host: t\r\ncontent-length: 3\r\n\r\nabc",
    "host: t\r\ncontent-length: 4\r\n\r\nabcd",
    "host: t\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "host: t\r\ntransfer-encoding: chunked\r\ntrailer: x-t\r\n\r\n1\r\na\r\n0\r\nx-t: 1\r\n\r\n",
    "host: t\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc",
    "connection: keep-alive\r\n\r\n",
    "host: t\r\nhost: u\r\n\r\n",
    "host: t\r\nconnection: close\r\n\r\n",
];

const LINES: [&str; 10] = [
    "\r\nGET /a HTTP/1.1",
    "\r\n\r\nGET /a HTTP/1.1",
    "GET /a HTTP/1.1",
    "GET /a/b?c=d HTTP/1.1",
    "POST /a HTTP/1.1",
    "GET http://other/a HTTP/1.1",
    "GET /a HTTP/1.0",
    "GET /counted/a HTTP/1.1",
    "GET /%zz HTTP/1.1",
    "get /a HTTP/1.1",
];

/// How a request was answered, and what the upstream got of it.
type Told = (Option<u16>, Option<Message>);

fn ask(site: &Site, asker: &mut Asker, request: &str) -> Told {
    asker.send(request);
    let status = asker.answer(false).map(|answer| answer.status());
    let log = site.recorder.take();
    assert_eq!(log.unclean, Vec::<String>::new(), "{request:?}");
    assert!(log.requests.len() <= 1, "{request:?} {log:?}");
    (status, log.requests.into_iter().next())
}

#[test]
fn a_request_means_what_it_means_alone() {
    let site = Site::start(IDENTITY, &[ALL, COUNTED]);
    let mut alone: HashMap<String, Told> = HashMap::new();
    let mut random = Random(6);
    let (mut line, mut fields) = (0, 0);
    let mut asker = site.connect();
    for number in 0..3_000 {
        // Most say what was said before them, below the first line or there too.
        match random.below(8) {
            0 => (line, fields) = (random.below(LINES.len()), random.below(FIELDS.len())),
            1 => fields = random.below(FIELDS.len()),
            2 | 3 => line = random.below(LINES.len()),
            _ => {}
        }
        let request = format!("{}\r\n{}", LINES[line], FIELDS[fields]);
        let expected = alone
            .entry(request.clone())
            .or_insert_with(|| ask(&site, &mut site.connect(), &request));
        let mut told = ask(&site, &mut asker, &request);
        if told.0.is_none() {
            // The one before was the connection's last.
            asker = site.connect();
            told = ask(&site, &mut asker, &request);
        }
        assert_eq!(told, *expected, "request {number}: {request:?}");
    }
}

/// What a limit says of each request of one connection.
fn said(site: &Site, requests: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut asker = site.connect();
    let requests = requests.into_iter();
    let each = requests.map(|request| {
        asker.send(request);
        asker.answer(false).unwrap().all("ratelimit").concat()
    });
    each.map(|said| said.split(";t=").next().unwrap_or_default().to_owned())
        .collect()
}

/// A credential in the target is looked at each time.
#[test]
fn credentials_in_targets() {
    let identity = "identity: { token: { query: key } }\n";
    let site = Site::start(identity, &[COUNTED]);
    let get = |key: &str| format!("GET /counted?key={key} HTTP/1.1\r\nhost: t\r\n\r\n");
    let keys = ["a", "a", "a", "b", "b", "a", "b"];
    let left = [4999, 4998, 4997, 4999, 4998, 4996, 4997];
    let expected = left.map(|left| format!("\"few\";r={left}"));
    assert_eq!(said(&site, keys.map(get)), expected);
}

/// Each route counts by what it counts by, and its upstream is told of a soft limit only what is true.
#[test]
fn routes_in_turn() {
    let policy = |route: &str, key: &str, throttle: &str| {
        format!(
            "match: /{route}\nupstream: up\nlimits:\n  {route}: {{ key: {key}, rate: 9/h, \
             algorithm: fixed-window, throttle: {throttle} }}\n"
        )
    };
    let by_ip = policy("ip", "ip", "hard");
    let by_token = policy("token", "token", "hard");
    let soft = policy("soft", "token", "soft 50%");
    let policies = [("ip", &*by_ip), ("token", &*by_token), ("soft", &*soft)];
    let site = Site::start(IDENTITY, &policies);
    let mut asker = site.connect();
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for round in 0..8 {
        for route in ["ip", "ip", "token", "soft", "soft", "soft"] {
            let request = format!("GET /{route} HTTP/1.1\r\nhost: t\r\nx-api-key: a\r\n\r\n");
            let (status, seen) = ask(&site, &mut asker, &request);
            let over = seen.map(|seen| seen.all("tollgate-over").concat());
            let count = counts.entry(route).or_default();
            *count += 1;
            let expected = match (route, *count) {
                (_, ..=9) => (200, Some("")),
                ("soft", ..=13) => (200, Some("soft")),
                _ => (429, None),
            };
            let told = (status.unwrap(), over.as_deref());
            assert_eq!(told, expected, "{route} {count} in round {round}");
        }
    }
}

/// Who is counted is remembered too.
#[test]
fn each_is_counted_as_who_it_is() {
    let site = Site::start(IDENTITY, &[COUNTED]);
    let mut asker = site.connect();
    let mut random = Random(7);
    let (mut left, mut token) = ([5_000; 2], 0);
    for _ in 0..500 {
        if random.below(4) == 0 {
            token = 1 - token;
        }
        let name = ["a", "b"][token];
        asker.send(format!(
            "GET /counted HTTP/1.1\r\nhost: t\r\nx-api-key: {name}\r\n\r\n"
        ));
        left[token] -= 1;
        let answer = asker.answer(false).unwrap();
        let said = answer.all("ratelimit").concat();
        let expected = format!("\"few\";r={};", left[token]);
        assert!(said.starts_with(&expected), "{name}: {said} {expected}");
    }
}

/// A reload reaches a connection that says the same as before.
#[test]
fn a_reload_forgets() {
    let plans = |name: &str| {
        format!(
            "identity: {{ plan: {{ default: {name} }} }}\nplans: {{ {name}: {{ multiply: 1 }} }}\n"
        )
    };
    let site = Site::start(&plans("free"), &[ALL]);
    let mut asker = site.connect();
    for name in ["free", "gold"] {
        if name == "gold" {
            let file = site.gateway.folder.path().join("tollgate.yaml");
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, text.replace("free", "gold")).unwrap();
            site.gateway.reload().unwrap();
        }
        for _ in 0..4 {
            let (status, seen) = ask(&site, &mut asker, "GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
            assert_eq!(status, Some(200));
            assert_eq!(seen.unwrap().all("tollgate-plan"), [name]);
        }
    }
}

/// Whoever is refused again and again on one connection is told what a new connection is told.
#[test]
fn a_refusal_is_told_as_if_for_the_first_time() {
    const LIMITS: &str = "match: /**\nupstream: up\nheaders: both\nlimits:\n  \
        burst: { key: ip, rate: [3/s, 8/m] }\n  few: { key: token, rate: 5/m }\n";
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    write(&folder, upstream.address, IDENTITY, &[("all", LIMITS)]);
    let clock = Clock::manual(Nanos::from_secs(1_800_000_000));
    let gateway = Gateway::start_in(folder, clock.clone());
    let asks = |client: &mut Client, line: &str| {
        client.send(format!(
            "{line} HTTP/1.1\r\nhost: t\r\nx-api-key: a\r\n\r\n"
        ));
        client.answer()
    };
    let mut kept = gateway.connect();
    let (mut random, mut refused) = (Random(3), 0);
    for number in 0..600 {
        let line = ["GET /a", "GET /b?c", "POST /a"][random.below(8).saturating_sub(5)];
        let told = asks(&mut kept, line);
        if told.status() == 429 {
            let alone = asks(&mut gateway.connect(), line);
            let fields = |message: &common::Message| {
                let each = message.fields.iter();
                let each = each.filter(|(name, _)| name != "date" && name != "content-length");
                each.cloned().collect::<Vec<_>>()
            };
            assert_eq!(told.start, alone.start, "{number}");
            assert_eq!(fields(&told), fields(&alone), "{number}");
            assert_eq!(told.text(), alone.text(), "{number}");
            refused += 1;
        }
        clock.advance(match random.below(20) {
            0 => Nanos::from_millis(9_000),
            1..=4 => Nanos::from_millis(501),
            _ => Nanos::from_millis(7),
        });
    }
    assert!((300..600).contains(&refused), "{refused}");
}
