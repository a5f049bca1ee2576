//! Requests that the gateway answers itself, by 400, 401, 404, 405, 414 or 431: limits count them as any others, so that
//! scans for paths and guesses of credentials end in 429.

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use tollgate::base::clock::{Clock, Nanos};

use crate::case::{Asker, Site};
use crate::common::raw::{END_HEADERS, END_STREAM, Frame, HEADERS, RST_STREAM, Raw, frame, get};
use crate::common::{Gateway, Upstream, write};

const A: (&str, &str) = ("a", "match: GET /a\nupstream: up\n");
const ME: (&str, &str) = ("me", "match: GET /me\nupstream: up\nrequire: user\n");
const KEYS: (&str, &str) = ("keys.yaml", "right: { user: ann }\n");
const BY_KEY: &str = "identity: { user: { api_keys: keys.yaml }, token: { header: x-api-key } }\n";
const PER_IP: &str = "limits: { per-ip: { key: ip, rate: 10/h } }\n";

fn request(line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: t\r\n{fields}\r\n")
}

/// Sends requests, each over a connection of its own, and compares the statuses.
#[track_caller]
fn check(site: &Site, requests: &[(String, u16)]) {
    for (number, (request, status)) in requests.iter().enumerate() {
        let mut asker = site.connect();
        asker.send(request);
        let answer = asker.answer(false).unwrap();
        let what = format!("{number}: {request:.99?}, {answer:?}");
        assert_eq!(answer.status(), *status, "{what}");
        let retries = answer.field("retry-after").is_some();
        assert_eq!(retries, *status == 429, "{what}");
    }
}

/// The same requests again and again: the first `most` get their own statuses, all others 429.
#[track_caller]
fn check_most(site: &Site, most: usize, times: usize, requests: &[(String, u16)]) {
    let turns = requests.iter().cycle().take(times).enumerate();
    let turns: Vec<_> = turns
        .map(|(turn, (request, status))| {
            let status = if turn < most { *status } else { 429 };
            (request.clone(), status)
        })
        .collect();
    check(site, &turns);
}

fn with_files(gateway: &str, policies: &[(&str, &str)]) -> Site {
    Site::with_files(&format!("workers: 1\n{gateway}"), policies, &[KEYS])
}

#[test]
fn scans_end_in_429() {
    let many = "x: y\r\n".repeat(101);
    let long = "x".repeat(20_000);
    let own = [
        (request("GET /x", ""), 404),
        (request("POST /a", ""), 405),
        (request("GET /a%2fb/..%2f/%00", ""), 400),
        (request("get /a", ""), 400),
        (request("GET /a", "host: u\r\n"), 400),
        (request("CONNECT t:80", ""), 400),
        (request("GET http://a b/", ""), 400),
        (request("GET /a", "x: \x01\r\n"), 400),
        (request("GET /a", &many), 431),
        (request(&format!("GET /{long}"), ""), 414),
        (
            request("POST /a", "content-length: 1\r\ncontent-length: 2\r\n"),
            400,
        ),
    ];
    for one in &own {
        let site = Site::start(PER_IP, &[A]);
        check_most(&site, 10, 15, std::slice::from_ref(one));
        check(&site, &[(request("GET /a", ""), 429)]);
    }
    let site = Site::start(PER_IP, &[A]);
    check_most(&site, 10, 60, &own);
    // What is served counts in the same limit.
    let site = Site::start(PER_IP, &[A]);
    check_most(
        &site,
        10,
        30,
        &[own[0].clone(), (request("GET /a", ""), 200)],
    );
}

#[test]
fn a_refusal_names_the_limit_and_closes_as_the_other_status_would() {
    let site = Site::start("limits: { few: { key: ip, rate: 1/h } }\n", &[A]);
    let mut asker = site.connect();
    asker.send(request("GET /x", ""));
    assert_eq!(asker.answer(false).unwrap().status(), 404);
    for (line, closes) in [("GET /x", false), ("POST /a", false), ("GET /%00", true)] {
        asker.send(request(line, ""));
        let answer = asker.answer(false).unwrap();
        assert_eq!(answer.status(), 429, "{line}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["violated-policies"][0], "few", "{line}");
        assert!(answer.field("ratelimit").is_some(), "{line}");
        let closed = answer.field("connection") == Some("close");
        assert_eq!(closed, closes, "{line}: {answer:?}");
    }
}

#[test]
fn scans_over_http2_end_in_429() {
    let site = Site::start(PER_IP, &[A]);
    let mut raw = Raw::connect(site.gateway.address, &[]);
    let blocks = [
        get("/x", &[]),
        get("/a#b", &[]),
        get("/a", &[("connection", "x")]),
    ];
    for number in 0..30 {
        let block = &blocks[number % blocks.len()];
        let id = 2 * number as u32 + 1;
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, id, block));
        // What is malformed is not answered.
        let about = |frame: &Frame| [HEADERS, RST_STREAM].contains(&frame.kind);
        let first = std::iter::from_fn(|| raw.frame()).find(about);
        assert_eq!(first.unwrap().stream, id);
    }
    let metrics = site.gateway.app.metrics();
    for (outcome, count) in [("rejected", 10), ("refused", 20)] {
        let line = format!("{{route=\"none\",outcome=\"{outcome}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} in:\n{metrics}");
    }
}

