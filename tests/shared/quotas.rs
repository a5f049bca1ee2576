//! Quotas by the calendar and credits, of several gateways together.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::common::redis::Redis;
use crate::common::{self, Client, wait_until};
use crate::fleet::Fleet;
use crate::memcached;

const LIMITS: &str =
    "  yearly: { key: user, quota: 20/year, zone: Europe/Berlin, starts: 04-15 }\n";

/// Eight clients ask ten times each, at all gateways; how many requests are admitted.
fn ask_at_once(addresses: &[SocketAddr]) -> usize {
    let admitted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..8 {
            let (address, admitted) = (addresses[number % addresses.len()], &admitted);
            scope.spawn(move || {
                for _ in 0..10 {
                    let mut client = Client::connect(address);
                    client.send("GET / HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n");
                    let status = client.answer().status();
                    assert!(matches!(status, 200 | 429), "{status}");
                    admitted.fetch_add(usize::from(status == 200), SeqCst);
                }
            });
        }
    });
    admitted.load(SeqCst)
}

/// Two gateways admit exactly the quota of many requests at once, and a third none.
#[track_caller]
fn check(store: &str) {
    let upstream = common::Upstream::plain();
    let store = format!("store: {{ address: '{store}', budget: 1s }}");
    let fleet = Fleet::start(2, upstream.address, &store, LIMITS);
    let admitted = ask_at_once(&fleet.addresses());
    let alone: usize = fleet.counts().iter().map(|counts| counts.alone).sum();
    assert_eq!(alone, 0, "decided without the store");
    assert_eq!(admitted, 20);
    let third = fleet.another();
    let said = third.ask("GET", "/v1/limits/yearly/keys/user=u", "").text();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let said = &said["limits"][0];
    assert_eq!(said["remaining"], 0, "{said}");
    let next_window = said["next_window"].as_str().unwrap();
    assert!(next_window.ends_with("-04-15 00:00 +02:00"), "{said}");
}

#[test]
fn gateways_share_a_quota_in_redis() {
    check(&Redis::start().url());
}

#[test]
fn gateways_share_a_quota_in_memcached() {
    let memcached = memcached::Server::start();
    check(&format!("memcached://{}", memcached.address));
}

/// Three gateways use exactly the credits that were added, and the next ones that are added too.
#[test]
fn gateways_share_credits_in_redis() {
    let (upstream, redis) = (common::Upstream::plain(), Redis::start());
    let store = format!("store: {{ address: '{}', budget: 1s }}", redis.url());
    let limits = "  prepaid: { key: user, credits: true }\n";
    let fleet = Fleet::start(3, upstream.address, &store, limits);
    let addresses = fleet.addresses();
    assert_eq!(ask_at_once(&addresses), 0);
    let (mut used, mut total) = (0, 0);
    for add in [25, 1, 44] {
        total += add;
        let order = format!(r#"{{ "limit": "prepaid", "key": "user=u", "add": {add} }}"#);
        let granted = fleet.gateways[0].ask("POST", "/v1/grants", &order);
        assert_eq!(granted.status(), 200, "{}", granted.text());
        let added = format!("\"added\":{total},");
        wait_until("all gateways know the account", || {
            fleet.gateways.iter().all(|gateway| {
                let key = gateway.ask("GET", "/v1/limits/prepaid/keys/user=u", "");
                key.text().replace(' ', "").contains(&added)
            })
        });
        used += ask_at_once(&addresses);
        assert_eq!(used, total);
    }
    let alone: usize = fleet.counts().iter().map(|counts| counts.alone).sum();
    assert_eq!(alone, 0, "decided without the store");
}
