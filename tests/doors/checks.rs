//! What a check says.

use tollgate::base::clock::{Clock, Nanos};
use tollgate::serve::worker::asked_tickets::TICKET_LIFE;

use super::common::{Upstream, wait_until};
use super::{Asker, DOOR, start, write};

const LIMITED: &str = "match: /**\nlimits: { per-ip: { key: ip, rate: 2/h } }\n";

#[test]
fn clients_behind_one_proxy_have_their_own_budgets() {
    let gateway = start(DOOR, &[("api", LIMITED)]);
    let mut proxy = Asker::of(&gateway);
    for client in ["192.0.2.7", "192.0.2.8", "2001:db8::1"] {
        let client = format!("X-Forwarded-For: {client}\r\n");
        for left in ["1", "0"] {
            let admitted = proxy.ask("GET", "/a", &client);
            assert_eq!(admitted.status(), 200);
            assert!(admitted.body.is_empty());
            let state = admitted.field("ratelimit").unwrap();
            assert!(state.contains(&format!("r={left}")), "{state}");
        }
        let refused = proxy.ask("POST", "/b?c", &client);
        assert_eq!(refused.status(), 429);
        assert!(refused.field("retry-after").is_some());
        assert!(refused.field("ratelimit-policy").is_some());
        assert_eq!(
            refused.field("content-type"),
            Some("application/problem+json")
        );
        assert!(refused.text().contains("per-ip"), "{}", refused.text());
    }
}

#[test]
fn both_families_of_fields_are_read() {
    let policies = [
        ("get", "match: GET /a/*\nhost: shop.example\n"),
        ("other", "match: DELETE /b\nhost: shop.example\n"),
    ];
    let gateway = start(DOOR, &policies);
    let check = |fields: &str, expected: u16| {
        let status = Asker::of(&gateway).ask_at("/", fields).status();
        assert_eq!(status, expected, "{fields}");
    };
    let forwarded = |method, uri, host| {
        format!(
            "X-Forwarded-Method: {method}\r\nX-Forwarded-Uri: {uri}\r\nX-Forwarded-Host: {host}\r\n"
        )
    };
    check(&forwarded("GET", "/a/1?q", "shop.example"), 200);
    check(&forwarded("HEAD", "/a/1", "SHOP.example:80"), 200);
    check(&forwarded("DELETE", "/b", "shop.example"), 200);
    check(&forwarded("POST", "/b", "shop.example"), 405);
    check(&forwarded("GET", "/a/1", "a.example"), 404);
    let original = "X-Original-Method: GET\r\n";
    let url = |url| format!("{original}X-Original-URL: {url}\r\n");
    check(&url("https://shop.example/a/1?b"), 200);
    check(&url("http://shop.example:8080/a/1"), 200);
    check(&url("http://a.example/a/1"), 404);
    for bad in [
        "/a/1",
        "ftp://shop.example/a/1",
        "http:///a/1",
        "http://shop.example",
        "http://u@shop.example/a/1",
    ] {
        check(&url(bad), 400);
    }
    // Without a field for it the host is that of the check.
    check(&format!("{original}X-Original-URI: /a/1\r\n"), 404);
}

#[test]
fn one_status_replaces_the_others() {
    let policies = [
        ("api", LIMITED),
        ("secret", "match: /secret\nrequire: user\n"),
        ("busy", "match: /busy\nrespond: { status: 503 }\n"),
    ];
    let file = format!("{DOOR}  user: {{ api_keys: keys.yaml }}\n");
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &file, &policies);
    std::fs::write(
        folder.path().join("keys.yaml"),
        "0123456789abcdef: { user: ann }\n",
    )
    .unwrap();
    let gateway = super::Gateway::start_in(folder, Clock::system());
    let mut proxy = Asker::of(&gateway);
    let mut check = |door_uri: &str, uri: &str, expected: (u16, Option<&str>)| {
        let fields = format!("X-Original-Method: GET\r\nX-Original-URI: {uri}\r\n");
        let message = proxy.ask_at(door_uri, &fields);
        let status = message.field("tollgate-status");
        assert_eq!((message.status(), status), expected, "{door_uri} {uri}");
    };
    check("/any?status=403", "/", (200, None));
    check("/?status=403", "/", (200, None));
    check("/?status=403", "/", (403, Some("429")));
    check("/?status=401", "/", (401, Some("429")));
    check("/", "/", (429, None));
    check("/?status=403", "/secret", (401, Some("401")));
    check("/?status=403", "/busy", (403, Some("503")));
    check("/", "/busy", (503, None));
    for bad in [
        "/?status=200",
        "/?status=503",
        "/?status=600",
        "/?status=x",
        "/?a=b",
    ] {
        let fields = "X-Original-Method: GET\r\nX-Original-URI: /\r\n";
        // The connection of an unclear request ends.
        assert_eq!(
            Asker::of(&gateway).ask_at(bad, fields).status(),
            400,
            "{bad}"
        );
    }
}