#[test]
fn guessed_keys_end_in_429() {
    let site = with_files(&format!("{BY_KEY}{PER_IP}"), &[ME]);
    let guess = |key: String| request("GET /me", &format!("x-api-key: {key}\r\n"));
    let guesses: Vec<_> = (0..300)
        .map(|number| {
            let status = if number < 10 { 401 } else { 429 };
            (guess(format!("guess-{number}")), status)
        })
        .collect();
    check(&site, &guesses);
    check(&site, &[(guess("right".into()), 429)]);
    assert_eq!(site.recorder.count(), 0);
}

#[test]
fn limits_of_the_route_count_them_too() {
    let me = ME.1.to_owned()
        + "limits: { few: { key: ip, rate: 5/h }, own: { key: user, rate: 1/h } }\n";
    let site = with_files(BY_KEY, &[("me", &me), A]);
    // No credential, a wrong one, two of them.
    let own = [
        (request("GET /me", ""), 401),
        (request("GET /me", "x-api-key: wrong\r\n"), 401),
        (
            request("GET /me", "x-api-key: right\r\nx-api-key: b\r\n"),
            400,
        ),
    ];
    check_most(&site, 5, 20, &own);
    // Those of other routes do not.
    check(
        &site,
        &[(request("GET /x", ""), 404), (request("GET /a", ""), 200)],
    );
}

/// Who cannot be told by two credentials is counted by address.
#[test]
fn limits_of_the_route_count_what_is_unclear() {
    let open = "match: /**\nupstream: up\n\
                limits: { few: { key: ip, rate: 5/h }, own: { key: user, rate: 9/h } }\n";
    let site = with_files(BY_KEY, &[("open", open)]);
    let twice = request("GET /", "x-api-key: a\r\nx-api-key: b\r\n");
    check_most(&site, 5, 9, &[(twice, 400)]);
}

#[test]
fn statuses_of_the_gateway_are_counted() {
    let (found, missing) = (request("GET /a", ""), request("GET /x", ""));
    let refused = request("GET /me", "x-api-key: wrong\r\n");
    let limit =
        |count: &str| format!("limits: {{ few: {{ key: ip, rate: 3/h, count: {count} }} }}\n");
    let site = with_files(&format!("{BY_KEY}{}", limit("status 401")), &[A, ME]);
    check_most(&site, 9, 9, &[(found.clone(), 200), (missing.clone(), 404)]);
    check_most(&site, 3, 9, &[(refused.clone(), 401)]);
    check(&site, &[(found.clone(), 429), (missing.clone(), 429)]);
    let site = with_files(&format!("{BY_KEY}{}", limit("status 400-499")), &[A, ME]);
    check_most(&site, 9, 9, &[(found.clone(), 200)]);
    check_most(&site, 3, 9, &[(missing, 404), (refused, 401)]);
}

/// A permit is for work, and no upstream says what such a request costs.
#[test]
fn permits_and_costs_do_not_count_them() {
    for limit in ["concurrent: 1", "rate: 3/h, count: cost header x-cost"] {
        let site = Site::start(&format!("limits: {{ l: {{ key: ip, {limit} }} }}\n"), &[A]);
        check_most(&site, 9, 9, &[(request("GET /x", ""), 404)]);
        check(&site, &[(request("GET /a", ""), 200)]);
    }
}

#[test]
fn limits_reach_as_far_as_they_are_written() {
    let missing = (request("GET /x", ""), 404);
    let limits = |more: &str| format!("limits: {{ few: {{ key: ip, rate: 3/h, {more} }} }}\n");
    // Not on every route.
    let site = Site::start(&limits("routes: listed"), &[A]);
    check_most(&site, 9, 9, std::slice::from_ref(&missing));
    // Those without a route count apart.
    let site = Site::start(&limits("routes: each"), &[A]);
    check_most(&site, 3, 9, std::slice::from_ref(&missing));
    check_most(&site, 3, 9, &[(request("GET /a", ""), 200)]);
    let site = Site::start(&limits("mode: shadow"), &[A]);
    check_most(&site, 9, 9, std::slice::from_ref(&missing));
    let site = Site::start(&limits("exempt: [127.0.0.0/8]"), &[A]);
    check_most(&site, 9, 9, std::slice::from_ref(&missing));
}

