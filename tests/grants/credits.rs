//! Limits with credits: an operator fills the account of a key, and no time refills it.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};
use tollgate::base::clock::Clock;

use crate::common::child::Server;
use crate::common::manager::Manager;
use crate::common::redis::Redis;
use crate::common::{
    Client, Message, Upstream, assert_contains, ok, wait_until, within_a_second, write,
};
use crate::sharing::{admitted_by_both, pair};
use crate::{GATEWAY, Site, get, json_of};

const ALICE: &str = "x-user: alice\r\n";
const LIMITS: &str = "{ prepaid: { key: user, credits: true } }";

/// Fills the account of alice, so that it has had this many credits in all.
fn fill(site: &Site, total: u64) {
    let added = site.key("prepaid", "user=alice")["credits"]["added"].as_u64();
    let missing = total - added.unwrap_or_default();
    let order = json!({ "limit": "prepaid", "key": "user=alice", "add": missing });
    assert_eq!(site.order(&order).status(), 200);
}

fn left(site: &Site) -> Value {
    site.key("prepaid", "user=alice")["credits"]["left"].clone()
}

/// Checks a refusal for want of credits, which names no time.
#[track_caller]
fn check_refused(answer: &Message, added: u64) {
    assert_eq!(answer.status(), 429);
    for field in ["retry-after", "x-ratelimit-reset"] {
        assert_eq!(answer.field(field), None, "{field}");
    }
    let policy = format!("\"prepaid\";q={added}");
    assert_eq!(answer.field("ratelimit-policy"), Some(&*policy));
    assert_eq!(answer.field("ratelimit"), Some("\"prepaid\";r=0"));
    let problem = json_of(answer);
    assert_eq!(
        problem["detail"],
        "The request exceeds the limit prepaid; too few credits are left."
    );
    assert_eq!(problem["violated-policies"], json!(["prepaid"]));
}

#[test]
fn an_account_is_used_up_and_filled_again() {
    let site = Site::start("headers: both\nstore: { snapshots: data }\n", LIMITS);
    let mut client = site.server.connect();
    // On one connection, so that refusals are repeated from its cache.
    for _ in 0..6 {
        check_refused(&get(&mut client, ALICE), 0);
    }
    for total in [3, 7] {
        fill(&site, total);
        let first = get(&mut client, ALICE);
        assert_eq!(first.status(), 200, "of {total}");
        let policy = format!("\"prepaid\";q={total}");
        assert_eq!(first.field("ratelimit-policy"), Some(&*policy));
        assert_eq!(first.field("x-ratelimit-limit"), Some(&*total.to_string()));
        assert_eq!(first.field("x-ratelimit-reset"), None);
        let rest = (0..9).filter(|_| get(&mut client, ALICE).status() == 200);
        assert_eq!(rest.count(), if total == 3 { 2 } else { 3 });
        for _ in 0..6 {
            check_refused(&get(&mut client, ALICE), total);
        }
    }
    check_refused(&get(&mut client, "x-user: bob\r\n"), 0);
    let unnamed = get(&mut client, "");
    assert_eq!(unnamed.status(), 200, "the key is not there");
}

