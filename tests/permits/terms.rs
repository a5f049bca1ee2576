//! What a limit on open requests may say, what clients and operators see of it, and reloads.

use crate::common::child::Server;
use crate::common::{Client, Message, Upstream, assert_contains, ok, wait_until, write};
use crate::site::{Site, lines, violated};

/// The limit that speaks and what it leaves.
fn told(answer: &Message) -> &str {
    answer.field("ratelimit").unwrap_or_default()
}

#[test]
fn clients_are_told_what_is_free() {
    let site = Site::own("", &["parallel: { key: ip, concurrent: 3 }"]);
    let mut clients = Vec::new();
    for left in [2, 1, 0] {
        let (client, head) = site.open_with("/half", "");
        assert_eq!(head.status(), 200);
        assert_eq!(told(&head), format!("\"parallel\";r={left}"));
        let policy = "\"parallel\";q=3;qu=\"concurrent-requests\"";
        assert_eq!(head.field("ratelimit-policy"), Some(policy));
        clients.push(client);
    }
    let refused = site.get("/half");
    assert_eq!(violated(&refused), ["parallel"]);
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(told(&refused), "\"parallel\";r=0");
    assert_contains(&refused.text(), &["quota-exceeded", "try again in 1 s"]);
    let (_, grpc) = site.open_with("/half", "content-type: application/grpc\r\n");
    assert_eq!((grpc.status(), grpc.field("grpc-status")), (200, Some("8")));
    assert_eq!(site.upstream.drain().len(), 3, "refused ones reach nobody");
    assert_eq!(
        (site.decisions("within"), site.decisions("refused")),
        (3, 2)
    );
    // A permit that comes back is free at once.
    clients.pop();
    wait_until("one is back", || site.out() == 2);
    clients.push(site.open());
    drop(clients);
    site.all_back(3);
}

#[test]
fn older_headers_and_silence() {
    let limit = "parallel: { key: ip, concurrent: 1 }";
    let site = Site::own("headers: legacy\n", &[limit]);
    let answer = site.get("/fine");
    let fields = ["limit", "remaining", "reset"].map(|name| {
        let name = format!("x-ratelimit-{name}");
        answer.field(&name).map(str::to_owned)
    });
    assert_eq!(fields, [Some("1".into()), Some("0".into()), None]);

    let site = Site::own(
        "",
        &["parallel: { key: ip, concurrent: 1, disclose: none }"],
    );
    let client = site.open();
    let refused = site.get("/fine");
    assert_eq!((violated(&refused).len(), told(&refused)), (0, ""));
    assert!(!refused.text().contains("parallel"));
    drop(client);
}

#[test]
fn a_rate_beside_it() {
    let limits = [
        "parallel: { key: ip, concurrent: 2 }",
        "per-ip: { key: ip, rate: 5/h }",
    ];
    for limits in [limits, [limits[1], limits[0]]] {
        let site = Site::own("", &limits);
        let clients = [site.open(), site.open()];
        for _ in 0..5 {
            let refused = site.get("/fine");
            assert_eq!(violated(&refused), ["parallel"]);
            assert_eq!(told(&refused), "\"parallel\";r=0");
            let policy = refused.field("ratelimit-policy").unwrap();
            assert_contains(
                policy,
                &["\"per-ip\";q=5;w=3600", "qu=\"concurrent-requests\""],
            );
        }
        drop(clients);
        wait_until("both are back", || site.out() == 0);
        // Nothing of the rate was used by what was refused.
        for left in [1, 1, 0] {
            let answer = site.get("/fine");
            assert_eq!(answer.status(), 200);
            assert_contains(told(&answer), &[&format!(";r={left}")]);
        }
        let refused = site.get("/fine");
        assert_eq!(violated(&refused), ["per-ip"]);
        assert_ne!(refused.field("retry-after"), Some("1"));
        assert_eq!(site.out(), 0, "what a rate refuses holds no permit");
    }
}

#[test]
fn shadows_only_count() {
    let limits = [
        "parallel: { key: ip, concurrent: 1, mode: shadow }",
        "quiet: { key: ip, rate: 100/h, mode: shadow }",
    ];
    let site = Site::own("", &limits);
    let clients: Vec<Client> = (0..3).map(|_| site.open()).collect();
    let outcomes = ["within", "refused", "shadow_refused"].map(|name| site.decisions(name));
    assert_eq!((outcomes, site.out()), ([1, 0, 2], 1));
    assert_eq!(told(&site.get("/fine")), "");
    drop(clients);
    wait_until("it is back", || site.out() == 0);
}

/// A shadow on a rate counts what a limit on open requests refuses, as it does beside a rate.
#[test]
fn a_shadow_on_a_rate_beside_it() {
    let limits = [
        "parallel: { key: ip, concurrent: 1 }",
        "quiet: { key: ip, rate: 3/h, mode: shadow }",
    ];
    let site = Site::own("", &limits);
    let client = site.open();
    for _ in 0..4 {
        assert_eq!(violated(&site.get("/fine")), ["parallel"]);
    }
    let series = |outcome: &str| {
        format!("tollgate_limit_decisions_total{{limit=\"quiet\",outcome=\"{outcome}\"}}")
    };
    let counted = ["within", "shadow_refused"].map(|name| site.figure(&series(name)));
    assert_eq!(counted, [3, 2]);
    drop(client);
}

