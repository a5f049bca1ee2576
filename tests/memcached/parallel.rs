//! Many gateways at once on the same counters.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use tollgate::base::clock::{Clock, Nanos};
use tollgate::limit::Algorithm;

use crate::server::Server;
use crate::site::{Gateway, block_on, clock, limit, minute, most_in, part, units};

const GATEWAYS: usize = 8;

/// Runs a gateway in a thread for each clock.
fn in_parallel(server: &Server, clocks: &[Clock], run: impl AsyncFn(&Gateway, usize) + Sync) {
    thread::scope(|scope| {
        for (place, clock) in clocks.iter().enumerate() {
            let (server, run) = (server.address, &run);
            scope.spawn(move || {
                block_on(async {
                    let gateway = Gateway::start(&[server], clock, place as u32 + 1).await;
                    run(&gateway, place).await;
                });
            });
        }
    });
}

/// Each round has two new keys of 50 units. After it the counters hold what was admitted, and whoever
/// comes alone gets the rest.
#[test]
fn never_above_the_ceiling_and_nothing_is_lost() {
    const ROUNDS: u128 = 60;
    let server = Server::start();
    let clocks = vec![clock(); GATEWAYS];
    let barrier = Barrier::new(GATEWAYS);
    let counts = [AtomicU32::new(0), AtomicU32::new(0)];
    let (admitted, refused, rest) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    in_parallel(&server, &clocks, async |gateway, place| {
        for round in 0..ROUNDS {
            let keys = [minute(50, 2 * round), minute(50, 2 * round + 1)];
            if place == 0 {
                counts
                    .iter()
                    .for_each(|count| count.store(0, Ordering::SeqCst));
            }
            barrier.wait();
            for step in 0..20 {
                // Most take both, some more at once, some one of them.
                let parts = match (step + place) % 4 {
                    0 => vec![units(&keys[0], 1, 3)],
                    1 => vec![keys[1].clone()],
                    2 => vec![keys[1].clone(), keys[0].clone()],
                    _ => keys.to_vec(),
                };
                let said = gateway.decide(&parts).await.unwrap();
                let count = if said.is_admitted {
                    &admitted
                } else {
                    &refused
                };
                count.fetch_add(1, Ordering::SeqCst);
                for (part, answer) in parts.iter().zip(said.counters) {
                    let key = (part.name.key.0 % 2) as usize;
                    counts[key].fetch_add(answer.granted_units, Ordering::SeqCst);
                }
            }
            // What was to be taken back was sent before this, on the same connection.
            gateway.used(&keys[0]).await;
            barrier.wait();
            if place == 0 {
                for (count, key) in counts.iter().zip(&keys) {
                    let count = count.load(Ordering::SeqCst);
                    assert!(count <= 50, "{count} of 50");
                    assert_eq!(gateway.used(key).await, count);
                    while gateway
                        .decide(std::slice::from_ref(key))
                        .await
                        .unwrap()
                        .is_admitted
                    {
                        rest.fetch_add(1, Ordering::SeqCst);
                    }
                    assert_eq!(gateway.used(key).await, 50);
                }
            }
            barrier.wait();
        }
    });
    let rest = rest.load(Ordering::SeqCst);
    println!(
        "{admitted:?} admitted, {refused:?} refused; {rest} of 6000 units left to who came alone"
    );
}

/// The edges of buckets pass while they ask, and their clocks differ by up to 45 ms.
#[test]
fn no_window_has_more_though_clocks_differ() {
    const WINDOW: u64 = 3_000_000;
    let server = Server::start();
    for (key, algorithm) in [(1, Algorithm::SlidingWindow), (2, Algorithm::SlidingLog)] {
        let start = clock().now();
        let clocks: Vec<Clock> = (0..GATEWAYS as u64)
            .map(|place| Clock::manual(start.after(Nanos(place * 4_000_000))))
            .collect();
        let asked = part(&limit(algorithm, 40, Nanos(WINDOW * 1_000)), key);
        let (stamps, barrier) = (Mutex::new(Vec::new()), Barrier::new(GATEWAYS));
        in_parallel(&server, &clocks, async |gateway, _| {
            for step in 0..600 {
                let said = gateway.decide(std::slice::from_ref(&asked)).await.unwrap();
                if said.is_admitted {
                    stamps.lock().unwrap().push(said.now_micros);
                }
                if step % 2 == 1 {
                    // All clocks go on together, by a third of a bucket.
                    barrier.wait();
                    gateway.clock.advance(Nanos::from_millis(17));
                }
            }
        });
        let mut stamps = stamps.into_inner().unwrap();
        let most = most_in(WINDOW, &mut stamps);
        println!(
            "{algorithm:?}: {} admitted in 5.1 s, at most {most} in a window",
            stamps.len()
        );
        assert!(most <= 40, "{most} in a window of {algorithm:?}");
        assert!(stamps.len() >= 40);
    }
}