#[test]
fn policies_hold_for_clients_and_for_proxies_that_ask() {
    let upstream = Upstream::plain();
    let file = format!(
        "listen: 127.0.0.1:0\nupstreams: {{ up: [\"http://{}\"] }}\n{DOOR}",
        upstream.address
    );
    let policy = "match: /**\nupstream: up\nlimits: { all: { key: everyone, rate: 3/h } }\n";
    let gateway = start(&file, &[("api", policy)]);
    let door = gateway.app.addresses()[1].tcp().unwrap();
    let mut proxy = Asker(super::Client::connect(door));
    assert_eq!(proxy.ask("GET", "/", "").status(), 200);
    assert_eq!(gateway.connect().get("/").status(), 200);
    assert_eq!(proxy.ask("GET", "/", "").status(), 200);
    assert_eq!(gateway.connect().get("/").status(), 429);
    assert_eq!(proxy.ask("GET", "/", "").status(), 429);
    // Nothing that was asked about reached the upstream.
    assert_eq!(upstream.drain().len(), 1);
}

#[test]
fn limits_on_responses_count_every_request() {
    let policies = [
        (
            "login",
            "match: /login\nlimits: { guesses: { key: ip, rate: 2/h, count: status 401 } }\n",
        ),
        (
            "tokens",
            "match: /tokens\nlimits: { spent: { key: ip, rate: 10/h, count: cost header x-cost, reserve: 5 } }\n",
        ),
    ];
    let gateway = start(DOOR, &policies);
    let mut proxy = Asker::of(&gateway);
    for path in ["/login", "/tokens"] {
        for expected in [200, 200, 429] {
            assert_eq!(proxy.ask("POST", path, "").status(), expected, "{path}");
        }
    }
}

/// The number of the ticket of an admitted request, for which the proxy has asked.
fn ticket_of(proxy: &mut Asker, path: &str) -> Option<String> {
    let fields = format!("X-Forwarded-Method: POST\r\nX-Forwarded-Uri: {path}\r\n");
    let answer = proxy.ask_at("/?ticket", &fields);
    let is_admitted = answer.status() == 200;
    assert_eq!(is_admitted, answer.status() != 429);
    is_admitted.then(|| answer.field("tollgate-ticket").unwrap().to_owned())
}

/// Says how the request of a ticket ended.
fn settle(proxy: &mut Asker, ticket: &str, query: &str, fields: &str) -> u16 {
    proxy
        .ask_at(&format!("/?settle={ticket}&{query}"), fields)
        .status()
}

#[test]
fn a_proxy_says_how_requests_ended() {
    let policies = [
        (
            "login",
            "match: /login\nlimits: { guesses: { key: ip, rate: 2/h, count: status 401 } }\n",
        ),
        (
            "cost",
            "match: /cost\nlimits: { spent: { key: ip, rate: 10/h, count: cost header x-cost, reserve: 5 } }\n",
        ),
        (
            "bytes",
            "match: /bytes\nlimits: { sent: { key: ip, rate: 1000/h, count: cost bytes out } }\n",
        ),
        (
            "open",
            "match: /open\nlimits: { open: { key: ip, concurrent: 1 } }\n",
        ),
    ];
    let gateway = start(&DOOR.replace("workers: 1", "workers: 2"), &policies);
    let mut proxy = Asker::of(&gateway);
    // Successful logins use nothing, however many there are.
    for _ in 0..5 {
        let ticket = ticket_of(&mut proxy, "/login").unwrap();
        // Another connection may reach another worker.
        let mut other = Asker::of(&gateway);
        assert_eq!(settle(&mut other, &ticket, "status=200", ""), 204);
        assert_eq!(settle(&mut other, &ticket, "status=200", ""), 404);
    }
    for _ in 0..2 {
        let ticket = ticket_of(&mut proxy, "/login").unwrap();
        assert_eq!(settle(&mut proxy, &ticket, "status=401", ""), 204);
    }
    assert_eq!(ticket_of(&mut proxy, "/login"), None);
    // A cost that is said replaces what was reserved.
    let ticket = ticket_of(&mut proxy, "/cost").unwrap();
    assert_eq!(
        settle(&mut proxy, &ticket, "status=200", "x-cost: 1\r\n"),
        204
    );
    let ticket = ticket_of(&mut proxy, "/cost").unwrap();
    assert_eq!(
        settle(&mut proxy, &ticket, "status=200", "x-cost: 9\r\n"),
        204
    );
    assert_eq!(ticket_of(&mut proxy, "/cost"), None);
    let ticket = ticket_of(&mut proxy, "/bytes").unwrap();
    assert_eq!(
        settle(
            &mut proxy,
            &ticket,
            "status=200&bytes_in=7&bytes_out=1000",
            ""
        ),
        204
    );
    assert_eq!(ticket_of(&mut proxy, "/bytes"), None);
    let ticket = ticket_of(&mut proxy, "/open").unwrap();
    assert_eq!(ticket_of(&mut proxy, "/open"), None);
    assert_eq!(settle(&mut proxy, &ticket, "status=200", ""), 204);
    assert!(ticket_of(&mut proxy, "/open").is_some());
    // What cannot be read settles nothing.
    let number = "0".repeat(32);
    for (query, expected) in [
        (format!("settle={number}&status=200"), 404),
        (format!("settle={number}"), 400),
        (format!("settle={number}&status=99"), 400),
        (format!("settle={number}&status=200&a=b"), 400),
        ("settle=0&status=200".into(), 400),
        ("settle=&status=200".into(), 400),
        (format!("settle={number}&status=200&bytes_in=-1"), 400),
    ] {
        let status = proxy.ask_at(&format!("/?{query}"), "").status();
        assert_eq!(status, expected, "{query}");
    }
}

