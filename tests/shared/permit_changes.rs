//! Limits on open requests that gateways share: lost replies, reloads, a new process, and permits in advance.

use std::fs;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::Signal;
use tollgate::base::clock::Clock;

use crate::common::child::Server;
use crate::common::manager::Manager;
use crate::common::redis::{Redis, free_port};
use crate::common::{Client, wait_until};
use crate::fleet::Fleet;
use crate::open::{Busy, OpenUpstream, get, hold};
use crate::permits::{PERMITS, all_are_free, all_in_use, hold_one, limit, start, store};
use crate::proxy::Proxy;

/// Waits until a gateway says that the limit has so many permits.
#[track_caller]
fn has_permits(gateway: &Server, count: usize) {
    let word = format!("\"parallel\";q={count};qu=\"concurrent-requests\"");
    wait_until("the gateway has reloaded", || {
        let mut client = gateway.connect();
        client.send("GET /1 HTTP/1.1\r\nhost: a\r\nx-user: other\r\n\r\n");
        client.answer().field("ratelimit-policy") == Some(&word)
    });
}

#[test]
fn lost_replies() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port, &Clock::system());
    let address = format!("redis://127.0.0.1:{}", proxy.port);
    let (upstream, fleet) = start(2, &address, ", on_store_error: closed");
    let busy = Busy::start(12, "u", &fleet.addresses());
    for _ in 0..8 {
        all_in_use(&upstream);
        proxy.lost.store(3, Relaxed);
        wait_until("replies are lost", || proxy.lost.load(Relaxed) == 0);
    }
    fleet.until_shared();
    all_in_use(&upstream);
    let statuses = busy.stop();
    println!("{statuses:?}");
    wait_until("all requests have ended", || upstream.open("u") == 0);
    all_are_free(&upstream, &fleet);
    assert_eq!(upstream.most(), PERMITS, "{statuses:?}");
}

#[test]
fn another_number_holds_for_what_comes() {
    let redis = Redis::start();
    let (upstream, fleet) = start(2, &redis.url(), "");
    let reload = |count: usize, fields: &str| {
        let text = format!("  parallel: {{ key: user, concurrent: {count}{fields} }}\n");
        fleet.rewrite(&text);
        for gateway in &fleet.gateways {
            gateway.signal(Signal::HUP);
            has_permits(gateway, count);
        }
    };
    let [first, second] = [0, 1].map(|index| fleet.gateways[index].address);
    let mut held: Vec<Client> = (0..PERMITS).map(|_| hold(first, "u")).collect();
    all_in_use(&upstream);
    // Fewer: nobody gets one before enough are back. More: they are there at once.
    reload(3, "");
    assert_eq!(get(second, "u", "1"), 429);
    reload(8, "");
    held.extend((0..2).map(|_| hold(second, "u")));
    wait_until("two more are open", || upstream.open("u") == PERMITS + 2);
    assert_eq!(get(first, "u", "1"), 429);
    upstream.release();
    for mut client in held {
        assert_eq!(client.answer().status(), 200);
    }
    // Requests that each gateway counted for itself count for all once the limit is shared.
    reload(4, ", sharing: local");
    let mut held: Vec<Client> = (0..4).map(|_| hold(first, "u")).collect();
    wait_until("they are open", || upstream.open("u") == 4);
    reload(5, "");
    assert_eq!(get(first, "u", "1"), 200);
    // It is returned a moment after the response.
    wait_until("the permit is back", || get(second, "u", "1") == 200);
    held.push(hold(second, "u"));
    wait_until("the fifth is open", || upstream.open("u") == 5);
    assert_eq!(get(second, "u", "1"), 429);
    assert_eq!(get(first, "u", "1"), 429);
    upstream.release();
}

