//! Connections to names that resolve to several addresses, and to other addresses later.

use std::net::{SocketAddr, TcpListener};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Method, Uri, Version};
use socket2::{Domain, Socket as Raw, Type};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::time::sleep;

use super::*;
use crate::http::head::{Fields, Head};
use crate::http::http1::Outbox;
use crate::net::DeferredFlush;
use crate::upstream::http1_exchange::Http1Exchange;
use crate::upstream::server_health::EJECTED;
use crate::upstream::settings::{Bounds, Ejection};
use crate::upstream::tests::{server, settings};

const NOW: Nanos = Nanos::from_secs(100);

fn runtime() -> LocalRuntime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    builder.build_local(LocalOptions::default()).unwrap()
}

/// A pool for a name with these addresses, which no test looks up.
fn pool(addresses: &[SocketAddr]) -> Rc<UpstreamPool> {
    pool_with(addresses, |_| {})
}

fn pool_with(
    addresses: &[SocketAddr],
    change_settings: impl FnOnce(&mut Settings),
) -> Rc<UpstreamPool> {
    let mut settings = settings(0);
    settings.servers = vec![server("shop.internal", 80)];
    change_settings(&mut settings);
    let clock = Clock::manual(NOW);
    let servers = Servers::new(settings, None, NOW);
    servers.set_addresses(0, addresses.to_vec(), NOW);
    let counters = PoolCounters {
        connections_made: WorkerCounter::default(),
        retries: WorkerCounter::default(),
    };
    UpstreamPool::new(servers, clock, counters, 0, Rc::default())
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An address that neither accepts nor refuses connections, because its queue is full. The sockets keep it full.
fn unreachable_address() -> (Vec<Raw>, SocketAddr) {
    let new_socket = || Raw::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let listener = new_socket();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&loopback.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut sockets = vec![listener];
    loop {
        let waiting = new_socket();
        let connected = waiting.connect_timeout(&address, Duration::from_millis(100));
        sockets.push(waiting);
        if connected.is_err() {
            return (sockets, address.as_socket().unwrap());
        }
        assert!(sockets.len() < 10, "its queue does not fill up");
    }
}

fn client() -> ClientContext {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let addresses = ConnectionAddresses {
        client: loopback,
        local: loopback,
    };
    ClientContext {
        balance_key: None,
        addresses,
    }
}

/// The assignment and the connection of a checked-out connection of HTTP/1.1.
fn into_parts(connection: CheckedOutConnection) -> (Assignment, Rc<RefCell<Http1Connection>>) {
    let CheckedOutConnection {
        assignment,
        transport,
    } = connection;
    match transport {
        Transport::Http1(connection) => (assignment, connection),
        Transport::Http2(_) => panic!("it is of HTTP/2"),
    }
}

fn address(assignment: &Assignment) -> SocketAddr {
    assignment
        .endpoint()
        .address
        .as_ref()
        .unwrap()
        .tcp()
        .unwrap()
}

fn open_requests(pool: &UpstreamPool) -> u32 {
    let endpoints = pool.servers.endpoints();
    endpoints
        .iter()
        .map(|endpoint| endpoint.health.open_requests())
        .sum()
}

#[test]
fn the_addresses_of_a_name_are_taken_in_turn_and_dead_ones_passed_over() {
    let ((_one, first), (_two, second), (dead, third)) = (listen(), listen(), listen());
    drop(dead);
    let pool = pool(&[first, third, second]);
    runtime().block_on(async {
        let mut held = Vec::new();
        for _ in 0..12 {
            let (assignment, connection) = into_parts(pool.checkout(client()).await.unwrap());
            assert!(!connection.borrow().is_reused);
            held.push((assignment, connection));
        }
        let count_to = |server| {
            held.iter()
                .filter(|(assignment, _)| address(assignment) == server)
                .count()
        };
        let counts = [first, second, third].map(count_to);
        assert_eq!(counts, [6, 6, 0]);
        assert_eq!(open_requests(&pool), 12);
        drop(held);
        assert_eq!(open_requests(&pool), 0);
        for endpoint in pool.servers.endpoints().iter() {
            let is_ejected = endpoint.health.flags(EJECTED) != 0;
            let is_dead = endpoint.address == Some(third.into());
            assert_eq!(is_ejected, is_dead, "{endpoint}");
        }
    });
}

#[test]
fn an_address_that_swallows_connections_costs_one_request_a_quarter_of_a_second() {
    let ((_one, first), (_held, second), (_three, third)) =
        (listen(), unreachable_address(), listen());
    let pool = pool_with(&[first, second, third], |settings| {
        settings.connect_timeout = Duration::from_millis(600);
        settings.ejection = Some(Ejection {
            failures: 2,
            first_duration: Duration::from_secs(10),
        });
        settings.bounds = Bounds {
            open: Some(1),
            pending: Some(1),
        };
    });
    let system = Clock::system();
    runtime().block_on(async {
        let endpoints = pool.servers.endpoints();
        let dead = endpoints
            .iter()
            .find(|endpoint| endpoint.address == Some(second.into()))
            .unwrap();
        for round in 1..=2 {
            let mut slow_count = 0;
            for _ in 0..20 {
                let begun_at = system.now();
                let (assignment, _) = into_parts(pool.checkout(client()).await.unwrap());
                assert_ne!(address(&assignment), second);
                let took = Duration::from(system.now().since(begun_at));
                assert!(took < Duration::from_millis(400), "{took:?}");
                slow_count += usize::from(took > Duration::from_millis(200));
            }
            // Once it counts as unreachable, another address is tried at the same time.
            assert_eq!(slow_count, if round == 1 { 1 } else { 0 });
            // The attempt goes on, and its end counts.
            assert_eq!(dead.health.flags(EJECTED), 0);
            sleep(Duration::from_millis(700)).await;
            pool.endpoint_set().clock.advance(Nanos::from_secs(5));
        }
        assert_eq!(dead.health.flags(EJECTED), EJECTED);
        assert_eq!(open_requests(&pool), 0);
        assert!(
            pool.servers
                .gate()
                .try_pass(pool.endpoint_set().clock.now(), Duration::ZERO)
        );
    });
}

#[test]
fn where_all_addresses_swallow_connections_none_is_left_out() {
    let ((mut held, first), (_held, second)) = (unreachable_address(), unreachable_address());
    let pool = pool_with(&[first, second], |settings| {
        settings.connect_timeout = Duration::from_millis(600);
        settings.ejection = None;
    });
    runtime().block_on(async {
        let error = pool.checkout(client()).await.err();
        assert!(
            matches!(error, Some(Error::ConnectTimeout { .. })),
            "{error:?}"
        );
        let shut = pool.checkout(client()).await.err();
        assert!(matches!(shut, Some(Error::Unavailable { .. })), "{shut:?}");
        pool.endpoint_set().clock.advance(Nanos::from_millis(100));
        held.clear();
        let _listener = TcpListener::bind(first).unwrap();
        let (assignment, _) = into_parts(pool.checkout(client()).await.unwrap());
        assert_eq!(address(&assignment), first);
    });
}

#[test]
fn a_connection_that_comes_late_serves_another_request() {
    let ((_held, first), (_two, second)) = (unreachable_address(), listen());
    let pool = pool(&[first, second]);
    runtime().block_on(async {
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (assignment, _) = into_parts(pool.checkout(client()).await.unwrap());
            seen.push(address(&assignment));
        }
        assert_eq!(seen, [second; 2]);
        // The queue of the first address has room now. The kernel repeats the SYN after a second.
        let queue: TcpListener = _held.into_iter().next().unwrap().into();
        let _accepted: Vec<_> = (0..2).map(|_| queue.accept().unwrap()).collect();
        sleep(Duration::from_millis(1_500)).await;
        let connections = (0..2).map(|_| pool.checkout(client()));
        let mut checked_out = Vec::new();
        for connection in connections {
            let (assignment, connection) = into_parts(connection.await.unwrap());
            checked_out.push((address(&assignment), connection.borrow().is_reused));
        }
        assert!(checked_out.contains(&(first, true)), "{checked_out:?}");
    });
}

