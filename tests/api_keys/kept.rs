//! Keys over restarts, crashes, reloads and takeovers, and what is on the disk.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::common::child::Server;
use crate::common::{assert_contains, wait_until};
use crate::{IDENTITY, POLICY, Site, key_field, request};

#[test]
fn keys_survive_a_kill_and_a_revoked_one_stays_revoked() {
    let mut site = Site::start("");
    let order = json!({ "user": "alice", "plan": "gold", "set": { "tenant": "acme" } });
    let (alice, bob) = (site.add(&order), site.add_for("bob"));
    let carl = site.add(&json!({ "user": "carl", "for": "3s" }));
    assert_eq!(site.revoke(&bob.id).status(), 200);
    site.server.signal(Signal::KILL);
    site.server.ended();
    site.server = Server::start(site.folder.path(), true);
    let served = site.get_with(&alice.key);
    assert_eq!(served.status(), 200, "from the first request on");
    assert_contains(served.field("ratelimit-policy").unwrap(), &["q=10000"]);
    assert_eq!(site.upstream.next().field("tollgate-tenant"), Some("acme"));
    let refused = site.get_with(&bob.key);
    assert_contains(&refused.text(), &["The API key was revoked."]);
    wait_until("the short one ends", || !site.accepts(&carl.key));
    assert_eq!(site.keys().len(), 1);
}

#[test]
fn nothing_on_the_disk_has_a_key() {
    let site = Site::start("");
    let added = site.add_for("alice");
    assert!(site.accepts(&added.key));
    assert_eq!(site.revoke(&added.id).status(), 200);
    assert!(!site.accepts(&added.key));
    let orders = fs::read_to_string(site.folder.path().join("record/orders")).unwrap();
    assert_contains(&orders, &[&added.id, "alice", "\"sha256\""]);
    let mut folders = vec![site.folder.path().to_owned()];
    let mut file_count = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(&added.key[3..12]), "{}", path.display());
            file_count += 1;
        }
    }
    assert!(file_count >= 4, "{file_count} files");
}

#[test]
fn without_a_folder_operators_are_warned() {
    let site = Site::with(
        &format!("admin: 127.0.0.1:0\nplans: {{ free: {{ multiply: 1 }} }}\n{IDENTITY}"),
        POLICY,
    );
    let added = site.command(&["key", "add", "alice"]);
    assert_eq!(added.code, Some(0), "{}", added.err);
    assert_contains(&added.err, &["this is not kept over restarts"]);
    assert!(site.accepts(added.out.trim_end()));
    assert_eq!(site.keys()[0]["kept"], false);
}

/// While one process takes over from another, each may be asked.
#[test]
fn two_processes_on_one_folder_see_each_other_s_keys() {
    let site = Site::start("");
    let second = Server::start(site.folder.path(), true);
    let added = site.add_for("alice");
    let status = |server: &Server| {
        let mut client = server.connect();
        client.send(request(&key_field(&added.key)));
        client.answer().status()
    };
    wait_until("the other has it", || status(&second) == 200);
    let path = format!("/v1/keys/{}", added.id);
    assert_eq!(second.ask("DELETE", &path, "").status(), 200);
    wait_until("the first refuses it", || status(&site.server) == 401);
}

#[test]
fn a_damaged_file_costs_only_its_damaged_lines() {
    let mut site = Site::start("");
    let (alice, bob) = (site.add_for("alice"), site.add_for("bob"));
    site.server.signal(Signal::TERM);
    site.server.ended();
    let path = site.folder.path().join("record/orders");
    let orders = fs::read_to_string(&path).unwrap();
    // The line is another one than its checksum says.
    fs::write(&path, orders.replace("alice", "admin")).unwrap();
    site.server = Server::start(site.folder.path(), true);
    assert_eq!(site.get_with(&alice.key).status(), 401);
    assert!(site.accepts(&bob.key));
}