/// A ticket that nobody settles ends after a minute.
#[test]
fn forgotten_tickets_end() {
    let folder = tempfile::tempdir().unwrap();
    let open = "match: /open\nlimits: { open: { key: ip, concurrent: 1 } }\n";
    write(folder.path(), DOOR, &[("open", open)]);
    let clock = Clock::manual(Nanos::from_secs(1_800_000_000));
    let gateway = super::Gateway::start_in(folder, clock.clone());
    let mut proxy = Asker::of(&gateway);
    let ticket = ticket_of(&mut proxy, "/open").unwrap();
    assert_eq!(ticket_of(&mut proxy, "/open"), None);
    clock.advance(TICKET_LIFE);
    wait_until("the permit is back", || {
        ticket_of(&mut proxy, "/open").is_some()
    });
    assert_eq!(settle(&mut proxy, &ticket, "status=200", ""), 404);
}

/// What a change of the files cannot do: a door stays one.
#[test]
fn a_door_stays_one_over_reloads() {
    let upstream = Upstream::plain();
    let gateway = start(DOOR, &[("api", "match: /**\n")]);
    let file = format!(
        "listen: 127.0.0.1:0\naccess_log: off\nadmin: off\nworkers: 1\nupstreams: {{ up: [\"http://{}\"] }}\n",
        upstream.address
    );
    write(
        gateway.folder.path(),
        &file,
        &[("api", "match: /**\nupstream: up\n")],
    );
    gateway.reload().unwrap();
    let mut proxy = Asker::of(&gateway);
    // Nobody is trusted any more.
    assert_eq!(proxy.ask("GET", "/", "").status(), 400);
    assert!(upstream.drain().is_empty());
}

/// Without `decide` its listener goes on until the next start, for proxies that are still trusted.
#[test]
fn a_reload_without_decide_keeps_what_proxies_need() {
    let policies = [(
        "few",
        "match: /**\nlimits: { few: { key: everyone, rate: 1/h, count: status 401 } }\n",
    )];
    let gateway = start(DOOR, &policies);
    let file = DOOR.replace(
        "decide: { http: 127.0.0.1:0 }",
        "listen: 127.0.0.1:0\nupstreams: { up: [\"http://127.0.0.1:9\"] }",
    );
    let upstream = "match: /**\nupstream: up\nlimits: { few: { key: everyone, rate: 1/h, count: status 401 } }\n";
    write(gateway.folder.path(), &file, &[("few", upstream)]);
    gateway.reload().unwrap();
    let mut proxy = Asker::of(&gateway);
    let ticket = ticket_of(&mut proxy, "/").unwrap();
    assert_eq!(settle(&mut proxy, &ticket, "status=401", ""), 204);
    let fields = "X-Original-Method: GET\r\nX-Original-URI: /\r\n";
    let refused = proxy.ask_at("/?status=403", fields);
    assert_eq!(refused.status(), 403);
    assert_eq!(refused.field("tollgate-status"), Some("429"));
}