#[test]
fn a_new_process_finds_the_permits_of_the_old_one() {
    let redis = Redis::start();
    let upstream = OpenUpstream::start();
    let fleet = Fleet::alone(0, upstream.address, &store(&redis.url()), &limit(""));
    // A process that takes over finds its sockets by their addresses.
    let file = fleet.path().join("tollgate.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let admin = format!("admin: 127.0.0.1:{}\n", free_port());
    fs::write(&file, text.replace("admin: 127.0.0.1:0\n", &admin)).unwrap();
    let manager = Manager::new(fleet.path());
    let mut server = Server::of(&mut Manager::command(fleet.path()), true);
    assert_eq!(manager.hears(), "READY=1");
    wait_until("the store is shared", || {
        let said = server.ask("GET", "/readyz", "").text();
        said.contains("store shared")
    });
    let mut held: Vec<Client> = (0..4).map(|_| hold(server.address, "u")).collect();
    wait_until("four are open", || upstream.open("u") == 4);
    server.signal(Signal::USR2);
    let successor = manager.hears_of_successor();
    // Either process may take a connection until the old one has closed its listener. Neither admits a seventh.
    held.extend((5..=PERMITS).map(|count| hold_one(&upstream, server.address, count)));
    assert_eq!(get(server.address, "u", "1"), 429);
    upstream.release();
    for mut client in held {
        assert_eq!(client.answer().status(), 200);
    }
    assert_eq!(server.ended(), Some(0));
    let counts = 1..=PERMITS;
    let mut held: Vec<Client> = counts
        .map(|count| hold_one(&upstream, server.address, count))
        .collect();
    assert_eq!(get(server.address, "u", "1"), 429);
    upstream.release();
    held.iter_mut()
        .for_each(|client| assert_eq!(client.answer().status(), 200));
    assert_eq!(upstream.most(), PERMITS);
    drop(successor);
}

#[test]
fn permits_in_advance_spare_the_store() {
    let redis = Redis::start();
    let upstream = OpenUpstream::start();
    let limits = "  parallel: { key: user, concurrent: 64, sharing: leased }\n";
    let fleet = Fleet::start(2, upstream.address, &store(&redis.url()), limits);
    let before = redis.scripts();
    for _ in 0..100 {
        assert_eq!(get(fleet.gateways[0].address, "v", "1"), 200);
    }
    // Without permits in advance two for each request.
    let calls = redis.scripts() - before;
    assert!(calls < 100, "{calls} calls");
    let busy = Busy::start(90, "u", &fleet.addresses());
    wait_until("most permits are in use", || upstream.open("u") >= 50);
    busy.stop();
    wait_until("all requests have ended", || upstream.open("u") == 0);
    // What no request uses goes back, so that one gateway may have all.
    wait_until("the permits are back", || {
        redis.ask("KEYS tollgate:permits:*").starts_with("*0")
    });
    let held: Vec<Client> = (0..64)
        .map(|_| hold(fleet.gateways[1].address, "u"))
        .collect();
    wait_until("all permits are in use", || upstream.open("u") == 64);
    assert_eq!(get(fleet.gateways[0].address, "u", "1"), 429);
    upstream.release();
    drop(held);
    assert_eq!(upstream.most(), 64);
}

/// No permit is asked for where a rate is known to refuse.
#[test]
fn refused_requests_spare_the_store() {
    let redis = Redis::start();
    let upstream = OpenUpstream::start();
    let limits = "  parallel: { key: user, concurrent: 2 }\n  \
                  slow: { key: user, rate: 2/h, sharing: strict }\n";
    let fleet = Fleet::start(1, upstream.address, &store(&redis.url()), limits);
    let gateway = fleet.gateways[0].address;
    assert_eq!([get(gateway, "u", "1"), get(gateway, "u", "1")], [200, 200]);
    let before = redis.scripts();
    for _ in 0..100 {
        assert_eq!(get(gateway, "u", "1"), 429);
    }
    let calls = redis.scripts() - before;
    assert!(calls < 50, "{calls} calls for 100 refusals");
}
