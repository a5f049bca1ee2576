//! Who is there, what the store's life is called, and what is pushed to a new one.

use std::collections::BTreeSet;
use std::thread;

use tollgate::base::clock::Nanos;
use tollgate::store::shared::call::{CallPart, HeartbeatSender, StoreError};

use crate::server::Server;
use crate::site::{Gateway, block_on, clock, minute, until};

#[test]
fn gateways_that_meet_at_once_agree() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let clock = clock();
    for _ in 0..10 {
        let each: Vec<_> = (0..6usize)
            .map(|place| {
                let mut addresses = servers.each_ref().map(|server| server.address);
                addresses.rotate_left(place % 3);
                let clock = clock.clone();
                thread::spawn(move || {
                    block_on(async {
                        let gateway = Gateway::new(&addresses, &clock, 1);
                        gateway.ready(3).await;
                        gateway.client.identify(0, None, true).await.unwrap();
                        let met = gateway.client.identify(0, None, true).await.unwrap();
                        let said = gateway.decide(&[minute(9, place as u128)]).await;
                        assert!(said.unwrap().is_admitted);
                        (met.mark, met.secret)
                    })
                })
            })
            .collect();
        let met: Vec<_> = each
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        // A mark is that of all servers' lives, and some may begin last; the secret is one from the start.
        let secrets: BTreeSet<_> = met.iter().map(|(_, secret)| *secret).collect();
        assert_eq!(secrets.len(), 1);
        let marks: BTreeSet<_> = met.iter().map(|(mark, _)| *mark).collect();
        assert_eq!(marks.len(), 1);
        servers.iter().for_each(Server::flush);
    }
}

fn reported(gateway: u32) -> HeartbeatSender {
    HeartbeatSender {
        gateway,
        has_reported: true,
    }
}

#[test]
fn gateways_are_listed_while_they_say_that_they_are_there() {
    let servers = [Server::start(), Server::start()];
    let addresses = servers.each_ref().map(|server| server.address);
    block_on(async {
        let clock = clock();
        let one = Gateway::start(&addresses, &clock, 1).await;
        let two = Gateway::start(&addresses, &clock, 2).await;
        let numbers = async |gateway: &Gateway, says: Option<u32>| {
            let heartbeats = gateway
                .client
                .send_heartbeat(0, says.map(reported))
                .await
                .unwrap();
            heartbeats
                .heartbeats
                .into_iter()
                .map(|heartbeat| heartbeat.sender.gateway)
                .collect::<Vec<_>>()
        };
        assert!(numbers(&one, None).await.is_empty());
        assert_eq!(numbers(&one, Some(1)).await, [1]);
        clock.advance(Nanos::from_secs(6));
        assert_eq!(numbers(&two, Some(2)).await, [1, 2]);
        assert_eq!(numbers(&one, None).await, [1, 2]);
        clock.advance(Nanos::from_secs(6));
        assert_eq!(numbers(&one, None).await, [2]);
        one.client.remove_gateway(0, 2).await.unwrap();
        assert_eq!(numbers(&two, Some(7)).await, [7]);
    });
}

/// Such a gateway is listed as one, until it has reported.
#[test]
fn a_gateway_that_has_not_reported_is_listed() {
    let servers = [Server::start(), Server::start()];
    let addresses = servers.each_ref().map(|server| server.address);
    block_on(async {
        let clock = clock();
        let gateway = Gateway::start(&addresses, &clock, 1).await;
        for has_reported in [false, true, false] {
            let sender = HeartbeatSender {
                gateway: 1,
                has_reported,
            };
            for sent in [Some(sender), None] {
                clock.advance(Nanos::from_secs(1));
                let said = gateway.client.send_heartbeat(0, sent).await.unwrap();
                let heartbeats = said.heartbeats.iter();
                let senders: Vec<_> = heartbeats.map(|heartbeat| heartbeat.sender).collect();
                assert_eq!(senders, [sender]);
            }
        }
        clock.advance(Nanos::from_secs(11));
        let said = gateway.client.send_heartbeat(0, None).await.unwrap();
        assert_eq!(said.heartbeats, []);
    });
}

/// The clock of the gateways goes back by an hour: who is gone leaves the list by its own age all the same.
#[test]
fn a_clock_that_goes_back_keeps_nobody_listed() {
    let server = Server::start();
    block_on(async {
        let (before, after) = (clock(), clock());
        before.advance(Nanos::from_secs(3_600));
        let gone = Gateway::start(&[server.address], &before, 1).await;
        gone.client
            .send_heartbeat(0, Some(reported(1)))
            .await
            .unwrap();
        let stays = Gateway::start(&[server.address], &after, 2).await;
        let count = async || {
            stays
                .client
                .send_heartbeat(0, Some(reported(2)))
                .await
                .unwrap()
                .heartbeats
                .len()
        };
        assert_eq!(count().await, 2);
        after.advance(Nanos::from_secs(11));
        assert_eq!(count().await, 1);
    });
}

