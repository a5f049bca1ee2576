//! A gateway that cannot report its units counts in the shares of others.

use std::sync::atomic::Ordering::Relaxed;

use tollgate::base::clock::Clock;

use crate::common::redis::Redis;
use crate::common::wait_until;
use crate::fleet::Fleet;
use crate::proxy::Proxy;
use crate::scene::pass;
use crate::upstream::Upstream;

const LIMITS: &str = "  per-device: { key: device, rate: 3/h, sharing: strict }\n";
/// A gateway with the least memory knows fewer counters than these.
const INVENTED_KEYS: usize = 5_000;

/// Two gateways share three units. One knows as many counters as it may, so that it cannot report the unit that it admits
/// while the store is away for it. Until that unit has left the window, it counts as a gateway that lives.
#[test]
fn a_gateway_that_cannot_report_counts_in_shares() {
    let (clock, mut store) = (Clock::system(), Redis::start());
    let (proxy, upstream) = (Proxy::start(store.port, &clock), Upstream::start(&clock));
    let fleets = [proxy.port, store.port].map(|port| {
        let store = format!(
            "store: {{ address: 'redis://127.0.0.1:{port}', budget: 1s, memory: 2MiB }}\n\
             identity: {{ device: {{ header: x-device-id }} }}"
        );
        Fleet::alone(1, upstream.address, &store, LIMITS)
    });
    let ready = |fleet: &Fleet| fleet.ready().concat();
    let is_shared = |fleet: &Fleet| ready(fleet).contains("store shared (2 gateways)");
    wait_until("both share the store", || fleets.iter().all(is_shared));
    let [full, other] = &fleets;
    let mut client = full.gateways[0].connect();
    for number in 0..INVENTED_KEYS {
        client.send(format!(
            "GET / HTTP/1.1\r\nhost: t\r\nx-device-id: {number:x}\r\n\r\n"
        ));
        assert_eq!(client.answer().status(), 200);
    }
    let admitted = |fleet: &Fleet| {
        let mut client = fleet.gateways[0].connect();
        let requests = 0..5;
        let statuses = requests.map(|_| {
            client.send("GET / HTTP/1.1\r\nhost: t\r\nx-device-id: one\r\n\r\n");
            client.answer().status()
        });
        statuses.filter(|status| *status == 200).count()
    };
    proxy.delay.store(3_000_000, Relaxed);
    wait_until("the store is away", || ready(full).contains("store away"));
    assert_eq!(admitted(full), 1, "half of three");
    proxy.delay.store(0, Relaxed);
    wait_until("it waits for its unit to leave", || {
        ready(full).contains("store learning")
    });
    // Heartbeats count for ten seconds. One from before may still be on its way for three.
    for _ in 0..15 {
        pass(1_000);
        let state = ready(other);
        assert!(state.contains("(2 gateways)"), "{state}");
    }
    store.kill();
    wait_until("the store is away for both", || {
        fleets
            .iter()
            .all(|fleet| ready(fleet).contains("store away"))
    });
    let more = fleets.each_ref().map(admitted);
    assert_eq!(more, [0, 1], "beside the first");
}
