//! Operators have tokens with rights: what each may do, what is recorded of it, and what a changed file changes.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;
use tollgate::base::clock::Clock;

use crate::common::child::{self, line_with};
use crate::common::{Message, Upstream, assert_contains, wait_until};
use crate::{Setup, json, problem, start_with};

pub const GATEWAY: &str = "\
admin: { address: 127.0.0.1:0, tokens: operators.yaml }
identity: { token: { header: x-api-key } }
record: { dir: record }
";

/// SHA-256 of `token-of-rita-0123456789`.
const RITA_HASH: &str = "sha256:e9aedbac6a33ffc1ef799697b09f1e949fbd7f2afcb48258ff9063ddd2e6cd59";

/// The token of an operator of these tests.
pub fn token(name: &str) -> String {
    format!("token-of-{name}-0123456789")
}

/// Rita may read, simon is of the support team, and ada may do everything.
pub fn operators() -> String {
    let [rita, simon, ada] = ["rita", "simon", "ada"].map(token);
    format!(
        "rita: {{ token: {rita}, rights: read }}\n\
         simon: {{ token: {simon}, rights: support }}\n\
         ada: {{ token: {ada}, rights: admin }}\n\
         old: {{ token: token-of-old-0123456789, rights: admin, expires: 2020-01-31 }}\n"
    )
}

pub fn start_with_operators() -> Setup {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("operators.yaml"), operators()).unwrap();
    start_with(Upstream::plain(), folder, GATEWAY)
}

impl Setup {
    /// The response to a request of an operator.
    pub fn ask_as(&self, name: &str, method: &str, path: &str, body: &str) -> Message {
        let fields = format!("authorization: Bearer {}\r\n", token(name));
        self.server.ask_with(method, path, &fields, body)
    }

    /// The requests that an operator may send, as the gateway says.
    fn may(&self, name: &str) -> Vec<(String, String)> {
        let whoami = json(&self.ask_as(name, "GET", "/v1/whoami", ""));
        assert_eq!(whoami["name"], name);
        let may = whoami["may"].as_array().unwrap().iter();
        let may = may.map(|request| request.as_str().unwrap().split_once(' ').unwrap());
        may.map(|(method, path)| (method.to_owned(), path.to_owned()))
            .collect()
    }

    /// What the record has of the orders of operators, the latest first.
    pub fn audit(&self) -> Vec<Value> {
        let events = self.ask_as("rita", "GET", "/v1/record/events?audit=true&from=-1h", "");
        json(&events)["events"].as_array().unwrap().clone()
    }

    /// Waits until the record has this many orders, and returns their entries, the first one first.
    #[track_caller]
    pub fn orders(&self, count: usize) -> Vec<Value> {
        wait_until("the orders are recorded", || self.audit().len() >= count);
        let events = self.audit();
        assert_eq!(events.len(), count, "{events:#?}");
        let entries = events.iter().rev();
        entries.map(|event| event["audit"].clone()).collect()
    }
}

/// A path that a pattern of routes matches, and that changes nothing if it is served.
fn example(pattern: &str) -> String {
    pattern
        .replace("{limit}", "per-ip")
        .replace("{name}", "route")
        .replace("{id}", "key-id")
        .replace("{*key}", "ip%3D192.0.2.9")
        .replace("{key}", "ip=192.0.2.9")
}

/// All that changes something, with the right for it. Whoever adds a route that changes something adds it here.
const ORDERS: [(&str, &str, &str); 8] = [
    ("DELETE", "/v1/limits/{limit}/keys/{key}", "support"),
    ("POST", "/v1/bans", "support"),
    ("DELETE", "/v1/bans/{*key}", "support"),
    ("POST", "/v1/grants", "support"),
    ("DELETE", "/v1/grants/{limit}/{*key}", "support"),
    ("POST", "/v1/keys", "admin"),
    ("DELETE", "/v1/keys/{id}", "admin"),
    ("POST", "/v1/reload", "admin"),
];

