//! Candidate rates (`try`), limits in shadow mode, and who is near a limit: what the gateway says of them, held against
//! gateways where the same rates refuse.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;

use common::child::{self, Server};
use common::redis::Redis;
use common::{Client, Upstream, assert_contains, wait_until, write};
use serde_json::{Value, json};
use tempfile::TempDir;

const KEYS: &str = "key-0: { user: ann, plan: gold }\nkey-1: bob\nkey-2: eve\nkey-3: joe\n";
const GATEWAY: &str = "admin: 127.0.0.1:0\nplans: { free: { multiply: 1 }, gold: { multiply: 3 } }\n\
    identity: { token: { header: x-api-key }, user: { api_keys: keys.yaml }, plan: { api_keys: true, default: free } }\n";

fn folder(upstream: &Upstream, gateway: &str, limits: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
    let overrides = "per-user: { user=eve: 2/h }\n";
    std::fs::write(folder.path().join("overrides.yaml"), overrides).unwrap();
    let policy = format!("match: /**\nupstream: up\n{limits}");
    let gateway = [GATEWAY, gateway].concat();
    write(&folder, upstream.address, &gateway, &[("all", &policy)]);
    folder
}

fn start(upstream: &Upstream, gateway: &str, limits: &str) -> (Server, TempDir) {
    let folder = folder(upstream, gateway, limits);
    (Server::start(folder.path(), true), folder)
}

/// The status of a request with the key of this number.
fn send(server: &Server, key: u32) -> u16 {
    let mut client = Client::connect(server.address);
    let field = format!("x-api-key: key-{key}\r\n");
    client.send(format!(
        "GET / HTTP/1.1\r\nhost: t\r\n{field}connection: close\r\n\r\n"
    ));
    client.answer().status()
}

/// The value of a counter of decisions.
fn decisions(server: &Server, limit: &str, outcome: &str) -> u64 {
    let metrics = server.ask("GET", "/metrics", "").text();
    let labels =
        format!("tollgate_limit_decisions_total{{limit=\"{limit}\",outcome=\"{outcome}\"}}");
    let line = metrics.lines().find(|line| line.starts_with(&labels));
    let value = line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0");
    value.parse().unwrap()
}

