//! What a server can be made to do: requests are answered in time, and once it is well, limits are shared again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tollgate::base::clock::Clock;

use crate::common::redis::{Redis, ask};
use crate::common::wait_until;
use crate::fleet::Fleet;
use crate::machine::attempts;
use crate::proxy::Proxy;
use crate::scene::{HANDFUL, Limits, Scene, pass};
use crate::upstream::Upstream;

const BUDGET: Duration = Duration::from_millis(20);
const CALM: u64 = 3_000;
const LIMITS: Limits = Limits {
    sharing: "strict",
    seconds: 5,
    ip: 300,
    user: 100,
};
const PAUSE: Duration = Duration::from_millis(20);

fn scene(address: &str) -> Scene {
    let store = format!("{address}\", budget: {}ms", BUDGET.as_millis());
    Scene::new(3, &store, LIMITS, &["a", "b", "c", "d"])
}

/// One fault after another, each followed by the way back.
fn check(name: &str, arguments: &[&str], faults: &[fn(&Redis)]) {
    attempts(|| {
        let store = Redis::with(arguments);
        let scene = scene(&store.url());
        let seen = scene.run(PAUSE, || {
            pass(CALM);
            for (number, fault) in faults.iter().enumerate() {
                scene.fault();
                fault(&store);
                let back = scene.until_shared();
                println!("{name} {number}: shared again {back:?} after");
                pass(500);
            }
        });
        seen.bounded(name, BUDGET, HANDFUL)
    });
}

#[test]
fn scripts_and_connections_are_lost() {
    check(
        "scripts forgotten, connections killed",
        &[],
        &[
            |store| {
                for _ in 0..20 {
                    store.ask("SCRIPT FLUSH");
                    pass(50);
                }
            },
            |store| {
                for _ in 0..5 {
                    store.ask("CLIENT KILL TYPE normal SKIPME yes");
                    pass(200);
                }
            },
        ],
    );
}

/// A replica that was behind takes over while nobody asks: what gateways know that it does not is told all the same.
#[test]
fn a_replica_that_was_behind_is_told() {
    let (store, upstream) = (Redis::start(), Upstream::start(&Clock::system()));
    let terms = format!("store: {{ address: {}, budget: 500ms }}", store.url());
    let limits = "  l: { key: user, rate: 100/d, sharing: strict }\n";
    let fleet = Fleet::start(1, upstream.address, &terms, limits);
    let gateway = &fleet.gateways[0];
    let take = || {
        let mut client = gateway.connect();
        for _ in 0..5 {
            client.send("GET / HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n");
            assert_eq!(client.answer().status(), 200);
        }
    };
    take();
    let keys = store.ask("KEYS *");
    let key = keys.lines().find(|line| line.matches(':').count() == 2);
    let key = key.expect("one of the limit");
    for round in 1..=8 {
        store.ask(&format!("COPY {key} behind REPLACE"));
        take();
        store.ask(&format!("RENAME behind {key}"));
        store.ask("CLIENT KILL TYPE normal SKIPME yes");
        let left = format!("\"remaining\":{}", 95 - 5 * round);
        wait_until(&format!("{left} after {round}"), || {
            let path = "/v1/limits/l/keys/user=u";
            gateway.ask("GET", path, "").text().contains(&left)
        });
        fleet.until_shared();
    }
}

#[test]
fn a_server_that_refuses() {
    let arguments = [
        "--busy-reply-threshold",
        "100",
        "--enable-debug-command",
        "yes",
    ];
    check(
        "busy, full, demoted, loading",
        &arguments,
        &[
            |store| {
                let port = store.port;
                let endless = "EVAL \"while true do end\" 0";
                let busy = thread::spawn(move || ask(port, endless));
                pass(1_500);
                assert_eq!(store.ask("SCRIPT KILL"), "+OK\r\n");
                // It may have been waited for no longer by then.
                let _ = busy.join().unwrap();
            },
            |store| {
                store.ask("CONFIG SET maxmemory 100kb");
                pass(1_500);
                store.ask("CONFIG SET maxmemory 0");
            },
            |store| {
                store.ask("REPLICAOF 127.0.0.1 1");
                pass(1_500);
                store.ask("REPLICAOF NO ONE");
            },
            |store| {
                store.ask("DEBUG POPULATE 2000");
                store.ask("CONFIG SET key-load-delay 500");
                store.ask("CONFIG SET loading-process-events-interval-bytes 1024");
                // Takes a second, and is answered after it.
                let answer = ask(store.port, "DEBUG RELOAD");
                println!("{answer:?}");
                wait_until("it is loaded", || store.ask("PING").contains("PONG"));
            },
        ],
    );
}