#[test]
fn clients_behind_a_proxy_are_counted_apart() {
    let trusted = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n";
    let site = Site::start(&format!("{trusted}{PER_IP}"), &[A]);
    for client in ["203.0.113.1", "203.0.113.2"] {
        let fields = format!("x-forwarded-for: {client}\r\n");
        check_most(&site, 10, 15, &[(request("GET /x", &fields), 404)]);
    }
}

#[test]
fn users_are_counted_where_no_route_is_found() {
    let limits = "limits: { per-user: { key: user, rate: 5/h } }\n";
    let site = with_files(&format!("{BY_KEY}{limits}"), &[A]);
    let right = request("GET /x", "x-api-key: right\r\n");
    check_most(&site, 5, 9, &[(right, 404)]);
    check_most(&site, 9, 9, &[(request("GET /x", ""), 404)]);
}

/// A key that is right is not looked up either, so a refusal does not tell it from a guess.
#[test]
fn keys_are_not_looked_up_for_who_is_refused() {
    let me = ME.1.to_owned() + "limits: { own: { key: user, rate: 99/h } }\n";
    let gateway = format!("{BY_KEY}limits: {{ per-ip: {{ key: ip, rate: 3/h }} }}\n");
    let site = with_files(&gateway, &[("me", &me)]);
    let ask = |key: &str| request("GET /me", &format!("x-api-key: {key}\r\n"));
    check_most(&site, 3, 5, &[(ask("wrong"), 401)]);
    let refusal = |key| {
        let mut asker = site.connect();
        asker.send(ask(key));
        let answer = asker.answer(false).unwrap();
        let field = |name| answer.field(name).map(str::to_owned);
        let limits = field("ratelimit-policy");
        (answer.status(), limits, answer.body.clone())
    };
    let (status, limits, body) = refusal("right");
    assert_eq!(
        (status, limits.as_deref()),
        (429, Some("\"per-ip\";q=3;w=3600"))
    );
    let (_, same, guess) = refusal("guess");
    let cut = |body: &[u8]| {
        String::from_utf8_lossy(body)
            .split(" s.")
            .next()
            .map(str::len)
    };
    assert_eq!((same, cut(&guess)), (limits, cut(&body)));
    let metrics = site.gateway.app.metrics();
    let looked_up = "tollgate_unverified_credentials_total{reason=\"unknown_key\"} 3\n";
    assert!(metrics.contains(looked_up), "{metrics}");
}

/// Signatures are checked at most 20 times at once and once a second for an address whose tokens are forged.
#[test]
fn forged_tokens_are_checked_seldom() {
    let secret = "0123456789abcdef0123456789abcdef";
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    let gateway = "workers: 1\naccess_log: { file: access.log }\n\
                   identity: { user: { jwt: sub, secret: secret.txt } }\n";
    write(&folder, upstream.address, gateway, &[ME, A]);
    std::fs::write(folder.path().join("secret.txt"), secret).unwrap();
    let clock = Clock::manual(Nanos::from_secs(1_000));
    let gateway = Gateway::start_in(folder, clock.clone());
    let signed = |sub: &str, secret: &str| {
        let key = EncodingKey::from_secret(secret.as_bytes());
        let exp = clock.wall().as_secs() + 1_000;
        encode(
            &Header::new(Algorithm::HS256),
            &json!({"sub": sub, "exp": exp}),
            &key,
        )
        .unwrap()
    };
    let ask_for = |what: &str, token: &str| {
        let mut asker = Asker::connect(gateway.address);
        let field = format!("authorization: Bearer {token}\r\n");
        asker.send(request(what, &field));
        let answer = asker.answer(false).unwrap();
        if answer.status() == 429 {
            assert_eq!(answer.field("retry-after"), Some("1"), "{answer:?}");
            let text = String::from_utf8_lossy(&answer.body);
            assert!(text.contains("The credential was not checked"), "{text}");
        }
        answer.status()
    };
    let ask = |token: &str| ask_for("GET /me", token);
    let mut number = 0;
    let mut forged = || {
        number += 1;
        ask(&signed(
            &format!("u{number}"),
            "another secret, which nobody has",
        ))
    };
    let honest = signed("ann", secret);
    assert_eq!(ask(&honest), 200);
    let statuses: Vec<u16> = (0..60).map(|_| forged()).collect();
    assert_eq!(statuses[..20], [401; 20]);
    assert_eq!(statuses[20..], [429; 40]);
    // One that is remembered needs no check, another one must wait.
    let late = signed("bob", secret);
    assert_eq!((ask(&honest), ask(&late)), (200, 429));
    // Nothing depends on it there.
    assert_eq!(ask_for("GET /a", &late), 200);
    clock.advance(Nanos::from_secs(1));
    assert_eq!((ask(&late), forged(), forged()), (200, 401, 429));
    let metrics = gateway.app.metrics();
    for (reason, count) in [("signature", 21), ("unchecked", 43)] {
        let line =
            format!("tollgate_unverified_credentials_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} in:\n{metrics}");
    }
}
