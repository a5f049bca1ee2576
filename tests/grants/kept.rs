//! Grants over restarts and crashes, and their end.

use rustix::process::Signal;
use serde_json::json;
use tollgate::base::clock::Clock;

use crate::Site;
use crate::common::child::Server;
use crate::common::wait_until;

const ALICE: &str = "x-user: alice\r\n";

#[test]
fn grants_survive_a_kill() {
    let mut site = Site::start("", "{ few: { key: user, rate: 1/h } }");
    site.grant("few", "user=alice", ("add", 4));
    site.grant("few", "user=bob", ("times", 3));
    assert_eq!(site.revoke("few", "user=bob").status(), 200);
    site.server.signal(Signal::KILL);
    site.server.ended();
    site.restart();
    assert_eq!(site.admitted(ALICE), 5, "from the first request on");
    assert_eq!(site.admitted("x-user: bob\r\n"), 1, "it stays taken back");
    assert_eq!(site.grants().len(), 1);
}

/// The counts of the key are more than its limit has without the grant.
#[test]
fn what_was_counted_survives_a_restart() {
    for algorithm in ["sliding-log", "sliding-window", "fixed-window"] {
        let limit = format!("{{ few: {{ key: user, rate: 2/h, algorithm: {algorithm} }} }}");
        let mut site = Site::start("store: { snapshots: data }\n", &limit);
        site.grant("few", "user=alice", ("times", 10));
        let mut client = site.server.connect();
        for _ in 0..15 {
            assert_eq!(crate::get(&mut client, ALICE).status(), 200);
        }
        site.server.signal(Signal::TERM);
        site.server.ended();
        site.restart();
        assert_eq!(site.admitted(ALICE), 5, "{algorithm}");
        assert_eq!(site.revoke("few", "user=alice").status(), 200);
        assert_eq!(site.status(ALICE), 429, "{algorithm}");
    }
}

#[test]
fn a_grant_ends_at_its_time() {
    let site = Site::start("", "{ few: { key: user, rate: 1/h } }");
    let granted = site.grant_for("few", "user=alice", ("add", 100_000 / 2), "2s");
    assert_eq!(site.admitted(ALICE), 200);
    wait_until("the grant ends", || site.status(ALICE) == 429);
    let (clock, until) = (Clock::system(), granted["until"].as_f64().unwrap());
    let late = clock.wall().as_secs_f64() - until;
    println!("noticed {late:.3} s after its end");
    assert!((-0.01..1.0).contains(&late), "{late}");
    wait_until("it is listed no more", || site.grants().is_empty());
    assert_eq!(site.key("few", "user=alice")["quota"], json!(1));
}

/// While one process takes over from another, each may be asked.
#[test]
fn two_processes_on_one_folder_see_each_other_s_grants() {
    let site = Site::start("", "{ few: { key: user, rate: 1/h } }");
    let second = Server::start(site.folder.path(), true);
    site.grant("few", "user=alice", ("add", 4));
    let quota = |server: &Server| {
        let key = server.ask("GET", "/v1/limits/few/keys/user=alice", "");
        crate::json_of(&key)["limits"][0]["quota"].clone()
    };
    wait_until("the other has it", || quota(&second) == 5);
    let revoked = second.ask("DELETE", "/v1/grants/few/user=alice", "");
    assert_eq!(revoked.status(), 200, "{}", revoked.text());
    wait_until("the first has it no more", || quota(&site.server) == 1);
}