#[test]
fn a_slow_network() {
    attempts(|| {
        let (store, clock) = (Redis::start(), Clock::system());
        let proxy = Proxy::start(store.port, &clock);
        let scene = scene(&format!("redis://127.0.0.1:{}", proxy.port));
        let seen = scene.run(PAUSE, || {
            pass(CALM);
            // Whoever asks first waits; then the store is not asked.
            scene.fault();
            for millis in [30, 100, 500] {
                proxy.delay.store(1_000 * millis, Relaxed);
                pass(1_500);
            }
            proxy.delay.store(0, Relaxed);
            scene.until_shared();
            pass(1_000);
        });
        seen.bounded("a slow network", BUDGET, HANDFUL)
    });
}

#[test]
fn killed_again_and_again() {
    attempts(|| {
        let (mut store, clock) = (Redis::start(), Clock::system());
        let scene = scene(&store.url());
        let seen = scene.run(PAUSE, || {
            pass(CALM);
            for _ in 0..10 {
                scene.fault();
                store.kill();
                pass(500);
                let revived = clock.now();
                store.revive();
                let back = scene.until_shared();
                // Each gateway has a connection for its worker and one for its keeper. Each is made when the
                // store is there, and once more when it is met.
                let connections = store.info("total_connections_received");
                let seconds = Duration::from(clock.now().since(revived)).as_secs_f64();
                let rate = connections as f64 / 6.0 / seconds.max(1.0);
                println!("{connections} connections in {seconds:.1} s, back after {back:?}");
                assert!(rate <= 10.0, "{rate} connections a second for each");
                pass(500);
            }
        });
        seen.bounded("killed ten times", BUDGET, HANDFUL)
    });
}

/// Answers that no server gives, each for one connection.
const GARBAGE: [&[u8]; 8] = [
    b"+OK\r\n",
    b"\x00\xff\x17nonsense\x80\r\n\r\n+",
    b"$99999999999999\r\nabc\r\n",
    b"*2147483647\r\n:1\r\n",
    b"*9223372036854775807\r\n:1\r\n",
    b":18446744073709551616\r\n",
    b"*-7\r\n",
    b"",
];

#[test]
fn a_server_that_talks_nonsense() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let said = Arc::new(AtomicUsize::new(0));
    let count = said.clone();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            count.store(number + 1, Relaxed);
            thread::spawn(move || nonsense(stream, number));
        }
    });
    let clock = Clock::system();
    let upstream = Upstream::start(&clock);
    let fleet = Fleet::alone(
        1,
        upstream.address,
        &format!("store: redis://{address}"),
        "  per-user: { key: user, rate: 20/h }\n",
    );
    let mut client = fleet.gateways[0].connect();
    let mut admitted = 0;
    wait_until("all nonsense is said", || {
        client.send("GET / HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n");
        admitted += usize::from(client.answer().status() == 200);
        said.load(Relaxed) > 2 * GARBAGE.len()
    });
    assert_eq!(admitted, 20);
    assert!(fleet.ready()[0].contains("store away"));
    let lines: Vec<String> = fleet.gateways[0].err.try_iter().collect();
    assert!(
        !lines.iter().any(|line| line.contains("panic")),
        "{lines:#?}"
    );
}

fn nonsense(mut stream: TcpStream, number: usize) {
    let mut piece = [0; 65_536];
    // Every other one greets as it should.
    let mut greets = number.is_multiple_of(2);
    for _ in 0..5 {
        let Ok(count @ 1..) = stream.read(&mut piece) else {
            return;
        };
        let two = piece[..count].windows(2);
        let commands = two.filter(|two| two[0] == b'*' && two[1].is_ascii_digit());
        let nonsense = GARBAGE[number / 2 % GARBAGE.len()];
        let answer = match greets || nonsense == GARBAGE[0] {
            true => GARBAGE[0].repeat(commands.count()),
            false => nonsense.to_vec(),
        };
        greets = false;
        if answer.is_empty() || stream.write_all(&answer).is_err() {
            return;
        }
    }
}