#[test]
fn soft_ones_lend_and_mark() {
    let site = Site::own(
        "",
        &["parallel: { key: ip, concurrent: 2, throttle: soft 50% }"],
    );
    let clients = [site.open(), site.open()];
    let marks = |site: &Site| {
        let seen = site.upstream.drain();
        let marks = seen
            .iter()
            .map(|request| request.field("tollgate-over").map(str::to_owned));
        marks.collect::<Vec<_>>()
    };
    assert_eq!(marks(&site), [None, None]);
    let third = site.open();
    assert_eq!(marks(&site), [Some("parallel".into())]);
    assert_eq!(violated(&site.get("/fine")), ["parallel"]);
    assert_eq!(site.decisions("over"), 1);
    drop((clients, third));
    site.all_back(3);
}

#[test]
fn keys_plans_and_exemptions() {
    const GATEWAY: &str = "\
identity:
  ip: { trusted_proxies: [127.0.0.0/8] }
  token: { header: x-key }
  plan: { header: x-plan, from: [127.0.0.0/8], default: free }
plans: { free: { multiply: 1 }, gold: { multiply: 3 } }
";
    let limit = "parallel: { key: [ip, token], concurrent: 1, plans: true, exempt: [10.0.0.0/8] }";
    let site = Site::own(GATEWAY, &[limit]);
    for (fields, most) in [
        ("x-forwarded-for: 203.0.113.1\r\nx-key: a\r\n", 1),
        ("x-forwarded-for: 203.0.113.1\r\nx-key: b\r\n", 1),
        ("x-forwarded-for: 203.0.113.2\r\nx-key: a\r\n", 1),
        (
            "x-forwarded-for: 203.0.113.3\r\nx-key: a\r\nx-plan: gold\r\n",
            3,
        ),
        ("x-forwarded-for: 10.1.2.3\r\nx-key: a\r\n", 9),
    ] {
        let opened: Vec<(Client, Message)> =
            (0..9).map(|_| site.open_with("/half", fields)).collect();
        let passed = opened.iter().filter(|(_, head)| head.status() == 200);
        assert_eq!(passed.count(), most, "{fields}");
    }
    wait_until("all are back", || site.out() == 0);
}

#[test]
fn one_counter_for_all_routes_or_one_for_each() {
    let site = Site::shared(&["parallel: { key: ip, concurrent: 1 }"]);
    let client = site.open();
    assert_eq!(violated(&site.get("/slow/fine")), ["parallel"]);
    drop(client);
    site.all_back(1);
    let site = Site::shared(&["parallel: { key: ip, concurrent: 1, routes: each }"]);
    let client = site.open();
    assert_eq!(site.get("/slow/fine").status(), 200);
    assert_eq!(violated(&site.get("/fine")), ["parallel"]);
    drop(client);
    site.all_back(1);
}

#[test]
fn a_reload_counts_on_by_the_new_number() {
    let site = Site::own("", &["parallel: { key: ip, concurrent: 3 }"]);
    let reload = |limit: &str| {
        let text = format!("match: /**\nupstream: up\nlimits:\n{}", lines(&[limit]));
        let path = site.gateway.folder.path().join("policies/all.yaml");
        std::fs::write(path, text).unwrap();
        site.gateway.reload().unwrap();
    };
    let mut clients: Vec<Client> = (0..3).map(|_| site.open()).collect();
    reload("parallel: { key: ip, concurrent: 2 }");
    // What is open stays open, and nothing comes in before it is below the new number.
    for open in [2, 1] {
        assert_eq!(violated(&site.get("/fine")), ["parallel"], "{open}");
        clients.pop();
        wait_until("it is back", || site.out() == open);
    }
    assert_eq!(site.get("/fine").status(), 200);
    reload("parallel: { key: ip, concurrent: 5 }");
    clients.extend((0..4).map(|_| site.open()));
    assert_eq!(violated(&site.get("/fine")), ["parallel"]);
    // A limit that is gone meanwhile gets its permits back all the same.
    reload("other: { key: ip, concurrent: 5 }");
    assert_eq!(site.get("/fine").status(), 200);
    let permits = site.gateway.app.running().admission.permits().clone();
    assert_eq!((permits.key_count(), site.out()), (1, 0));
    drop(clients);
    wait_until("all are back", || permits.key_count() == 0);
    reload("parallel: { key: ip, concurrent: 2 }");
    site.all_back(2);
}

#[test]
fn operators_see_permits_and_cannot_forge_them() {
    let policy = "match: /**\nupstream: up\nlimits: { parallel: { key: ip, concurrent: 2 } }\n";
    let (upstream, folder) = (
        Upstream::answering(|_| ok("fine")),
        tempfile::tempdir().unwrap(),
    );
    write(
        &folder,
        upstream.address,
        "admin: 127.0.0.1:0\n",
        &[("all", policy)],
    );
    let server = Server::start(folder.path(), true);
    assert_eq!(server.connect().get("/").status(), 200);
    let limits = server.ask("GET", "/v1/limits", "").text();
    assert_contains(
        &limits,
        &[
            "\"concurrent\":2",
            "\"open\":0",
            "never more than 2 open at once",
        ],
    );
    let key = "/v1/limits/parallel/keys/ip=127.0.0.1";
    assert_contains(
        &server.ask("GET", key, "").text(),
        &[
            "\"remaining\":2",
            "\"quota\":2",
            "\"window\":null",
            "\"within\"",
        ],
    );
    let refused = server.ask("DELETE", key, "");
    assert_eq!(refused.status(), 409);
    assert_contains(&refused.text(), &["comes back when its request ends"]);
    let question = r#"{ "method": "GET", "path": "/" }"#;
    let explained = server.ask("POST", "/v1/explain", question).text();
    assert_contains(
        &explained,
        &["\"concurrent\":2", "\"decides\":true", "\"status\":200"],
    );
    assert_contains(
        &server.ask("GET", "/metrics", "").text(),
        &["tollgate_permits_open{limit=\"parallel\"} 0"],
    );
    assert_eq!(server.ask("GET", "/", "").status(), 200);
}
