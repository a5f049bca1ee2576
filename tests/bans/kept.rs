//! Bans over restarts, crashes and takeovers, and their bound.

use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::json;

use crate::common::child::{Server, line_with};
use crate::common::manager::Manager;
use crate::common::{Upstream, wait_until, write};
use crate::{GATEWAY, POLICY, Site, command_at, from};

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
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    let gateway = "admin: 127.0.0.1:0\n";
    write(&folder, upstream.address, gateway, &[("all", POLICY)]);
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

/// What was ordered before, what is ordered meanwhile at either process, and what a limit found at last.
#[test]
fn a_process_that_takes_over_knows_all_bans() {
    // Sockets are passed on by their address, so the port is not to be any.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    let gateway = GATEWAY.replace("admin: 127.0.0.1:0", &format!("admin: {address}"));
    let limit = "limits: { few: { key: ip, rate: 1/h, for: { tenant: red }, ban: { after: 1 refusal in 10m } } }\n";
    let gateway = format!("{gateway}{limit}");
    write(&folder, upstream.address, &gateway, &[("all", POLICY)]);
    let manager = Manager::new(folder.path());
    let server = Server::of(&mut Manager::command(folder.path()), true);
    assert_eq!(manager.hears(), "READY=1");
    let mut site = Site {
        server,
        folder,
        upstream,
    };
    site.ban_key("user=alice");
    site.ban_key("user=carl");
    let offender = format!("x-tenant: red\r\n{}", from("192.0.2.7"));
    assert_eq!(site.get(&offender).status(), 200);
    assert_eq!(site.get(&offender).status(), 429);
    site.server.signal(Signal::USR2);
    // Whichever process responds.
    site.ban_key("user=bob");
    assert_eq!(site.unban("user=carl").status(), 200);
    let successor = manager.hears_of_successor();
    assert_eq!(site.server.ended(), Some(0));
    for fields in ["x-user: alice\r\n", "x-user: bob\r\n"] {
        assert_eq!(site.get(fields).status(), 429, "{fields}");
    }
    wait_until("the new one has the limit's ban", || {
        site.keys() == ["ip=192.0.2.7", "user=alice", "user=bob"]
    });
    assert_eq!(site.get("x-user: carl\r\n").status(), 200);
    assert_eq!(site.get(&from("192.0.2.7")).status(), 429);
    drop(successor);
}

/// A line of the log and an event for each of a flood would hide all others.
#[test]
fn many_changes_at_once_are_counted_in_one_line() {
    let site = Site::start("");
    let second = Server::start(site.folder.path(), true);
    // It sees all of them at once.
    second.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", second.id());
    wait_until("it stands still", || {
        std::fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    for number in 0..30 {
        site.ban_key(&format!("user=u{number:02}"));
    }
    second.signal(Signal::CONT);
    let mut lines = Vec::new();
    loop {
        let line = line_with(&second.err, "ban");
        let is_last = line.contains("further changes");
        lines.push(line);
        if is_last {
            break;
        }
    }
    assert_eq!(lines.len(), 21, "{lines:#?}");
    assert!(lines[20].contains("count=10"), "{lines:#?}");
}

/// A credential is known by the gateway's secret only, which snapshots keep.
#[test]
fn bans_of_credentials_are_kept_with_the_secret() {
    let mut site = Site::start("store: { snapshots: counts }\n");
    site.ban_key("token=secret-key");
    assert_eq!(site.bans()[0]["kept"], true);
    site.server.signal(Signal::TERM);
    site.server.ended();
    let site = restarted(site);
    assert_eq!(site.get("x-key: secret-key\r\n").status(), 429);
    assert_eq!(site.get("x-key: another-key\r\n").status(), 200);
}
