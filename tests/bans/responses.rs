//! What banned clients get, over each version of HTTP and on busy connections.

use std::io::Read;

use serde_json::json;

use crate::common::{assert_contains, http2, wait_until};
use crate::{Site, from, json_of, request};

#[test]
fn banned_clients_get_429_and_are_told_when_it_ends() {
    let site = Site::start("");
    assert_eq!(
        site.ban(&json!({ "key": "192.0.2.7", "for": "10m", "reason": "secret" }))
            .status(),
        200
    );
    let answer = site.get(&from("192.0.2.7"));
    assert_eq!(answer.status(), 429);
    assert_eq!(
        answer.field("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    let seconds: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((590..=600).contains(&seconds), "{seconds}");
    let body = json_of(&answer);
    let kind = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
    assert_eq!(body["type"], kind);
    assert_eq!(body["title"], "Abnormal usage detected");
    assert!(
        !answer.text().contains("secret"),
        "the reason is for operators"
    );
    let grpc = site.get(&format!(
        "{}content-type: application/grpc\r\n",
        from("192.0.2.7")
    ));
    assert_eq!((grpc.status(), grpc.field("grpc-status")), (200, Some("8")));
    assert!(
        site.upstream.drain().is_empty(),
        "nothing reaches the server"
    );
}

#[test]
fn the_gateway_file_says_what_banned_clients_get() {
    let site = Site::start("bans: { response: 403 }\n");
    site.ban_key("192.0.2.7");
    let answer = site.get(&from("192.0.2.7"));
    assert_eq!((answer.status(), answer.field("retry-after")), (403, None));
    assert_contains(&answer.text(), &["This client is not allowed here."]);

    let site = Site::start("bans: { response: none }\n");
    site.ban_key("192.0.2.7");
    let mut client = site.server.connect();
    client.send(request(&from("192.0.2.7")));
    let mut bytes = Vec::new();
    client.reader.read_to_end(&mut bytes).unwrap();
    assert!(bytes.is_empty(), "{}", String::from_utf8_lossy(&bytes));
    http2::run(async {
        let mut client = http2::Client::connect(site.server.address).await;
        let request = |ip: &str| {
            let request = http2::request("GET", "/a").header("x-forwarded-for", ip);
            request.body(()).unwrap()
        };
        let (banned, _) = client.begin(request("192.0.2.7"), true);
        let error = banned.await.unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
        let (free, _) = client.begin(request("192.0.2.8"), true);
        assert_eq!(free.await.unwrap().status(), 200, "the connection goes on");
    });
}

/// A connection remembers its last request: the ban must come through, and its end too.
#[test]
fn a_ban_holds_on_busy_connections_at_once() {
    let site = Site::start("");
    for (key, fields) in [
        ("192.0.2.7", from("192.0.2.7")),
        ("user=alice", "x-user: alice\r\n".into()),
        // No limit counts by this one, so that nothing looks for it before.
        ("tenant=red", "x-tenant: red\r\n".into()),
    ] {
        let mut client = site.server.connect();
        let mut statuses = |count: usize| {
            let mut status = || {
                client.send(request(&fields));
                client.answer().status()
            };
            (0..count).map(|_| status()).collect::<Vec<_>>()
        };
        assert_eq!(statuses(4), [200; 4], "{key}");
        site.ban_key(key);
        assert_eq!(statuses(4), [429; 4], "{key}");
        assert_eq!(site.unban(key).status(), 200);
        assert_eq!(statuses(4), [200; 4], "{key}");
    }
}

/// The longer ban of another identity goes on.
#[test]
fn a_ban_ends_on_busy_connections() {
    let site = Site::start("");
    for (key, fields) in [
        ("192.0.2.7", from("192.0.2.7")),
        ("user=alice", "x-user: alice\r\n".into()),
        ("tenant=red", "x-tenant: red\r\n".into()),
    ] {
        let mut client = site.server.connect();
        let mut status = |fields: &str| {
            client.send(request(fields));
            client.answer().status()
        };
        for _ in 0..3 {
            assert_eq!(status(&fields), 200);
        }
        let banned = site.ban(&json!({ "key": key, "for": "1s" }));
        assert_eq!(banned.status(), 200);
        assert_eq!(status(&fields), 429, "{key}");
        wait_until("the ban ends", || status(&fields) == 200);
    }
    let both = "x-user: alice\r\nx-tenant: red\r\n";
    let mut client = site.server.connect();
    let mut seconds = || {
        client.send(request(both));
        let answer = client.answer();
        answer
            .field("retry-after")
            .map(|text| text.parse::<u64>().unwrap())
    };
    assert_eq!(seconds(), None);
    let order = |key: &str, duration: &str| site.ban(&json!({ "key": key, "for": duration }));
    assert_eq!(order("user=alice", "1s").status(), 200);
    assert_eq!(order("tenant=red", "1h").status(), 200);
    wait_until("the longer one goes on", || seconds() > Some(3_000));
}

/// The texts of their lines are copied from one to the next on a connection.
#[test]
fn lines_of_refusals_and_bans_in_turn() {
    let site = Site::start("access_log: access.log\nlimits: { few: { key: user, rate: 1/h } }\n");
    let mut client = site.server.connect();
    let mut statuses = |fields: &str, count: usize| {
        let mut status = || {
            client.send(request(fields));
            client.answer().status()
        };
        (0..count).map(|_| status()).collect::<Vec<_>>()
    };
    let mut expected = Vec::new();
    for (user, ip) in [("ann", "192.0.2.1"), ("bob", "192.0.2.2")] {
        let fields = format!("x-user: {user}\r\n{}", from(ip));
        assert_eq!(statuses(&fields, 4), [200, 429, 429, 429]);
        let keys = [format!("user={user}"), ip.to_owned()];
        for key in &keys {
            site.ban_key(key);
            assert_eq!(statuses(&fields, 3), [429; 3]);
        }
        for key in &keys {
            assert_eq!(site.unban(key).status(), 200);
        }
        assert_eq!(statuses(&fields, 3), [429; 3]);
        let line = |outcome: &str| format!("{outcome} {ip}");
        expected.push(line("admitted"));
        for (outcome, count) in [("refused", 3), ("banned", 6), ("refused", 3)] {
            expected.extend((0..count).map(|_| line(outcome)));
        }
    }
    let mut lines = Vec::new();
    wait_until("all is logged", || {
        let log = std::fs::read_to_string(site.folder.path().join("access.log")).unwrap();
        let text = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            let text = |name: &str| line[name].as_str().map(str::to_owned);
            Some(format!("{} {}", text("outcome")?, text("ip")?))
        };
        lines = log.lines().filter_map(text).collect();
        lines.len() >= expected.len()
    });
    assert_eq!(lines, expected);
}

/// Which of two fields a proxy wrote is not known, so the client may have written the other.
#[test]
fn an_unclear_address_is_no_way_around_a_ban() {
    let site = Site::start("");
    let unclear = "x-forwarded-for: 192.0.2.7\r\nforwarded: for=192.0.2.8\r\n";
    assert_eq!(site.get(unclear).status(), 200);
    site.ban_key("192.0.2.7");
    assert_eq!(site.get(unclear).status(), 400);
}

/// The upstream may read the other value, so the client may be the one that is banned.
#[test]
fn an_identity_with_two_readings_is_no_way_around_a_ban() {
    let site = Site::start("");
    for (key, fields) in [
        ("tenant=red", "x-tenant: red\r\nx-tenant: blue\r\n"),
        ("token=secret-key", "x-key: secret-key\r\nx-key: other\r\n"),
        ("user=alice", "x-user: alice\r\nx-user: bob\r\n"),
    ] {
        assert_eq!(site.get(fields).status(), 200, "no limit counts by {key}");
        site.ban_key(key);
        assert_eq!(site.get(fields).status(), 400, "{key}");
        assert_eq!(site.unban(key).status(), 200);
        assert_eq!(site.get(fields).status(), 200, "{key}");
    }
    // This credential proves no user.
    site.ban_key("user=alice");
    assert_eq!(site.get("x-key: one\r\nx-key: two\r\n").status(), 200);
}

/// As with a ban of a network: the address may be the banned one.
#[test]
fn an_unclear_address_is_no_way_around_a_ban_of_several_identities() {
    let site = Site::start("");
    let unclear = "x-user: alice\r\nx-forwarded-for: 192.0.2.7\r\nforwarded: for=192.0.2.8\r\n";
    assert_eq!(site.get(unclear).status(), 200);
    site.ban_key("ip=192.0.2.7,user=alice");
    let fields = format!("x-user: alice\r\n{}", from("192.0.2.7"));
    assert_eq!(site.get(&fields).status(), 429);
    assert_eq!(site.get(unclear).status(), 400);
}

#[test]
fn nested_bans_do_not_hide_each_other() {
    let site = Site::start("");
    let order = |key: &str, duration: &str| json!({ "key": key, "for": duration });
    assert_eq!(site.ban(&order("192.0.2.0/24", "1h")).status(), 200);
    assert_eq!(site.ban(&order("192.0.2.7", "1s")).status(), 200);
    let seconds = |ip: &str| {
        let answer = site.get(&from(ip));
        answer
            .field("retry-after")
            .map(|text| text.parse::<u64>().unwrap())
    };
    assert!(seconds("192.0.2.7") > Some(3_000));
    assert_eq!(site.unban("192.0.2.0/24").status(), 200);
    assert_eq!(seconds("192.0.2.8"), None);
}

/// As `deny` does it: a guess of a credential is counted and told nothing.
#[test]
fn a_request_that_cannot_be_read_is_banned_too() {
    let site = Site::start("");
    site.ban_key("127.0.0.0/8");
    let mut client = site.server.connect();
    client.send("GET /a HTTP/1.1\r\nhost: t\r\nbad field: x\r\n\r\n");
    assert_eq!(client.answer().status(), 429);
    for path in ["/nowhere/../..", "/%zz"] {
        let mut client = site.server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n"));
        assert_eq!(client.answer().status(), 429, "{path}");
    }
}