fn ask(server: &Server, path: &str) -> Value {
    let answer = server.ask("GET", path, "");
    assert_eq!(answer.status(), 200, "{path} {}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

/// Sends the same requests to a gateway with a candidate rate and to one where that rate refuses. Each request must meet the
/// same fate, and the keys that are named must be those that were refused.
fn compare(gateway: [&str; 2], beside: &str, alone: &str) {
    let upstream = Upstream::plain();
    let (tried, tried_folder) = start(&upstream, gateway[0], beside);
    let (live, _live_folder) = start(&upstream, gateway[1], alone);
    let users = ["ann", "bob", "eve", "joe"];
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();
    let mut refused_before = 0;
    for number in 0..60_u32 {
        let key = [0, 1, 0, 2, 3, 0, 1][number as usize % 7];
        send(&tried, key);
        let is_refused = send(&live, key) == 429;
        let refused_now = decisions(&tried, "per-user", "try_refused");
        assert_eq!(refused_now > refused_before, is_refused, "request {number}");
        refused_before = refused_now;
        if is_refused {
            *refused
                .entry(format!("user={}", users[key as usize]))
                .or_default() += 1;
        }
    }
    assert!(refused.len() > 2, "{refused:?}");
    let mut said = Value::Null;
    wait_until("all are counted", || {
        said = ask(&tried, "/v1/try?limit=per-user");
        said["would_refuse"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["decided"].as_u64().unwrap())
            .sum::<u64>()
            == 60
    });
    let rules = said["would_refuse"].as_array().unwrap();
    let mut named: BTreeMap<String, u64> = BTreeMap::new();
    for rule in rules {
        assert_eq!(
            (&rule["exact"], &rule["try"]),
            (&json!(true), &json!(true)),
            "{said}"
        );
        for key in rule["keys"].as_array().unwrap() {
            named.insert(
                key["key"].as_str().unwrap().to_owned(),
                key["count"].as_u64().unwrap(),
            );
        }
    }
    assert_eq!(named, refused, "{said}");
    // The limit itself refuses as it did, and its counts are its own.
    let limits = ask(&tried, "/v1/limits");
    assert_contains(&limits.to_string(), &["\"try\":true", "\"try_refused\""]);
    let admin = tried.admin.unwrap().to_string();
    let shown = child::run(tried_folder.path(), &["try", "per-user", "--admin", &admin]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let (key, count) = refused.iter().next().unwrap();
    assert_contains(
        &shown.out,
        &["try ", "would have refused", &format!("{count}  {key}")],
    );
    // What was recorded has the outcome too.
    wait_until("it is recorded", || {
        let path = "/v1/record/range?series=tollgate_limit_decisions_total%7Boutcome=%22try_refused%22%7D&from=-60s&points=2&by=limit";
        let range = ask(&tried, path);
        let sums = range["series"][0]["sum"].as_array().into_iter().flatten();
        sums.filter_map(Value::as_u64).sum::<u64>() == refused.values().sum::<u64>()
    });
}

#[test]
fn a_candidate_refuses_nothing_and_says_what_it_would() {
    let beside = "limits: { per-user: { key: user, rate: 900/h, try: [4/h, 3/m], plans: true } }\noverrides: overrides.yaml\n";
    let alone = "limits: { per-user: { key: user, rate: [4/h, 3/m], plans: true } }\noverrides: overrides.yaml\n";
    compare(["", ""], beside, alone);
}

#[test]
fn a_candidate_beside_a_stricter_limit_goes_on_by_itself() {
    let beside = "limits: { per-user: { key: user, rate: 1/h, try: { gold: 9/h, else: 4/h } } }\n";
    let alone = "limits: { per-user: { key: user, rate: { gold: 9/h, else: 4/h } } }\n";
    compare(["", ""], beside, alone);
}

#[test]
fn a_candidate_is_shared_as_its_limit() {
    let stores = [Redis::start(), Redis::start()];
    let stores = stores
        .each_ref()
        .map(|store| format!("store: {{ address: \"{}\", budget: 1s }}\n", store.url()));
    let beside = "limits: { per-user: { key: user, rate: 900/h, try: 4/h, sharing: strict } }\n";
    let alone = "limits: { per-user: { key: user, rate: 4/h, sharing: strict } }\n";
    compare([&stores[0], &stores[1]], beside, alone);
}

#[test]
fn a_limit_in_shadow_mode_names_whom_it_would_have_refused() {
    let limits = "limits:\n  planned: { key: user, rate: 2/h, mode: shadow }\n  per-user: { key: user, rate: 5/h }\n";
    let (server, folder) = start(&Upstream::plain(), "", limits);
    for _ in 0..7 {
        send(&server, 1);
    }
    for _ in 0..3 {
        send(&server, 3);
    }
    wait_until("all are counted", || {
        ask(&server, "/v1/try?limit=planned")["would_refuse"][0]["decided"] == 10
    });
    let said = ask(&server, "/v1/try?limit=planned&most=9");
    let rule = &said["would_refuse"][0];
    assert_eq!(rule["refused"], 6, "{said}");
    let expected = json!([{ "key": "user=bob", "count": 5 }, { "key": "user=joe", "count": 1 }]);
    assert_eq!(rule["keys"], expected);
    assert!(rule.get("try").is_none(), "{said}");
    assert_eq!(decisions(&server, "planned", "shadow_refused"), 6);
    // A reload that changes the limit begins anew; another one does not.
    let policy = folder.path().join("policies/all.yaml");
    let text = std::fs::read_to_string(&policy).unwrap();
    std::fs::write(&policy, text.replace("5/h", "6/h")).unwrap();
    assert_eq!(server.ask("POST", "/v1/reload", "").status(), 200);
    assert_eq!(
        ask(&server, "/v1/try?limit=planned")["would_refuse"][0]["refused"],
        6
    );
    std::fs::write(&policy, text.replace("2/h", "3/h")).unwrap();
    assert_eq!(server.ask("POST", "/v1/reload", "").status(), 200);
    wait_until("a new one begins", || {
        ask(&server, "/v1/try?limit=planned")["would_refuse"][0]["refused"] == 0
    });
    for (path, status, part) in [
        ("/v1/try?limit=per-user", 404, "try: 80/m"),
        ("/v1/try?limit=other", 404, "no limit is named"),
        ("/v1/try", 400, "limit"),
        ("/v1/try?limit=planned&most=0", 400, "between 1 and"),
    ] {
        let answer = server.ask("GET", path, "");
        assert_eq!(answer.status(), status, "{path}");
        assert_contains(&answer.text(), &[part]);
    }
}

/// The keys of `near`, each with what it has used in hundredths of its quota.
fn near(server: &Server, query: &str) -> Vec<(String, u64)> {
    let near = ask(server, &format!("/v1/near?limit={query}"));
    let keys = near["keys"].as_array().unwrap().iter();
    let share = |key: &Value| (key["used_share"].as_f64().unwrap() * 100.0).round() as u64;
    keys.map(|key| (key["key"].as_str().unwrap().to_owned(), share(key)))
        .collect()
}

#[test]
fn keys_near_a_limit_are_those_that_have_used_most_of_any_window() {
    for algorithm in [
        "sliding-log",
        "sliding-window",
        "multi-level",
        "fixed-window",
        "gcra",
    ] {
        let rate = match algorithm {
            "gcra" => "10/h",
            // A window of a minute could end meanwhile.
            "fixed-window" => "[10/h, 8/2h]",
            _ => "[10/h, 8/m]",
        };
        // Of the longer window more remains, and a larger share is used.
        let limits = format!(
            "limits:\n  per-user: {{ key: user, rate: {rate}, try: 9/h, algorithm: {algorithm} }}\n  \
             uneven: {{ key: user, rate: [12/h, 5000/d], algorithm: sliding-window }}\n"
        );
        let (server, folder) = start(&Upstream::plain(), "", &limits);
        for (key, count) in [(1, 8), (2, 5), (3, 1)] {
            for _ in 0..count {
                assert_eq!(send(&server, key), 200);
            }
        }
        let shares = match algorithm {
            "gcra" => [80, 50, 10],
            _ => [100, 63, 13],
        };
        let named = |users: &[&str]| -> Vec<(String, u64)> {
            let users = users.iter().zip(shares);
            users
                .map(|(user, share)| (format!("user={user}"), share))
                .collect()
        };
        wait_until("all are listed", || {
            near(&server, "per-user&above=0").len() == 3
        });
        assert_eq!(
            near(&server, "per-user&above=0"),
            named(&["bob", "eve", "joe"]),
            "{algorithm}"
        );
        assert_eq!(
            near(&server, "per-user&above=45%25"),
            named(&["bob", "eve"]),
            "{algorithm}"
        );
        let expected = [("user=bob".to_owned(), 67)];
        assert_eq!(near(&server, "uneven&above=60"), expected, "{algorithm}");
        let whole = ask(&server, "/v1/near?limit=per-user&above=9");
        assert_eq!(
            (&whole["compared"], &whole["complete"]),
            (&json!(3), &json!(true)),
            "{whole}"
        );
        let admin = server.admin.unwrap().to_string();
        let arguments = ["near", "uneven", "--above", "60%", "--admin", &admin];
        let shown = child::run(folder.path(), &arguments);
        assert_contains(
            &shown.out,
            &[
                "1 of 3 keys",
                "66.7 %",
                "8 of 12 in 3600 s  user=bob  within",
            ],
        );
        let arguments = ["near", "per-user", "--json", "--admin", &admin];
        let shown: Value =
            serde_json::from_str(&child::run(folder.path(), &arguments).out).unwrap();
        assert_eq!(shown["above"], 80.0);
        for (path, status) in [
            ("/v1/near?limit=other", 404),
            ("/v1/near?limit=per-user&above=101", 400),
            ("/v1/near?limit=per-user&above=NaN", 400),
            ("/v1/near", 400),
        ] {
            assert_eq!(server.ask("GET", path, "").status(), status, "{path}");
        }
    }
}

#[test]
fn a_shared_store_says_how_near_keys_are() {
    let redis = Redis::start();
    let store = format!("store: {{ address: \"{}\", budget: 1s }}\n", redis.url());
    let limits =
        "limits: { per-user: { key: user, rate: 10/h, sharing: strict, on_store_error: open } }\n";
    let upstream = Upstream::plain();
    let (first, _first_folder) = start(&upstream, &store, limits);
    let (second, _second_folder) = start(&upstream, &store, limits);
    for server in [&first, &second] {
        wait_until("the store counts", || {
            let mut client = Client::connect(server.address);
            client.send("GET / HTTP/1.1\r\nhost: t\r\nx-api-key: key-3\r\n\r\n");
            client.answer().field("tollgate-store").is_none()
        });
    }
    for _ in 0..4 {
        assert_eq!(send(&first, 1), 200);
        assert_eq!(send(&second, 1), 200);
    }
    wait_until(
        "the key of both is listed, with what both have counted",
        || {
            let keys = near(&first, "per-user&above=79");
            keys.contains(&("user=bob".to_owned(), 80))
        },
    );
}