#[test]
fn a_name_that_leads_elsewhere_takes_its_connections_along() {
    let ((_one, first), (_two, second), (_three, third)) = (listen(), listen(), listen());
    let pool = pool(&[first, second]);
    runtime().block_on(async {
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(into_parts(pool.checkout(client()).await.unwrap()));
        }
        let under_way = held.split_off(2);
        for (assignment, connection) in held {
            assignment.release(connection, NOW);
        }
        pool.servers.set_addresses(0, vec![second, third], NOW);
        pool.update_endpoints();
        let weak_connections: Vec<_> = under_way
            .iter()
            .map(|(_, connection)| Rc::downgrade(connection))
            .collect();
        let addresses: Vec<_> = under_way
            .iter()
            .map(|(assignment, _)| address(assignment))
            .collect();
        for (assignment, connection) in under_way {
            assignment.release(connection, NOW);
        }
        // A connection that was in use is kept if its address stays.
        for (address, connection) in addresses.iter().zip(weak_connections) {
            assert_eq!(connection.upgrade().is_some(), *address == second);
        }
        let mut seen = Vec::new();
        for _ in 0..4 {
            let (assignment, connection) = into_parts(pool.checkout(client()).await.unwrap());
            seen.push((address(&assignment), connection.borrow().is_reused));
            keep_open(assignment, connection);
        }
        seen.sort();
        let mut expected = [
            (second, true),
            (second, true),
            (third, false),
            (third, false),
        ];
        expected.sort();
        assert_eq!(seen, expected);
    });
}