/// Requests that read although their method says otherwise.
const READING_POSTS: [&str; 6] = [
    "/v1/explain",
    "/prometheus/api/v1/query",
    "/prometheus/api/v1/query_range",
    "/prometheus/api/v1/labels",
    "/prometheus/api/v1/series",
    "/prometheus/api/v1/query_exemplars",
];

/// Every route, with every token and none.
#[test]
fn each_route_needs_its_right() {
    let setup = start_with_operators();
    let all = setup.may("ada");
    assert!(all.len() > 50, "{all:?}");
    let orders = all.iter().filter(|(method, path)| {
        method != "GET" && !(method == "POST" && READING_POSTS.contains(&path.as_str()))
    });
    let orders: Vec<(&str, &str)> = orders
        .map(|(method, path)| (method.as_str(), path.as_str()))
        .collect();
    let expected = ORDERS.map(|(method, path, _)| (method, path));
    assert_eq!(orders, expected, "every order has a right above `read`");
    let [rita, simon] = ["rita", "simon"].map(|name| setup.may(name));
    for (method, pattern) in &all {
        let request = (method.clone(), pattern.clone());
        let mut orders = ORDERS.iter();
        let order = orders.find(|order| (order.0, order.1) == (method, pattern));
        let right = order.map_or("read", |order| order.2);
        assert_eq!(rita.contains(&request), right == "read", "{request:?}");
        assert_eq!(simon.contains(&request), right != "admin", "{request:?}");
        let path = example(pattern);
        // A stream does not end.
        if path == "/v1/record/live" {
            continue;
        }
        let is_public = !path.starts_with("/v1")
            && !path.starts_with("/prometheus")
            && !["/metrics", "/readyz"].contains(&&*path);
        let nobody = setup.server.ask(method, &path, "").status();
        assert_eq!(nobody == 401, !is_public, "{request:?}: {nobody}");
        for (name, rank) in [("rita", 0), ("simon", 1), ("ada", 2)] {
            let needed = ["read", "support", "admin"];
            let needed = needed.iter().position(|word| *word == right).unwrap();
            let response = setup.ask_as(name, method, &path, "");
            if rank < needed {
                let says = format!("needs the right `{right}`; the token of `{name}` has");
                problem(&response, 403, &says);
            } else {
                let status = response.status();
                assert!(
                    ![401, 403, 404, 405].contains(&status) || right != "read",
                    "{request:?} {name}: {status}"
                );
                assert!(
                    ![401, 403, 405].contains(&status),
                    "{request:?} {name}: {status}"
                );
            }
        }
        let old = setup.ask_as("old", method, &path, "");
        match is_public {
            true => assert_eq!(old.status(), 200, "{request:?}"),
            false => problem(&old, 401, "has expired"),
        }
    }
}