/// Two hundred of them, one after the other and many at a time.
#[test]
fn two_hundred_gateways_are_listed() {
    let server = Server::start();
    block_on(async {
        let clock = clock();
        let mut gateways = Vec::new();
        for number in 1..=200 {
            gateways.push(Gateway::start(&[server.address], &clock, number).await);
        }
        for many in gateways.chunks(40) {
            let each = many.iter();
            let heartbeats = each.map(|gateway| {
                let sender = Some(reported(gateway.number));
                gateway.client.send_heartbeat(0, sender)
            });
            for said in futures_util::future::join_all(heartbeats).await {
                said.unwrap();
            }
        }
        let said = gateways[0].client.send_heartbeat(0, None).await.unwrap();
        assert_eq!(said.heartbeats.len(), 200);
        let asked = minute(1_000, 1);
        let mut admitted = 0;
        for turn in 0..1_100 {
            let gateway = &gateways[turn % gateways.len()];
            let said = gateway.decide(std::slice::from_ref(&asked)).await.unwrap();
            admitted += usize::from(said.is_admitted);
        }
        assert_eq!(admitted, 1_000);
    });
}

#[test]
fn sixteen_gateways_say_so_at_once() {
    let server = Server::start();
    let (address, clock) = (server.address, clock());
    thread::scope(|scope| {
        for number in 0..16 {
            let clock = &clock;
            scope.spawn(move || {
                block_on(async {
                    let gateway = Gateway::start(&[address], clock, number).await;
                    while gateway
                        .client
                        .send_heartbeat(0, Some(reported(number)))
                        .await
                        .is_err()
                    {}
                });
            });
        }
    });
    block_on(async {
        let gateway = Gateway::start(&[address], &clock, 99).await;
        let heartbeats = gateway.client.send_heartbeat(0, None).await.unwrap();
        assert_eq!(heartbeats.heartbeats.len(), 16);
    });
}

fn pushed(part: &CallPart, total: u32, within: u32) -> CallPart {
    CallPart {
        cost: 0,
        wanted_units: 0,
        gateway_total: total.into(),
        units_in_window: within,
        ..part.clone()
    }
}

/// After a restart each gateway's use counts once; later only where nothing is counted.
#[test]
fn a_new_life_learns_what_gateways_know() {
    let mut server = Server::start();
    block_on(async {
        let clock = clock();
        let one = Gateway::start(&[server.address], &clock, 1).await;
        let two = Gateway::start(&[server.address], &clock, 2).await;
        let (asked, other, third) = (minute(50, 1), minute(50, 2), minute(50, 3));
        one.decide(std::slice::from_ref(&asked)).await.unwrap();
        let before = one.client.identify(0, None, true).await.unwrap();
        server.kill();
        until(|| !one.client.is_connected(0) && !two.client.is_connected(0)).await;
        server.again();
        one.ready(1).await;
        two.ready(1).await;
        let renewed = Err(StoreError::MarkMismatch);
        assert_eq!(one.decide(std::slice::from_ref(&asked)).await, renewed);
        assert_eq!(
            one.client.send_heartbeat(0, Some(reported(1))).await,
            Err(StoreError::MarkMismatch)
        );
        let after = one.client.identify(0, None, true).await.unwrap();
        assert_ne!(before.mark, after.mark);
        assert_eq!(two.decide(std::slice::from_ref(&asked)).await, renewed);
        assert_eq!(
            two.client.identify(0, None, true).await.unwrap().mark,
            after.mark
        );
        let push = async |gateway: &Gateway, part: &CallPart, within| {
            let said = gateway.decide(&[pushed(part, 99, within)]).await.unwrap();
            said.counters[0].used_units[0]
        };
        assert_eq!(push(&one, &asked, 30).await, 30);
        assert_eq!(push(&one, &asked, 30).await, 30);
        assert_eq!(push(&two, &asked, 5).await, 35);
        assert_eq!(one.used(&asked).await, 35);
        one.decide(std::slice::from_ref(&other)).await.unwrap();
        clock.advance(Nanos::from_secs(11));
        // The life is no longer young: `other` is counted already, `third` is not.
        assert_eq!(push(&two, &other, 9).await, 1);
        assert_eq!(push(&two, &third, 9).await, 9);
        assert_eq!(push(&one, &third, 9).await, 9);
    });
}
