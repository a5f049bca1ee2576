//! Limits of single keys, from a watched file.

use tollgate::base::clock::Nanos;

use crate::common::Upstream;
use crate::custom::{FILES, IDENTITY, token};
use crate::{Site, told};

const OVERRIDES: &str = "\
per-user:
  user=acme: 3/m
  user=slow: [2/m, 5/h]
  user=free: unlimited
  user=same: 1/m
  user=bob@example.com: 2/m
per-ip:
  ip=192.0.2.7: 5
  ip=2001:db8::/64: unlimited
";

fn site(limits: &[&str], overrides: &str) -> Site {
    let mut files = FILES.to_vec();
    files.push(("overrides.yaml", overrides));
    let policy = "overrides: overrides.yaml\n";
    Site::with_files(IDENTITY, policy, limits, Upstream::plain(), &files)
}

fn fields(user: &str, ip: &str) -> String {
    format!(
        "x-forwarded-for: {ip}\r\n{}",
        token(&serde_json::json!({ "sub": user }))
    )
}

/// The number of requests of a user that pass until one is refused.
fn passing(site: &Site, user: &str, ip: &str) -> usize {
    let fields = fields(user, ip);
    (0..20)
        .take_while(|_| site.get(&fields).status() == 200)
        .count()
}

#[test]
fn a_key_has_its_own_rate() {
    let limits = [
        "per-user: { key: user, rate: 1/m }",
        "per-ip: { key: ip, concurrent: 2 }",
    ];
    let site = site(&limits, OVERRIDES);
    for (user, expected) in [
        ("acme", 3),
        ("slow", 2),
        ("free", 20),
        ("same", 1),
        ("other", 1),
        ("bob@example.com", 2),
    ] {
        assert_eq!(passing(&site, user, "192.0.2.1"), expected, "{user}");
    }
    site.pass(Nanos::from_secs(60));
    for (user, expected) in [("acme", 3), ("slow", 2), ("other", 1)] {
        assert_eq!(passing(&site, user, "192.0.2.1"), expected, "{user}");
    }
    site.pass(Nanos::from_secs(60));
    assert_eq!(passing(&site, "slow", "192.0.2.1"), 1, "5/h holds too");
}

/// Headers and refusals tell the client of its own rate, also where the cache of refusals has another's.
#[test]
fn a_client_is_told_its_own_rate() {
    let limits = [
        "per-user: { key: user, rate: 1/m }",
        "per-ip: { key: ip, concurrent: 2, disclose: none }",
    ];
    let overrides = "per-user: { user=acme: 1/h, user=slow: 1/d, user=twice: 2/m }\n";
    let site = site(&limits, overrides);
    for (user, policy, left) in [
        ("acme", "\"per-user\";q=1;w=3600", "per-user 0"),
        ("other", "\"per-user\";q=1;w=60", "per-user 0"),
        ("slow", "\"per-user\";q=1;w=86400", "per-user 0"),
        ("twice", "\"per-user\";q=2;w=60", "per-user 1"),
    ] {
        let fields = fields(user, "192.0.2.1");
        let first = site.get(&fields);
        assert_eq!(
            (first.status(), told(&first).as_str()),
            (200, left),
            "{user}"
        );
        for _ in 0..3 {
            let response = site.get(&fields);
            assert_eq!(response.field("ratelimit-policy"), Some(policy), "{user}");
        }
    }
}

#[test]
fn a_key_of_several_parts_has_its_own_rate() {
    let limits = ["both: { key: [ip, device], rate: 1/m }"];
    let overrides = "both:\n  ip=192.0.2.1,device=a: 3/m\n  device=b,ip=192.0.2.1: 2/m\n  \
                     ip=192.0.2.1,device=a+c: 4/m\n";
    let site = site(&limits, overrides);
    for (device, ip, expected) in [
        ("a", "192.0.2.1", 3),
        ("b", "192.0.2.1", 2),
        ("a+c", "192.0.2.1", 4),
        ("a", "192.0.2.2", 1),
    ] {
        let fields = format!("x-forwarded-for: {ip}\r\nx-device-id: {device}\r\n");
        let passing = (0..9).take_while(|_| site.get(&fields).status() == 200);
        assert_eq!(passing.count(), expected, "{device} {ip}");
    }
}

/// A key keeps its count when its number changes. Another key's count never changes.
#[test]
fn a_reload_changes_rates_and_keeps_counts() {
    let limits = ["per-user: { key: user, rate: 4/m }"];
    let site = site(&limits, "per-user: { user=acme: 3/m, user=same: 5/m }\n");
    assert_eq!(passing(&site, "acme", "192.0.2.1"), 3);
    assert_eq!(passing(&site, "other", "192.0.2.1"), 4);
    for (overrides, acme, same) in [
        ("per-user: { user=acme: 5/m, user=same: 5/m }\n", 2, 5),
        ("per-user: { user=acme: 7/m }\n", 2, 0),
        ("", 0, 0),
        ("per-user: { user=acme: 9/m, user=other: 5/m }\n", 2, 0),
    ] {
        std::fs::write(site.gateway.folder.path().join("overrides.yaml"), overrides).unwrap();
        site.gateway.reload().unwrap();
        assert_eq!(passing(&site, "acme", "192.0.2.1"), acme, "{overrides}");
        assert_eq!(passing(&site, "same", "192.0.2.1"), same, "{overrides}");
    }
    assert_eq!(passing(&site, "other", "192.0.2.1"), 1);
}

/// A permit is counted by the number of its own key.
#[test]
fn a_key_has_its_own_number_of_open_requests() {
    let limits = ["open: { key: device, concurrent: 1 }"];
    let overrides = "open: { device=a: 3 }\n";
    let mut files = FILES.to_vec();
    files.push(("overrides.yaml", overrides));
    // This upstream never responds.
    let upstream = Upstream::scripted(|mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
        }
    });
    let site = Site::with_files(
        IDENTITY,
        "overrides: overrides.yaml\n",
        &limits,
        upstream,
        &files,
    );
    let mut held = Vec::new();
    for device in ["a", "a", "a", "b"] {
        let mut client = site.gateway.connect();
        client.send(format!(
            "GET /a HTTP/1.1\r\nhost: t\r\nx-device-id: {device}\r\n\r\n"
        ));
        site.upstream.next();
        held.push(client);
    }
    for device in ["a", "b"] {
        let response = site.get(&format!("x-device-id: {device}\r\n"));
        assert_eq!(response.status(), 429, "{device}");
    }
}

/// The networks around an IPv6 address have the limit of all, so a key with another limit does not count for them.
#[test]
fn a_key_does_not_use_up_its_neighbours_networks() {
    let limits = [
        "per-ip: { key: ip, rate: 10/m }",
        "open: { key: ip, concurrent: 2 }",
    ];
    let overrides = "per-ip: { ip=2001:db8:0:1::/64: 1/d }\nopen: { ip=2001:db8:0:1::/64: 9 }\n";
    let site = site(&limits, overrides);
    let passing = |address: &str| {
        let fields = format!("x-forwarded-for: {address}\r\n");
        (0..20)
            .take_while(|_| site.get(&fields).status() == 200)
            .count()
    };
    assert_eq!(passing("2001:db8:0:1::7"), 1);
    assert_eq!(passing("2001:db8:0:2::7"), 10);
}
