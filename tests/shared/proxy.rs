//! A wire of adjustable length: a TCP proxy that hands on what it gets some time later, or loses it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tollgate::base::clock::{Clock, Nanos};

pub struct Proxy {
    pub port: u16,
    /// Microseconds each way.
    pub delay: Arc<AtomicU64>,
    /// Replies that are lost, each with its connection.
    pub lost: Arc<AtomicU64>,
}

impl Proxy {
    pub fn start(to: u16, clock: &Clock) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let delay = Arc::new(AtomicU64::new(0));
        let lost: Arc<AtomicU64> = Arc::default();
        let (each, losing, clock) = (delay.clone(), lost.clone(), clock.clone());
        thread::spawn(move || {
            for here in listener.incoming().map_while(Result::ok) {
                let Ok(there) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                let ends = [&here, &there].map(|end| end.try_clone().unwrap());
                let [here_too, there_too] = ends;
                let none = Arc::default();
                pass(here, there_too, each.clone(), none, clock.clone());
                pass(there, here_too, each.clone(), losing.clone(), clock.clone());
            }
        });
        Proxy { port, delay, lost }
    }
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    delay: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    clock: Clock,
) {
    let (send, later) = channel::<(Nanos, Vec<u8>)>();
    let read_clock = clock.clone();
    thread::spawn(move || {
        let mut piece = [0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            let take_one = |left: u64| left.checked_sub(1);
            if lost.fetch_update(Relaxed, Relaxed, take_one).is_ok() {
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
            let delay = Duration::from_micros(delay.load(Relaxed));
            let due = read_clock.now().after(delay.into());
            if send.send((due, piece[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        to.set_nodelay(true).unwrap();
        for (due, piece) in later {
            loop {
                let left = due.since(clock.now());
                if left == Nanos::ZERO {
                    break;
                }
                thread::park_timeout(Duration::from_nanos(left.0));
            }
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        // Whoever reads on the other side sees the end.
        let _ = to.shutdown(Shutdown::Both);
    });
}
