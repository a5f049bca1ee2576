//! Bans over restarts, crashes and takeovers, and their bound.

use rustix::process::Signal;
use serde_json::json;

use crate::common::child::Server;
use crate::common::wait_until;
use crate::{Site, command_at, from};

fn restarted(mut site: Site) -> Site {
    site.server = Server::start(site.folder.path(), true);
    site
}

#[test]
fn bans_survive_a_kill_and_end_at_their_time() {
    let mut site = Site::start("");
    site.ban_key("192.0.2.0/24");
    site.ban_key("user=alice");
    site.ban_key("user=bob");
    assert_eq!(site.unban("user=bob").status(), 200);
    assert_eq!(
        site.ban(&json!({ "key": "user=carl", "for": "3s" }))
            .status(),
        200
    );
    site.server.signal(Signal::KILL);
    site.server.ended();
    let site = restarted(site);
    assert_eq!(
        site.get(&from("192.0.2.9")).status(),
        429,
        "from the first request on"
    );
    assert_eq!(site.get("x-user: alice\r\n").status(), 429);
    assert_eq!(
        site.get("x-user: bob\r\n").status(),
        200,
        "a lifted ban stays lifted"
    );
    wait_until("the short ban ends", || {
        site.get("x-user: carl\r\n").status() == 200
    });
    assert_eq!(site.keys(), ["ip=192.0.2.0/24", "user=alice"]);
}

/// Also one by a limit that is not on the disk yet when the gateway is told to end.
#[test]
fn an_end_loses_no_ban() {
    let mut site = Site::start(
        "limits: { few: { key: ip, rate: 1/h, ban: { after: 1 refusal in 10m, for: 1h } } }\n",
    );
    assert_eq!(site.get(&from("192.0.2.7")).status(), 200);
    assert_eq!(site.get(&from("192.0.2.7")).status(), 429);
    site.server.signal(Signal::TERM);
    site.server.ended();
    let site = restarted(site);
    assert_eq!(site.keys(), ["ip=192.0.2.7"]);
}

#[test]
fn a_damaged_file_costs_only_its_damaged_lines() {
    let mut site = Site::start("");
    site.ban_key("user=alice");
    site.ban_key("user=bob");
    site.server.signal(Signal::TERM);
    site.server.ended();
    let path = site.folder.path().join("record/orders");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("alice", "alicf")).unwrap();
    let site = restarted(site);
    assert!(
        site.server
            .early
            .iter()
            .any(|line| line.contains("damaged"))
    );
    assert_eq!(site.keys(), ["user=bob"]);
}

#[test]
fn without_a_folder_operators_are_warned() {
    let upstream = crate::common::Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    let gateway = "admin: 127.0.0.1:0\n";
    crate::write(
        &folder,
        upstream.address,
        gateway,
        &[("all", crate::POLICY)],
    );
    let server = Server::start(folder.path(), true);
    let banned = command_at(&server, folder.path(), &["ban", "192.0.2.1"]);
    assert_eq!(banned.code, Some(0), "{}", banned.err);
    assert!(
        banned.err.contains("not kept over restarts"),
        "{}",
        banned.err
    );
}

/// While one process takes over from another, each may be asked.
#[test]
fn two_processes_on_one_folder_see_each_other_s_bans() {
    let site = Site::start("");
    let second = Server::start(site.folder.path(), true);
    site.ban_key("user=alice");
    let status = |server: &Server| {
        let mut client = server.connect();
        client.send(crate::request("x-user: alice\r\n"));
        client.answer().status()
    };
    wait_until("the other has it", || status(&second) == 429);
    let lifted = second.ask("DELETE", "/v1/bans/user=alice", "");
    assert_eq!(lifted.status(), 200);
    wait_until("the first has lifted it", || status(&site.server) == 200);
}

#[test]
fn a_reload_keeps_bans_and_their_hits() {
    let site = Site::start("");
    site.ban_key("user=alice");
    assert_eq!(site.get("x-user: alice\r\n").status(), 429);
    assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
    assert_eq!(site.get("x-user: alice\r\n").status(), 429);
    assert_eq!(site.bans()[0]["hits"], 2);
}
