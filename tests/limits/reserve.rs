//! What requests hold of limits on cost: never more than the limit says where they cost no more than they hold.

use super::common::{Client, Gate, Upstream, ok};
use super::*;

const LIMIT: &str = "key: ip, rate: 10000/h, count: cost json cost";

/// A server whose responses cost so much, and come when the gate is open.
fn costly(gate: &Gate, cost: u32) -> Upstream {
    let gate = gate.clone();
    Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            gate.pass();
            served.send(ok(&format!("{{\"cost\":{cost}}}")));
        }
    })
}

/// 50 requests at once: how many pass, each with this head and body.
fn passes(limit: &str, cost: u32, fields: &str, body: &str) -> (usize, Site) {
    let gate = Gate::default();
    let site = Site::start("", &[&format!("units: {{ {limit} }}")], costly(&gate, cost));
    let length = body.len();
    let request =
        format!("POST /a HTTP/1.1\r\nhost: t\r\n{fields}content-length: {length}\r\n\r\n{body}");
    let mut clients: Vec<Client> = (0..50).map(|_| site.gateway.connect()).collect();
    for client in &mut clients {
        client.send(&request);
    }
    // Those that are refused are told at once, the others are all at the server before the first one ends.
    common::wait_until("all are decided", || {
        site.decisions("units").iter().sum::<u32>() == 50
    });
    gate.open();
    let answers = clients.iter_mut().map(|client| client.answer().status());
    let passed = answers.filter(|status| *status == 200).count();
    (passed, site)
}

#[track_caller]
fn check(reserve: &str, cost: u32, fields: &str, body: &str, expected: usize) {
    let (passed, _) = passes(&format!("{LIMIT}, reserve: {reserve}"), cost, fields, body);
    assert_eq!(passed, expected, "{reserve} {fields} {body}");
}

#[test]
fn requests_at_once_never_pass_the_limit() {
    check("900", 900, "", "", 11);
    check("900", 1, "", "", 11);
    check(
        "json max_tokens else 4000",
        900,
        "",
        "{\"max_tokens\":900}",
        11,
    );
    check(
        "json max_tokens else 4000",
        900,
        "",
        "{\"max_tokens\":-1}",
        2,
    );
    // Spellings of which its readers take one or the other.
    for body in [
        "{\"max_tokens\":2500}{\"max_tokens\":1}",
        "{\"max_tokens\":1,\"MAX_TOKENS\":2500}",
        "{\"max_tokens\":2500,\"max_tokens\":1}",
    ] {
        let passed = if body.contains("}{") { 2 } else { 4 };
        check("json max_tokens else 4000", 2500, "", body, passed);
    }
    check("json max_tokens else 4000", 900, "", "{}", 2);
    check("json max_tokens else 4000", 900, "", "", 2);
    check(
        "json a.b else 4000",
        900,
        "content-type: text/plain\r\n",
        "{\"a\":{\"b\":2500}}",
        4,
    );
    check(
        "header x-max else 4000",
        900,
        "x-max: 900\r\nX-Max: 1000\r\n",
        "",
        10,
    );
    check("header x-max else 4000", 900, "x-max: 0\r\n", "", 2);
    // It can never pass.
    check("header x-max else 4000", 900, "x-max: 10001\r\n", "", 0);
    check("json max else 4000", 900, "", "{\"max\":1e30}", 0);
    for algorithm in [
        "sliding-log",
        "sliding-window",
        "multi-level",
        "fixed-window",
        "gcra",
    ] {
        let limit = format!("{LIMIT}, algorithm: {algorithm}, reserve: 2000");
        assert_eq!(passes(&limit, 2000, "", "").0, 5, "{algorithm}");
    }
}

#[test]
fn what_is_not_used_comes_back_at_once_and_more_is_charged() {
    for algorithm in [
        "sliding-log",
        "sliding-window",
        "multi-level",
        "fixed-window",
        "gcra",
    ] {
        for (cost, left) in [(10, 9_990), (0, 10_000), (3_000, 7_000), (2_000, 8_000)] {
            let limit = format!("units: {{ {LIMIT}, algorithm: {algorithm}, reserve: 2000 }}");
            let upstream = Upstream::answering(move |_| ok(&format!("{{\"cost\":{cost}}}")));
            let site = Site::start("", &[&limit], upstream);
            assert_eq!(told(&site.get("")), "units 8000", "{algorithm} {cost}");
            let then = format!("units {}", left - 2_000);
            assert_eq!(told(&site.get("")), then, "{algorithm} {cost}");
            // Long after, all of it is there.
            site.pass(Nanos::from_secs(2 * 3600));
            assert_eq!(told(&site.get("")), "units 8000", "{algorithm} {cost}");
        }
    }
}

#[test]
fn what_never_becomes_known_is_charged_as_it_was_held() {
    let limit = format!("units: {{ {LIMIT}, reserve: 2000 }}");
    for answer in [ok("{}"), ok(""), "HTTP/1.1 304 Not Modified\r\n\r\n".into()] {
        let upstream = Upstream::answering(move |_| answer.clone());
        let site = Site::start("", &[&limit], upstream);
        for left in [8_000, 6_000, 4_000, 2_000, 0] {
            assert_eq!(told(&site.get("")), format!("units {left}"));
        }
        assert_eq!(violated(&site.get("")), ["units"]);
    }
}

/// A body that is read ahead goes on as it came.
#[test]
fn the_body_is_forwarded() {
    let limit = format!("units: {{ {LIMIT}, reserve: json max else 4000 }}");
    let upstream =
        Upstream::answering(|request| ok(&format!("{{\"cost\":{}}}", request.body.len())));
    let site = Site::start("", &[&limit], upstream);
    let body = format!("{{\"text\":\"{}\",\"max\":5}}", "a".repeat(3_000_000));
    let mut client = site.gateway.connect();
    client.send(format!(
        "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(client.answer().status(), 200);
    assert_eq!(site.upstream.next().body, body.as_bytes());
}