/// Keeps a connection open without returning it to its pool.
fn keep_open(assignment: Assignment, connection: Rc<RefCell<Http1Connection>>) {
    std::mem::forget((assignment, connection));
}

#[test]
fn one_server_that_refuses_is_503_at_once_for_a_moment() {
    let (dead, address) = listen();
    drop(dead);
    let pool = pool(&[address]);
    runtime().block_on(async {
        let refused = pool.checkout(client()).await.err();
        assert!(matches!(refused, Some(Error::Connect { .. })));
        let shut = pool.checkout(client()).await.err();
        assert!(matches!(shut, Some(Error::Unavailable { .. })));
        let listener = TcpListener::bind(address).unwrap();
        pool.endpoint_set().clock.advance(Nanos::from_millis(100));
        assert!(pool.checkout(client()).await.is_ok());
        drop(listener);
    });
}

#[test]
fn a_name_is_looked_up_for_the_first_request_that_needs_it() {
    let (_listener, address) = listen();
    let mut settings = settings(0);
    settings.servers = vec![server("localhost", address.port())];
    let servers = Servers::new(settings, None, NOW);
    let counters = PoolCounters {
        connections_made: WorkerCounter::default(),
        retries: WorkerCounter::default(),
    };
    let pool = UpstreamPool::new(servers, Clock::manual(NOW), counters, 0, Rc::default());
    runtime().block_on(async {
        let (assignment, _) = into_parts(pool.checkout(client()).await.unwrap());
        assert_eq!(self::address(&assignment), address);
        assert!(
            pool.servers
                .endpoints()
                .iter()
                .all(|endpoint| endpoint.address.is_some())
        );
    });
}

/// The lookup of another server's name does not make a request try a server again.
#[test]
fn a_lookup_has_no_server_tried_twice() {
    let (_listener, address) = listen();
    let refusing_address = listen().1;
    for seed in 0..2 {
        let mut settings = settings(0);
        settings.servers = vec![
            server("127.0.0.1", refusing_address.port()),
            server("localhost", address.port()),
        ];
        settings.ejection = Some(Ejection {
            failures: 2,
            first_duration: Duration::from_secs(10),
        });
        let servers = Servers::new(settings, None, NOW);
        let counters = PoolCounters {
            connections_made: WorkerCounter::default(),
            retries: WorkerCounter::default(),
        };
        let clock = Clock::manual(NOW);
        let pool = UpstreamPool::new(servers, clock, counters, seed, Rc::default());
        runtime().block_on(async {
            let (assignment, _) = into_parts(pool.checkout(client()).await.unwrap());
            assert_eq!(self::address(&assignment), address);
        });
        let endpoints = pool.servers.endpoints();
        assert_eq!(endpoints[0].health.flags(EJECTED), 0, "seed {seed}");
    }
}

#[test]
fn a_request_whose_sending_panicked_ends_at_once() {
    let (_listener, address) = listen();
    let pool = pool(&[address]);
    let head = Head {
        method: Method::GET,
        uri: Uri::from_static("/"),
        version: Version::HTTP_11,
        upgrade: None,
        fields: Fields::default(),
    };
    runtime().block_on(async {
        for is_outbox_empty in [false, true] {
            let (assignment, connection) = into_parts(pool.checkout(client()).await.unwrap());
            let mut exchange =
                Http1Exchange::new(assignment, connection.clone(), &head, String::new());
            let mut cx = Context::from_waker(Waker::noop());
            assert!(exchange.poll_head(&mut cx).is_pending());
            if is_outbox_empty {
                connection.borrow_mut().outbox = Outbox::default();
            }
            connection.mark_broken();
            let head = exchange.poll_head(&mut cx);
            assert!(matches!(head, Poll::Ready(Err(_))), "{is_outbox_empty}");
        }
    });
}