#[test]
fn calls_of_grpc_are_told_not_to_retry() {
    let site = Site::start("store: { snapshots: data }\n", LIMITS);
    let fields = format!("{ALICE}content-type: application/grpc\r\n");
    let refused = get(&mut site.server.connect(), &fields);
    assert_eq!(refused.field("grpc-status"), Some("8"));
    assert_eq!(refused.field("grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(refused.field("retry-after"), None);
    let message = refused.field("grpc-message").unwrap();
    assert!(message.ends_with("too few credits are left."), "{message}");
}

/// Only the other limit's wait helps, and not for long.
#[test]
fn beside_a_rate_no_time_is_named_either() {
    let limits = "{ prepaid: { key: user, credits: true }, slow: { key: user, rate: 1/h } }";
    let site = Site::start("store: { snapshots: data }\n", limits);
    let mut client = site.server.connect();
    fill(&site, 1);
    assert_eq!(get(&mut client, ALICE).status(), 200);
    let both = get(&mut client, ALICE);
    assert_eq!((both.status(), both.field("retry-after")), (429, None));
    fill(&site, 2);
    let slow = get(&mut client, ALICE);
    assert_eq!(slow.status(), 429);
    assert!(slow.field("retry-after").is_some());
    assert_eq!(left(&site), 1, "a refused request uses nothing");
}

#[test]
fn a_hidden_limit_gives_nothing_away() {
    let limits = "{ prepaid: { key: user, credits: true, disclose: none } }";
    let site = Site::start("store: { snapshots: data }\n", limits);
    let refused = get(&mut site.server.connect(), ALICE);
    assert_eq!(
        (refused.status(), refused.field("retry-after")),
        (429, None)
    );
    assert_eq!(json_of(&refused)["detail"], "The request exceeds a limit.");
}

#[test]
fn what_is_shown_names_no_time() {
    let site = Site::start("usage: /left\nstore: { snapshots: data }\n", LIMITS);
    fill(&site, 5);
    let mut client = site.server.connect();
    for _ in 0..5 {
        assert_eq!(get(&mut client, ALICE).status(), 200);
    }
    let figures = json!({ "added": 5, "used": 5, "left": 0 });
    client.send(format!("GET /left HTTP/1.1\r\nhost: t\r\n{ALICE}\r\n"));
    let usage = json_of(&client.answer());
    let expected = json!({
        "limit": "prepaid", "route": "all", "counts": "requests", "quota": 5, "remaining": 0, "credits": figures,
    });
    assert_eq!(usage["limits"][0], expected);
    let key = site.key("prepaid", "user=alice");
    assert_eq!(key["credits"], figures);
    for time in ["window", "next_window", "next_unit_in", "wait", "grant"] {
        assert_eq!(key[time], Value::Null, "{time}: {key}");
    }
    let explained = site.command(&["explain", "GET", "/a", "-H", "x-user: alice"]);
    assert_contains(
        &explained.out,
        &[
            "429 refused by a limit\n",
            "refused for user=alice; credits: 0 of 5 left\n",
        ],
    );
    wait_until("the account is near its end", || {
        let near = site.command(&["near", "prepaid"]).out;
        near.contains("100.0 %           5 of 5 credits  user=alice  refused")
            && near.starts_with("1 of 1 keys")
            && !near.contains("only the most frequent")
    });
    let path = "/v1/limits/prepaid/keys/user=alice";
    let reset = site.server.ask("DELETE", path, "");
    assert_eq!(reset.status(), 409, "{}", reset.text());
    assert_contains(&reset.text(), &["are not reset", "`tollgate grant`"]);
    let limits = site.server.ask("GET", "/v1/limits", "").text();
    for text in [explained.out, limits, key.to_string()] {
        assert!(
            !text.contains("2106") && !text.contains("4294967295"),
            "{text}"
        );
    }
    assert_eq!(site.status(ALICE), 429);
}

#[test]
fn a_shadow_counts_and_refuses_nothing() {
    let limits = "{ prepaid: { key: user, credits: true, mode: shadow } }";
    let site = Site::start("store: { snapshots: data }\n", limits);
    assert_eq!(site.status(ALICE), 200);
    fill(&site, 2);
    assert_eq!(site.admitted(ALICE), 200);
    assert_eq!(left(&site), 0);
}

/// A snapshot that was begun after this time is there.
fn wait_for_snapshot(site: &Site) {
    let folder = site.folder.path().join("data");
    // One is written each second, and lasts less.
    let after = UNIX_EPOCH + Clock::system().wall() + Duration::from_secs(2);
    wait_until("a snapshot is written", || {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut times = entries.filter_map(|entry| entry.metadata().ok()?.modified().ok());
        times.any(|time| time >= after)
    });
}

#[test]
fn used_credits_survive_a_kill() {
    let mut site = Site::start("store: { snapshots: data, every: 1s }\n", LIMITS);
    fill(&site, 10);
    let mut client = site.server.connect();
    for _ in 0..4 {
        assert_eq!(get(&mut client, ALICE).status(), 200);
    }
    wait_for_snapshot(&site);
    site.server.signal(Signal::KILL);
    site.server.ended();
    site.restart();
    assert_eq!(left(&site), 6);
    assert_eq!(site.admitted(ALICE), 6);
}

#[test]
fn used_credits_are_passed_on_to_another_process() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    let gateway = GATEWAY.replace("admin: 127.0.0.1:0", &format!("admin: {address}"));
    let gateway = format!("{gateway}store: {{ snapshots: data, every: 10m }}\n");
    let policy = format!("match: /**\nupstream: up\nlimits: {LIMITS}\n");
    write(&folder, upstream.address, &gateway, &[("all", &policy)]);
    let manager = Manager::new(folder.path());
    let server = Server::of(&mut Manager::command(folder.path()), true);
    assert_eq!(manager.hears(), "READY=1");
    let mut site = Site {
        server,
        folder,
        _upstream: upstream,
    };
    fill(&site, 10);
    let mut client = site.server.connect();
    for _ in 0..4 {
        assert_eq!(get(&mut client, ALICE).status(), 200);
    }
    drop(client);
    site.server.signal(Signal::USR2);
    let successor = manager.hears_of_successor();
    assert_eq!(site.server.ended(), Some(0));
    assert_eq!(site.admitted(ALICE), 6);
    drop(successor);
}

/// Each request reserves five credits and uses three.
fn check_costs(gateway: &str) {
    let upstream = Upstream::scripted(|mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            served.send(ok("{\"cost\":3}"));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let limit = "{ key: user, credits: true, count: cost json cost, reserve: 5 }";
    let policy = format!("match: /**\nupstream: up\nlimits: {{ prepaid: {limit} }}\n");
    let gateway = format!("{GATEWAY}{gateway}");
    write(&folder, upstream.address, &gateway, &[("all", &policy)]);
    let server = Server::start(folder.path(), true);
    let site = Site {
        server,
        folder,
        _upstream: upstream,
    };
    let has_store = gateway.contains("redis");
    wait_until("the store is shared", || !has_store || is_shared(&site));
    let mut client = site.server.connect();
    assert_eq!(get(&mut client, ALICE).status(), 429, "{gateway}");
    for (total, lefts) in [(10, &[7, 4][..]), (11, &[2])] {
        fill(&site, total);
        for expected in lefts {
            assert_eq!(get(&mut client, ALICE).status(), 200, "{gateway}");
            wait_until("the request is settled", || left(&site) == *expected);
        }
        for _ in 0..3 {
            let refused = get(&mut client, ALICE);
            assert_eq!(refused.status(), 429, "{gateway}");
            assert_eq!(refused.field("retry-after"), None);
        }
    }
}

#[test]
fn costs_are_reserved_and_settled() {
    check_costs("store: { snapshots: data }\n");
    let redis = Redis::start();
    let url = redis.url();
    let store = format!("store: {{ address: \"{url}\", budget: 1s }}\n");
    check_costs(&store);
}

fn is_shared(site: &Site) -> bool {
    let status = json_of(&site.server.ask("GET", "/v1/status", ""));
    status["store"]["state"] == "shared"
}

/// Both gateways, while the store is away: nothing is admitted, and another try helps.
#[track_caller]
fn check_closed(site: &Site) {
    let mut client: Client = site.server.connect();
    for _ in 0..5 {
        let refused = get(&mut client, ALICE);
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.field("retry-after"), Some("1"));
        assert_eq!(refused.field("tollgate-store"), Some("away"));
    }
}

/// The gateways report what they have used to a store that has forgotten it.
#[test]
fn gateways_share_credits_and_know_them_better_than_an_empty_store() {
    let mut redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let pair = pair(&store, LIMITS);
    assert_eq!(admitted_by_both(&pair), 0);
    fill(&pair[0], 5);
    within_a_second("the other knows the account", || left(&pair[1]) == 5);
    assert_eq!(admitted_by_both(&pair), 5);
    fill(&pair[1], 25);
    within_a_second("the first knows it too", || left(&pair[0]) == 20);
    let mut clients = pair.each_ref().map(|site| site.server.connect());
    for client in &mut clients {
        for _ in 0..4 {
            assert_eq!(get(client, ALICE).status(), 200);
        }
    }
    redis.kill();
    for site in &pair {
        wait_until("the store is away", || !is_shared(site));
        check_closed(site);
    }
    redis.revive();
    for site in &pair {
        wait_until("the store is shared again", || is_shared(site));
    }
    assert_eq!(left(&pair[0]), 12);
    assert_eq!(admitted_by_both(&pair), 12);
}

/// Gateways and the store are killed, and the store has kept the counts.
#[test]
fn a_store_that_keeps_its_data_keeps_used_credits() {
    let mut redis = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let mut pair = pair(&store, LIMITS);
    fill(&pair[0], 10);
    within_a_second("the other knows the account", || left(&pair[1]) == 10);
    for site in &pair {
        for _ in 0..2 {
            assert_eq!(site.status(ALICE), 200);
        }
    }
    for site in &mut pair {
        site.server.signal(Signal::KILL);
        site.server.ended();
    }
    redis.kill();
    redis.revive();
    for site in &mut pair {
        site.restart();
    }
    for site in &pair {
        wait_until("the store is shared", || is_shared(site));
    }
    assert_eq!(left(&pair[1]), 6);
    assert_eq!(admitted_by_both(&pair), 6);
}

/// A gateway that has just begun knows nothing of an account in the store.
#[test]
fn usage_shows_no_guess_of_what_is_left() {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let gateway = format!("usage: /left\nstore: {{ address: \"{store}\", budget: 1s }}\n");
    let site = Site::start(&gateway, LIMITS);
    wait_until("the store is shared", || is_shared(&site));
    fill(&site, 5);
    let usage = || {
        let mut client = site.server.connect();
        client.send(format!("GET /left HTTP/1.1\r\nhost: t\r\n{ALICE}\r\n"));
        json_of(&client.answer())["limits"][0].clone()
    };
    let unknown = usage();
    assert_eq!(unknown["credits"], json!({ "added": 5 }));
    assert_eq!(unknown["remaining"], Value::Null);
    assert_eq!(site.status(ALICE), 200);
    let known = usage();
    assert_eq!(
        known["credits"],
        json!({ "added": 5, "used": 1, "left": 4 })
    );
    assert_eq!(known["remaining"], 4);
}

/// The counts are gone, and the accounts are there.
#[test]
fn accounts_without_their_counts_are_an_error_in_the_log() {
    let mut site = Site::start("store: { snapshots: data, every: 1s }\n", LIMITS);
    fill(&site, 5);
    wait_for_snapshot(&site);
    site.server.signal(Signal::KILL);
    site.server.ended();
    for entry in fs::read_dir(site.folder.path().join("data")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("counts.") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    site.restart();
    let has_error = |line: &String| line.contains("ERROR") && line.contains("accounts=1");
    assert!(
        site.server.early.iter().any(has_error),
        "{:?}",
        site.server.early
    );
}

/// A reload does not change the store, and the running one keeps no counts.
#[test]
fn a_reload_adds_no_credits_that_the_process_would_forget() {
    let mut site = Site::start("", "{ few: { key: user, rate: 9/h } }");
    let gateway = site.folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&gateway).unwrap();
    fs::write(&gateway, format!("{text}store: {{ snapshots: data }}\n")).unwrap();
    let policy = site.folder.path().join("policies/all.yaml");
    let text = format!("match: /**\nupstream: up\nlimits: {LIMITS}\n");
    fs::write(&policy, text).unwrap();
    let reload = site.server.ask("POST", "/v1/reload", "");
    assert_ne!(reload.status(), 200);
    assert_contains(&reload.text(), &["`prepaid` has credits", "restart"]);
    assert_eq!(site.status(ALICE), 200, "the files before still hold");
    site.restart();
    fill(&site, 2);
    assert_eq!(site.admitted(ALICE), 2);
}
