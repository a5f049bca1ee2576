//! What goes wrong between a gateway and memcached.

use std::future::{Future, poll_fn};
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::timeout;
use tollgate::store::shared::call::{CallPart, HeartbeatSender, StoreError};

use crate::server::{Server, liar};
use crate::site::{Gateway, block_on, clock, minute, units, until};

/// Asks as a gateway does, with a budget.
async fn within(gateway: &Gateway, budget: Duration, part: &CallPart) -> Result<bool, StoreError> {
    let said = timeout(budget, gateway.decide(std::slice::from_ref(part))).await;
    said.unwrap_or(Err(StoreError::Late))
        .map(|said| said.is_admitted)
}

/// Only what stands still takes so long.
const BUDGET: Duration = Duration::from_secs(5);

#[test]
fn a_server_that_is_killed_is_away_and_comes_back() {
    let mut server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let asked = minute(50, 1);
        assert_eq!(within(&gateway, BUDGET, &asked).await, Ok(true));
        server.kill();
        until(|| !gateway.client.is_connected(0)).await;
        for _ in 0..100 {
            assert_eq!(
                within(&gateway, BUDGET, &asked).await,
                Err(StoreError::NotConnected)
            );
        }
        server.again();
        gateway.ready(1).await;
        assert_eq!(
            within(&gateway, BUDGET, &asked).await,
            Err(StoreError::MarkMismatch)
        );
        gateway.client.identify(0, None, true).await.unwrap();
        assert_eq!(within(&gateway, BUDGET, &asked).await, Ok(true));
        assert_eq!(gateway.used(&asked).await, 1);
    });
}

#[test]
fn what_is_flushed_is_noticed() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let asked = minute(50, 1);
        assert_eq!(within(&gateway, BUDGET, &asked).await, Ok(true));
        server.flush();
        assert_eq!(
            within(&gateway, BUDGET, &asked).await,
            Err(StoreError::MarkMismatch)
        );
        let met = gateway.client.identify(0, None, true).await.unwrap();
        assert_eq!(
            gateway
                .client
                .identify(0, None, true)
                .await
                .map(|met| met.mark),
            Ok(met.mark)
        );
        // What was counted before it was noticed has been taken back.
        assert_eq!(gateway.used(&asked).await, 0);
    });
}

/// Calls run out of time; when the server goes on, what they counted is taken back.
#[test]
fn a_server_that_stands_still_for_a_moment_loses_nothing() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let asked = minute(50, 1);
        assert_eq!(within(&gateway, BUDGET, &asked).await, Ok(true));
        server.stop();
        for _ in 0..20 {
            let said = within(&gateway, Duration::from_millis(10), &asked).await;
            assert_eq!(said, Err(StoreError::Late));
        }
        server.signal(Signal::CONT);
        assert_eq!(
            within(&gateway, Duration::from_secs(5), &asked).await,
            Ok(true)
        );
        assert!(gateway.client.is_connected(0));
        assert_eq!(gateway.used(&asked).await, 2);
    });
}

/// Nobody waits for it any longer than it takes to see that it stands still.
#[test]
fn a_server_that_stands_still_for_long_is_away() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let asked = minute(50, 1);
        server.stop();
        let said = within(&gateway, Duration::from_millis(20), &asked).await;
        assert_eq!(said, Err(StoreError::Late));
        until(|| !gateway.client.is_connected(0)).await;
        assert_eq!(
            within(&gateway, BUDGET, &asked).await,
            Err(StoreError::NotConnected)
        );
        server.signal(Signal::CONT);
        gateway.ready(1).await;
        assert_eq!(within(&gateway, BUDGET, &asked).await, Ok(true));
        // The connection that was given up takes back what was on its way.
        gateway.counts(&asked, 1).await;
    });
}

/// The reply came, and the connection is given up before anybody has read it.
#[test]
fn a_call_that_is_dropped_after_its_connection_takes_nothing() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let other = Gateway::start(&[server.address], &clock(), 2).await;
        let asked = minute(50, 1);
        let mut call = Box::pin(gateway.decide(std::slice::from_ref(&asked)));
        let sent = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending()));
        assert!(sent.await);
        other.counts(&asked, 1).await;
        // Another call's reply comes after the first one's.
        assert_eq!(gateway.used(&asked).await, 1);
        gateway.client.reconnect(0);
        until(|| !gateway.client.is_connected(0)).await;
        gateway.ready(1).await;
        drop(call);
        gateway.counts(&asked, 0).await;
    });
}

/// Whenever a call is dropped, the next one gets its own answer, and nothing is counted that nobody has.
#[test]
fn calls_that_are_dropped_take_nothing() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let keys = [minute(1_000_000, 1), minute(1_000_000, 2)];
        let (mut kept, mut dropped) = (0, 0);
        for step in 0..600u64 {
            let cost = 1 + step as u32 % 3;
            let parts = [units(&keys[0], cost, cost + 2), keys[1].clone()];
            let calls = (0..4).map(|_| {
                let budget = Duration::from_micros(step * 7 % 2_000);
                timeout(budget, gateway.decide(&parts))
            });
            for said in futures_util::future::join_all(calls).await {
                match said {
                    Ok(said) => {
                        assert_eq!(said.unwrap().counters[0].granted_units, cost + 2);
                        kept += cost + 2;
                    }
                    Err(_) => dropped += 1,
                }
            }
        }
        println!("{dropped} of 2400 calls dropped");
        assert!(dropped > 0 && kept > 0);
        until_used(&gateway, &keys[0], kept).await;
    });
}

