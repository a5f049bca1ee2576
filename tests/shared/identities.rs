//! Limits by identities of one's own, and limits of single keys, in a store that two gateways share.

use crate::common::redis::Redis;
use crate::common::{self, Client};
use crate::fleet::Fleet;
use crate::memcached;

const IDENTITY: &str = "\
identity:
  ip: { trusted_proxies: [127.0.0.0/8] }
  user: { header: x-user, from: [127.0.0.0/8] }
  device: { header: x-device-id }
  session: { cookie: sid }
  kind: { query: kind }
  place: { networks: { office: [192.0.2.0/24], lab: [198.51.100.0/24] } }
";

const LIMITS: &str = "  \
  per-device: { key: device, rate: 20/h, sharing: strict }
  per-session: { key: session, rate: 20/h, sharing: strict }
  per-kind: { key: kind, rate: 20/h, sharing: strict }
  per-place: { key: [place, device], rate: 20/h, sharing: strict }
  per-user: { key: user, rate: 20/h, sharing: strict }
";

/// Users of the same limit: ten with the rate of all, one with more, one with less, one with another window.
const OVERRIDES: &str = "per-user: { user=more: 33/h, user=less: 7/h, user=day: [11/h, 40/d] }\n";

/// Sends 50 requests of each client through two gateways in turn, each client spelled in two ways. Exactly as many pass
/// as the limit admits.
fn check(store: &str) {
    let upstream = common::Upstream::plain();
    let store = format!(
        "store: {{ address: '{store}', budget: 1s }}\noverrides: overrides.yaml\n{IDENTITY}"
    );
    let fleet = Fleet::with_files(
        2,
        upstream.address,
        &store,
        LIMITS,
        &[("overrides.yaml", OVERRIDES)],
    );
    let addresses = fleet.addresses();
    for (client, spelled, expected) in [
        (
            "x-device-id: 6F9619FF-8B86-D011-B42D-00C04FC964FF",
            "x-device-id: {6f9619ff8b86d011b42d00c04fc964ff}",
            20,
        ),
        ("cookie: sid=abc", "cookie: a=b; sid=\"abc\"", 20),
        (
            "x-device-id: a\r\nx-forwarded-for: 192.0.2.1",
            "x-device-id: a\r\nx-forwarded-for: 192.0.2.200",
            20,
        ),
        (
            "x-device-id: b\r\nx-forwarded-for: 198.51.100.1",
            "x-forwarded-for: 198.51.100.1\r\nx-device-id:b",
            20,
        ),
        ("x-user: one", "x-user:  one ", 20),
        ("x-user: more", "x-user: more", 33),
        ("x-user: less", "x-user: less", 7),
        ("x-user: day", "x-user: day", 11),
    ] {
        let passed = (0..50).filter(|number| {
            let fields = if number % 3 == 0 { spelled } else { client };
            let mut connection = Client::connect(addresses[number % 2]);
            connection.send(format!("GET / HTTP/1.1\r\nhost: t\r\n{fields}\r\n\r\n"));
            connection.answer().status() == 200
        });
        assert_eq!(passed.count(), expected, "{client}");
    }
    let passed = (0..50).filter(|number| {
        let query = ["?kind=x", "?a=1&kind=%78"][number % 3 % 2];
        Client::connect(addresses[number % 2])
            .get(&format!("/{query}"))
            .status()
            == 200
    });
    assert_eq!(passed.count(), 20, "a parameter");
    let alone: usize = fleet.counts().iter().map(|counts| counts.alone).sum();
    assert_eq!(alone, 0, "decided without the store");
}

#[test]
fn identities_of_ones_own_are_exact_in_redis() {
    check(&Redis::start().url());
}

#[test]
fn identities_of_ones_own_are_exact_in_memcached() {
    let memcached = memcached::Server::start();
    check(&format!("memcached://{}", memcached.address));
}