/// What an operator orders is signed by the name of the token, and recorded.
#[test]
fn orders_are_signed_and_recorded() {
    let setup = start_with_operators();
    let began = Clock::system().wall().as_secs();
    let order = json!({ "key": "ip=192.0.2.7", "for": "1h", "reason": "scans" });
    let ban = |name: &str, order: &Value| {
        let banned = setup.ask_as(name, "POST", "/v1/bans", &order.to_string());
        json(&banned)
    };
    assert_eq!(ban("simon", &order)["by"], "simon");
    let for_bob = json!({ "key": "token=secret-1", "by": "bob" });
    assert_eq!(ban("simon", &for_bob)["by"], "simon for bob");
    let mistaken = json!({ "key": "user=secret-2", "for": "never" });
    assert_eq!(ban("simon", &mistaken)["status"], 400);
    let unknown = setup.ask_as("simon", "DELETE", "/v1/bans/token%3Dsecret-3", "");
    problem(&unknown, 404, "is not banned");
    let lifted = setup.ask_as("ada", "DELETE", "/v1/bans/ip%3D192.0.2.7?by=eve", "");
    assert_eq!(lifted.status(), 200);
    let path = "/v1/limits/per-key/keys/token=secret-4";
    assert_eq!(setup.ask_as("ada", "DELETE", path, "").status(), 200);
    let path = "/v1/limits/per-key/keys/secret-5";
    assert_eq!(setup.ask_as("ada", "DELETE", path, "").status(), 400);
    assert_eq!(setup.ask_as("ada", "POST", "/v1/reload", "").status(), 200);
    let refused = setup.ask_as("rita", "POST", "/v1/bans", &order.to_string());
    assert_eq!(refused.status(), 403);
    let entries = setup.orders(9);
    let hash = entries[1]["target"].as_str().unwrap().to_owned();
    assert!(hash.starts_with("token=#"), "{hash}");
    let reset = entries[5]["target"].as_str().unwrap().to_owned();
    assert!(
        reset.starts_with("token=#") && reset.ends_with(" of per-key"),
        "{reset}"
    );
    let expected = [
        ("simon", "ban", "ip=192.0.2.7", "scans", "done"),
        ("simon for bob", "ban", &*hash, "", "done"),
        ("simon", "POST /v1/bans", "", "", "400 Bad Request"),
        ("simon", "unban", "token=…", "", "404 Not Found"),
        ("ada for eve", "unban", "ip=192.0.2.7", "", "done"),
        ("ada", "reset", &*reset, "", "done"),
        ("ada", "reset", "… of per-key", "", "400 Bad Request"),
        ("ada", "reload", "", "", "done"),
        ("rita", "POST /v1/bans", "", "", "needs the right `support`"),
    ];
    for (entry, (by, action, target, reason, result)) in entries.iter().zip(expected) {
        let expected = json!({
            "by": by, "peer": "127.0.0.1", "action": action, "target": target, "reason": reason, "result": result,
        });
        assert_eq!(*entry, expected);
    }
    let events = setup.audit();
    assert!(
        events
            .iter()
            .all(|event| event["at"].as_u64() >= Some(began))
    );
    assert_eq!(events[0]["event"], "order_refused");
    assert_eq!(events[1]["event"], "ordered");
    // The others are elsewhere, and none of them has a secret.
    let others = json(&setup.ask_as("rita", "GET", "/v1/record/events?audit=false&from=-1h", ""));
    assert!(
        others["events"]
            .as_array()
            .unwrap()
            .iter()
            .all(|event| event.get("audit").is_none())
    );
    let all = setup
        .ask_as("rita", "GET", "/v1/record/events?from=-1h", "")
        .text();
    assert!(!all.contains("secret"), "{all}");
    // The command, with the token in a file.
    fs::write(setup.folder.path().join("rita.token"), token("rita")).unwrap();
    let admin = setup.server.admin.unwrap().to_string();
    let command = |arguments: &[&str], file| {
        let arguments = [arguments, &["--admin", &admin, "--token-file", file]].concat();
        child::run(setup.folder.path(), &arguments)
    };
    let listed = command(&["audit", "--from", "-1h"], "rita.token");
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    let lines: Vec<&str> = listed.out.lines().collect();
    assert_eq!(lines.len(), 9, "{}", listed.out);
    assert!(!listed.err.contains("only the latest"), "{}", listed.err);
    let few = command(&["audit", "--from", "-1h", "--most", "8"], "rita.token");
    assert_contains(&few.err, &["only the latest 8 orders are listed"]);
    assert!(
        lines[0].ends_with("  simon at 127.0.0.1: ban ip=192.0.2.7: scans (done)"),
        "{}",
        lines[0]
    );
    // The user of a shell does not sign for the owner of a token.
    fs::write(setup.folder.path().join("simon.token"), token("simon")).unwrap();
    let banned = command(&["ban", "192.0.2.8", "--json"], "simon.token");
    assert_contains(&banned.out, &["\"by\":\"simon\""]);
    let banned = command(
        &["ban", "192.0.2.9", "--json", "--by", "bob"],
        "simon.token",
    );
    assert_contains(&banned.out, &["\"by\":\"simon for bob\""]);
    let refused = command(&["ban", "192.0.2.8"], "rita.token");
    assert_eq!(refused.code, Some(1));
    assert_contains(&refused.err, &["403", "needs the right `support`"]);
}

