//! Quotas by the calendar, of several gateways together.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::common::redis::Redis;
use crate::common::{self, Client};
use crate::fleet::Fleet;
use crate::memcached;

const LIMITS: &str =
    "  yearly: { key: user, quota: 20/year, zone: Europe/Berlin, starts: 04-15 }\n";

/// Two gateways admit exactly the quota of many requests at once, and a third none.
#[track_caller]
fn check(store: &str) {
    let upstream = common::Upstream::plain();
    let store = format!("store: {{ address: '{store}', budget: 1s }}");
    let fleet = Fleet::start(2, upstream.address, &store, LIMITS);
    let (admitted, addresses) = (AtomicUsize::new(0), fleet.addresses());
    thread::scope(|scope| {
        for number in 0..8 {
            let (address, admitted) = (addresses[number % 2], &admitted);
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
    let alone: usize = fleet.counts().iter().map(|counts| counts.alone).sum();
    assert_eq!(alone, 0, "decided without the store");
    assert_eq!(admitted.load(SeqCst), 20);
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
