//! Connections to names that stand for several addresses, and for others later.

use std::net::{SocketAddr, TcpListener};
use std::task::Poll;

use http::{Method, Uri};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::head::{Fields, Head};
use crate::upstream::http1::Exchange;
use crate::upstream::tests::{server, settings};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A pool for a name that stands for these addresses, which nobody looks up.
fn pool(addresses: &[SocketAddr]) -> Rc<Pool> {
    let mut settings = settings(0);
    settings.servers = vec![server("shop.internal", 80)];
    let clock = Clock::manual(Nanos::from_secs(100));
    let servers = Servers::new(settings, None, clock.now());
    servers.all()[0].addresses.learn(addresses.to_vec());
    let counters = Counters {
        connected: metrics::Counter::noop(),
        retried: metrics::Counter::noop(),
    };
    Pool::new(servers, clock, counters, 0, Rc::default())
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn nobody() -> Caller {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let ends = Ends {
        client: any,
        local: any,
    };
    Caller { key: None, ends }
}

/// A connection of HTTP/1.1 and what counts it.
fn parts(connection: Connection) -> (Lease, Rc<RefCell<Link>>) {
    match connection.line {
        Line::One(link) => (connection.lease, link),
        Line::Two(_) => panic!("it is of HTTP/2"),
    }
}

#[test]
fn the_addresses_of_a_name_are_taken_in_turn_and_dead_ones_passed_over() {
    let ((_one, first), (_two, second), (dead, third)) = (listen(), listen(), listen());
    drop(dead);
    let pool = pool(&[first, third, second]);
    runtime().block_on(async {
        let mut seen = Vec::new();
        let mut held = Vec::new();
        for _ in 0..6 {
            let (lease, link) = parts(pool.checkout(nobody()).await.unwrap());
            assert!(!link.borrow().reused);
            seen.push(link.borrow().address);
            held.push((lease, link));
        }
        assert_eq!(seen, [first, second, second, first, second, second]);
        assert_eq!(pool.servers.all()[0].health.open(), 6);
        drop(held);
        assert_eq!(pool.servers.all()[0].health.open(), 0);
    });
}

#[test]
fn unused_connections_to_an_address_that_is_gone_are_let_go() {
    let ((_one, first), (_two, second)) = (listen(), listen());
    let pool = pool(&[first]);
    runtime().block_on(async {
        let now = pool.clock.now();
        let (lease, link) = parts(pool.checkout(nobody()).await.unwrap());
        lease.release(link, now);
        pool.expire();
        let (lease, link) = parts(pool.checkout(nobody()).await.unwrap());
        assert!(link.borrow().reused);
        lease.release(link, now);
        pool.servers.all()[0].addresses.learn(vec![second]);
        pool.expire();
        let (_, link) = parts(pool.checkout(nobody()).await.unwrap());
        assert!(!link.borrow().reused);
        assert_eq!(link.borrow().address, second);
    });
}

#[test]
fn one_server_that_refuses_is_503_at_once_for_a_moment() {
    let (dead, address) = listen();
    drop(dead);
    let pool = pool(&[address]);
    runtime().block_on(async {
        let refused = pool.checkout(nobody()).await.err();
        assert!(matches!(refused, Some(Error::Connect { .. })));
        let shut = pool.checkout(nobody()).await.err();
        assert!(matches!(shut, Some(Error::Unavailable { .. })));
        let listener = TcpListener::bind(address).unwrap();
        pool.clock.advance(Nanos::from_millis(100));
        assert!(pool.checkout(nobody()).await.is_ok());
        drop(listener);
    });
}

#[test]
fn a_request_whose_sending_panicked_ends_at_once() {
    let (_listener, address) = listen();
    let pool = pool(&[address]);
    let head = Head {
        method: Method::GET,
        uri: Uri::from_static("/"),
        newer: true,
        upgrade: None,
        fields: Fields::default(),
    };
    runtime().block_on(async {
        for taken in [false, true] {
            let (lease, link) = parts(pool.checkout(nobody()).await.unwrap());
            let mut exchange = Exchange::new(lease, link.clone(), &head, String::new());
            let mut cx = Context::from_waker(Waker::noop());
            assert!(exchange.poll_head(&mut cx).is_pending());
            if taken {
                link.borrow_mut().outbox = Outbox::default();
            }
            link.broke();
            let answer = exchange.poll_head(&mut cx);
            assert!(matches!(answer, Poll::Ready(Err(_))), "taken: {taken}");
        }
    });
}