/// Secrets are pasted into the wrong place too.
#[test]
fn names_of_no_limit_are_not_recorded() {
    let setup = start_with_operators();
    let path = "/v1/limits/secret-1/keys/ip=192.0.2.1";
    assert_eq!(setup.ask_as("ada", "DELETE", path, "").status(), 404);
    let grant = json!({ "limit": "secret-2", "key": "user=secret-3", "times": 2, "for": "1d" });
    let granted = setup.ask_as("ada", "POST", "/v1/grants", &grant.to_string());
    assert_eq!(granted.status(), 404);
    let path = "/v1/grants/secret-4/user=secret-5";
    assert_eq!(setup.ask_as("ada", "DELETE", path, "").status(), 404);
    let revoked = setup.ask_as("ada", "DELETE", "/v1/keys/secret-6", "");
    assert_eq!(revoked.status(), 404);
    let entries = setup.orders(4);
    let targets = entries
        .iter()
        .map(|entry| entry["target"].as_str().unwrap());
    let expected = ["ip=192.0.2.1 of …", "… user=…", "… user=…", "…"];
    assert_eq!(targets.collect::<Vec<_>>(), expected);
    let events = setup.ask_as("rita", "GET", "/v1/record/events?from=-1h", "");
    assert!(!events.text().contains("secret"), "{}", events.text());
}

/// The log has the same, and keeps it without a record.
#[test]
fn orders_are_logged() {
    let setup = start_with_operators();
    setup.ask_as("ada", "POST", "/v1/reload", "");
    let line = line_with(&setup.server.err, "ordered");
    assert_contains(&line, &["ada", "reload", "127.0.0.1", "done"]);
    setup.ask_as("rita", "POST", "/v1/reload", "");
    let line = line_with(&setup.server.err, "order refused");
    assert_contains(
        &line,
        &["rita", "POST /v1/reload", "needs the right `admin`"],
    );
    let wrong = "authorization: Bearer wrong-token-0123456789\r\n";
    setup.server.ask_with("GET", "/v1/limits", wrong, "");
    let line = line_with(&setup.server.err, "order refused");
    assert_contains(&line, &["127.0.0.1", "wrong token"]);
    assert!(!line.contains("wrong-token"), "{line}");
}

/// A changed file holds at once. One with a mistake leaves the tokens before in use.
#[test]
fn changed_tokens_hold_at_once() {
    let setup = start_with_operators();
    let file = setup.folder.path().join("operators.yaml");
    let status = |name: &str| setup.ask_as(name, "POST", "/v1/reload", "").status();
    assert_eq!((status("simon"), status("ada")), (403, 200));
    let zoe = token("zoe");
    fs::write(
        &file,
        operators().replace("rights: support", "rights: admin"),
    )
    .unwrap();
    wait_until("simon is an admin", || status("simon") == 200);
    fs::write(&file, format!("zoe: {{ token: {zoe}, rights: admin }}\n")).unwrap();
    wait_until("ada is not known any more", || status("ada") == 401);
    assert_eq!((status("zoe"), status("simon")), (200, 401));
    // The record says who has come and gone.
    let says = |text: &str| {
        let events = setup.ask_as("zoe", "GET", "/v1/record/events?from=-1h", "");
        events.text().contains(text)
    };
    wait_until("a change is recorded", || says("simon support → admin"));
    wait_until("the others are recorded", || {
        says("zoe added (admin)") && says("ada removed")
    });
    fs::write(&file, "zoe: { token: short, rights: admin }\n").unwrap();
    let refused = setup.ask_as("zoe", "POST", "/v1/reload", "");
    problem(&refused, 422, "the policies before still run");
    assert!(!refused.text().contains("short\""), "{}", refused.text());
    assert_contains(&refused.text(), &["operators.yaml", "this is no token"]);
    // Nor does a file without tokens open the listener.
    let gateway = setup.folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&gateway).unwrap();
    let without = text.replace(", tokens: operators.yaml", "");
    assert_ne!(text, without);
    fs::write(&gateway, without).unwrap();
    let reloaded = setup.ask_as("zoe", "POST", "/v1/reload", "");
    assert_eq!(json(&reloaded)["needs_restart"], json!(["admin"]));
    assert_eq!(setup.get("/v1/limits").status(), 401);
    assert_eq!(status("zoe"), 200);
}

