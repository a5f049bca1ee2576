//! Accounts over restarts, crashes and takeovers.

use rustix::process::Signal;
use serde_json::json;

use crate::common::{assert_contains, wait_until};
use crate::{ALICE, ALONE, PREPAID, Site, get};

/// The orders are on the disk before their responses.
#[test]
fn orders_survive_a_kill() {
    let mut site = Site::start(ALONE, PREPAID);
    site.add("user=alice", 3);
    site.add("user=alice", 4);
    site.server.signal(Signal::KILL);
    site.server.ended();
    site.restart();
    assert_eq!(site.added("user=alice"), 7);
    assert_eq!(site.admitted(ALICE), 7, "from the first request on");
}

#[test]
fn what_was_used_survives_a_restart() {
    let mut site = Site::start(ALONE, PREPAID);
    site.add("user=alice", 5);
    let mut alice = site.server.connect();
    for _ in 0..3 {
        assert_eq!(get(&mut alice, ALICE).status(), 200);
    }
    site.server.signal(Signal::TERM);
    site.server.ended();
    site.restart();
    let credits = json!({ "added": 5, "used": 3, "left": 2 });
    assert_eq!(site.key("user=alice")["credits"], credits);
    assert_eq!(site.admitted(ALICE), 2);
}

/// An order without a file is lost with the process, and the command says so.
#[test]
fn an_order_that_no_file_keeps_is_reported() {
    let redis = crate::common::redis::Redis::start();
    let store = format!(
        "store: {{ address: \"redis://127.0.0.1:{}\", budget: 1s }}\n",
        redis.port
    );
    let site = Site::start(&store, PREPAID);
    let path = site.folder.path().join("tollgate.yaml");
    let gateway = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        gateway.replace("record: { dir: record }", "record: false"),
    )
    .unwrap();
    let mut site = site;
    site.server.signal(Signal::TERM);
    site.server.ended();
    site.restart();
    wait_until("the store is shared", || {
        let status = crate::json_of(&site.ask("rita", "GET", "/v1/status", ""));
        status["store"]["state"] == "shared"
    });
    let granted = site.command(&["grant", "prepaid", "user=alice", "--add", "5"]);
    assert_eq!(granted.code, Some(0), "{}", granted.err);
    assert_contains(&granted.err, &["restart"]);
}