async fn until_used(gateway: &Gateway, part: &CallPart, expected: u32) {
    // Replies to dropped calls come before those to these, and what takes back is sent when they do.
    gateway.used(part).await;
    assert_eq!(gateway.used(part).await, expected);
}

#[test]
fn a_dead_server_fails_its_share_only() {
    let mut servers = [Server::start(), Server::start(), Server::start()];
    let addresses = servers.each_ref().map(|server| server.address);
    block_on(async {
        let gateway = Gateway::start(&addresses, &clock(), 1).await;
        let keys: Vec<CallPart> = (0..300).map(|key| minute(50, key)).collect();
        for key in &keys {
            assert_eq!(within(&gateway, BUDGET, key).await, Ok(true));
        }
        let before = gateway.client.identify(0, None, true).await.unwrap();
        servers[1].kill();
        until(|| gateway.client.unconnected_servers(0).count() == 1).await;
        let mut lost = Vec::new();
        for key in &keys {
            match within(&gateway, BUDGET, key).await {
                Ok(admitted) => assert!(admitted),
                Err(failure) => {
                    assert_eq!(failure, StoreError::NotConnected);
                    lost.push(key);
                }
            }
        }
        println!("{} of 300 keys were on the dead server", lost.len());
        assert!((60..140).contains(&lost.len()));
        let sender = HeartbeatSender {
            gateway: 1,
            has_reported: true,
        };
        assert_eq!(
            gateway
                .client
                .send_heartbeat(0, Some(sender))
                .await
                .unwrap()
                .heartbeats
                .len(),
            1
        );
        // A server that is only away is no new life.
        assert_eq!(
            gateway.client.identify(0, None, true).await.unwrap().mark,
            before.mark
        );
        servers[1].again();
        gateway.ready(3).await;
        assert_eq!(
            within(&gateway, BUDGET, lost[0]).await,
            Err(StoreError::MarkMismatch)
        );
        let after = gateway.client.identify(0, None, true).await.unwrap();
        assert!(after.mark != before.mark && after.secret == before.secret);
        for key in &keys {
            let expected = if lost.iter().any(|lost| lost.name == key.name) {
                0
            } else {
                2
            };
            assert_eq!(gateway.used(key).await, expected);
        }
    });
}

#[test]
fn a_connection_that_is_given_up_is_made_anew() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        gateway.client.reconnect(0);
        until(|| !gateway.client.is_connected(0)).await;
        gateway.ready(1).await;
        assert_eq!(within(&gateway, BUDGET, &minute(50, 1)).await, Ok(true));
    });
}

/// With `-M` a full server says so, where it would otherwise forget counters without a word.
#[test]
fn a_full_server_says_so() {
    let server = Server::with(&["-m", "2", "-M"]);
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let mut filled = None;
        for key in 0..200_000 {
            if let Err(failure) = gateway.decide(&[minute(9, key)]).await {
                filled = Some((key, failure));
                break;
            }
        }
        let (keys, failure) = filled.unwrap();
        println!("full after {keys} keys: {failure}");
        assert!(matches!(&failure, StoreError::Other(text) if text.contains("memory")));
        // Who is counted already still is.
        assert_eq!(within(&gateway, BUDGET, &minute(9, 0)).await, Ok(true));
        assert_eq!(gateway.used(&minute(9, 0)).await, 2);
    });
}

#[test]
fn what_is_no_memcached_is_never_connected() {
    let liar = liar(b"HTTP/1.1 400 Bad Request\r\n\r\n", b"");
    block_on(async {
        let gateway = Gateway::new(&[liar.address], &clock(), 1);
        gateway.client.keep_connected(0);
        until(|| {
            assert!(!gateway.client.is_connected(0));
            liar.connections.load(Ordering::SeqCst) == 3
        })
        .await;
        assert_eq!(
            gateway.client.identify(0, None, true).await.err(),
            Some(StoreError::NotConnected)
        );
    });
}

#[test]
fn nonsense_fails_the_call_and_the_connection_is_made_anew() {
    for nonsense in [
        &b"HD\r\n"[..],
        b"HD O99999\r\n",
        b"CLIENT_ERROR bad\r\n",
        b"VA 99999999 O0\r\n",
        b"\0\0\0\0\n",
    ] {
        let liar = liar(b"MN\r\n", nonsense);
        block_on(async {
            let gateway = Gateway::new(&[liar.address], &clock(), 1);
            for _ in 0..2 {
                gateway.ready(1).await;
                let said = gateway.client.identify(0, None, true).await;
                assert!(matches!(said, Err(StoreError::Other(_))), "{said:?}");
                until(|| !gateway.client.is_connected(0)).await;
            }
        });
    }
}