/// Tokens are needed from the reload on that finds them.
#[test]
fn a_reload_may_close_the_listener() {
    let setup = crate::start(crate::ADMIN);
    assert_eq!(setup.get("/v1/limits").status(), 200);
    let whoami = json(&setup.get("/v1/whoami"));
    assert_eq!(
        (&whoami["name"], &whoami["rights"]),
        (&Value::Null, &json!("admin"))
    );
    fs::write(setup.folder.path().join("operators.yaml"), operators()).unwrap();
    let gateway = setup.folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&gateway).unwrap();
    let admin = "admin: { address: 127.0.0.1:0, tokens: operators.yaml }";
    fs::write(&gateway, text.replace("admin: 127.0.0.1:0", admin)).unwrap();
    wait_until("a token is needed", || {
        setup.get("/v1/limits").status() == 401
    });
    assert_eq!(setup.ask_as("rita", "GET", "/v1/limits", "").status(), 200);
}

/// A file may have hashes in the place of tokens. `tollgate ready` then needs `probes`.
#[test]
fn hashes_are_enough() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let text = format!("rita: {{ token: \"{RITA_HASH}\", rights: read }}\n");
    fs::write(folder.path().join("operators.yaml"), text).unwrap();
    let setup = start_with(Upstream::plain(), folder, GATEWAY);
    assert_eq!(setup.ask_as("rita", "GET", "/v1/limits", "").status(), 200);
    let sent_hash = format!("authorization: Bearer {RITA_HASH}\r\n");
    let response = setup.server.ask_with("GET", "/v1/limits", &sent_hash, "");
    assert_eq!(response.status(), 401);
    let ready = child::run(setup.folder.path(), &["ready"]);
    assert_eq!(ready.code, Some(1));
    assert_contains(&ready.err, &["only hashes", "probes: 127.0.0.1:9901"]);
    let check = child::run(setup.folder.path(), &["check"]);
    assert_eq!(check.code, Some(0), "{}", check.err);
    let warnings = [
        "no token with the right `admin` is valid",
        "`tollgate ready` has no token",
    ];
    assert_contains(&format!("{}{}", check.out, check.err), &warnings);
}

/// `tollgate ready` sends the token that may do least. Tokens that have expired are warned of.
#[test]
fn the_least_token_is_sent() {
    let setup = start_with_operators();
    let file = setup.folder.path().join("operators.yaml");
    let lines = operators();
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.reverse();
    fs::write(file, lines.join("\n")).unwrap();
    let gateway = setup.folder.path().join("tollgate.yaml");
    let endpoints = tollgate::policy::load_endpoints(&gateway).unwrap();
    assert_eq!(endpoints.admin_token, Some(token("rita")));
    let check = child::run(setup.folder.path(), &["check"]);
    let warnings = format!("{}{}", check.out, check.err);
    assert_contains(&warnings, &["the token of `old` has expired"]);
    assert!(!warnings.contains("`tollgate ready`"), "{warnings}");
}
