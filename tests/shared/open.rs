//! A server that counts the requests that are open at it, and clients who keep it busy.

use std::collections::BTreeMap;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{Client, http2, read_head};

/// How often the server looks whether the gateway has hung up.
const LOOK: Duration = Duration::from_millis(2);

/// The open requests of each user, and the most that were open at a time.
#[derive(Default)]
struct Counts {
    open: BTreeMap<String, usize>,
    most: usize,
}

/// A server at which a request of `/hold` stays open until the gateway hangs up or [`OpenUpstream::release`], and one of
/// `/N` for `N` milliseconds. To `/stream` it sends a part of the response first.
pub struct OpenUpstream {
    pub address: SocketAddr,
    counts: Arc<Mutex<Counts>>,
    releases: Arc<AtomicUsize>,
}

impl OpenUpstream {
    pub fn start() -> OpenUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counts: Arc<Mutex<Counts>> = Arc::default();
        let releases: Arc<AtomicUsize> = Arc::default();
        let (shared, released) = (counts.clone(), releases.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (counts, releases) = (shared.clone(), released.clone());
                thread::spawn(move || serve(&stream, &counts, &releases));
            }
        });
        OpenUpstream {
            address,
            counts,
            releases,
        }
    }

    /// The requests of a user that are open now.
    pub fn open(&self, user: &str) -> usize {
        let counts = self.counts.lock().unwrap();
        counts.open.get(user).copied().unwrap_or(0)
    }

    /// The most requests of one user that were open at a time.
    pub fn most(&self) -> usize {
        self.counts.lock().unwrap().most
    }

    /// Answers all requests that are held.
    pub fn release(&self) {
        self.releases.fetch_add(1, Relaxed);
    }
}

fn serve(stream: &TcpStream, counts: &Mutex<Counts>, releases: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    stream.set_nodelay(true).unwrap();
    while let Ok(head) = read_head(&mut reader) {
        let user = head.field("x-user").unwrap_or_default().to_owned();
        let path = head.start.split(' ').nth(1).unwrap_or_default();
        let looks = path.trim_start_matches('/').parse::<u64>();
        let looks = looks.map_or(u64::MAX, |millis| millis / LOOK.as_millis() as u64);
        {
            let mut counts = counts.lock().unwrap();
            let open = counts.open.entry(user.clone()).or_default();
            *open += 1;
            counts.most = counts.most.max(counts.open[&user]);
        }
        if path == "/stream" {
            let part = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
            (&*stream).write_all(part).unwrap();
        }
        let release = releases.load(Relaxed);
        stream.set_read_timeout(Some(LOOK)).unwrap();
        let mut has_left = false;
        for _ in 0..looks {
            let mut byte = [0];
            let read = (&*stream).read(&mut byte);
            let is_open = matches!(&read, Err(error) if
                [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()));
            has_left = !is_open;
            if has_left || releases.load(Relaxed) != release {
                break;
            }
        }
        stream.set_read_timeout(None).unwrap();
        *counts.lock().unwrap().open.get_mut(&user).unwrap() -= 1;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        if has_left || (&*stream).write_all(answer).is_err() {
            return;
        }
    }
}

/// Clients of one user, each of which sends one request after the other to its gateway.
pub struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Statuses>>,
}

/// How many responses of each status came; 0 stands for a connection that ended without one.
pub type Statuses = BTreeMap<u16, usize>;

impl Busy {
    /// So many clients, spread over these gateways.
    pub fn start(count: usize, user: &str, gateways: &[SocketAddr]) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |index: usize| {
            let (stop, user) = (stop.clone(), user.to_owned());
            let gateway = gateways[index % gateways.len()];
            thread::spawn(move || {
                let mut statuses = Statuses::new();
                let mut millis = index as u64 * 7;
                while !stop.load(Relaxed) {
                    millis = (millis * 31 + 17) % 60;
                    let status = get(gateway, &user, &millis.to_string());
                    *statuses.entry(status).or_default() += 1;
                    if status != 200 {
                        // A refused client pauses, so that the others have the machine.
                        thread::park_timeout(Duration::from_millis(20));
                    }
                }
                statuses
            })
        };
        Busy {
            threads: (0..count).map(client).collect(),
            stop,
        }
    }

    pub fn stop(self) -> Statuses {
        self.stop.store(true, Relaxed);
        let mut all = Statuses::new();
        for thread in self.threads {
            for (status, count) in thread.join().unwrap() {
                *all.entry(status).or_default() += count;
            }
        }
        all
    }
}

/// The status of a response over a new connection; 0 without one.
pub fn get(gateway: SocketAddr, user: &str, path: &str) -> u16 {
    let Ok(stream) = TcpStream::connect(gateway) else {
        return 0;
    };
    let mut client = Client::over(stream);
    // The gateway may be killed meanwhile.
    if client
        .stream
        .write_all(request(user, path).as_bytes())
        .is_err()
    {
        return 0;
    }
    client.head().map_or(0, |head| head.status())
}

/// A request that a client holds open.
pub fn hold(gateway: SocketAddr, user: &str) -> Client {
    open(gateway, user, "hold")
}

/// A request whose response has not been read.
pub fn open(gateway: SocketAddr, user: &str, path: &str) -> Client {
    let mut client = Client::connect(gateway);
    client.send(request(user, path));
    client
}

/// Two requests over one connection of HTTP/2, the second with the begin of a response. Ends when the gateway has reset
/// both.
pub fn held_over_http2(gateway: SocketAddr, user: &'static str) -> JoinHandle<()> {
    thread::spawn(move || {
        http2::run(async {
            let mut client = http2::Client::connect(gateway).await;
            let mut begin = |path| {
                let request = http2::request("GET", path).header("x-user", user);
                client.begin(request.body(()).unwrap(), true).0
            };
            let (held, streamed) = (begin("/hold"), begin("/stream"));
            let streamed = streamed.await.unwrap();
            assert_eq!(streamed.status().as_u16(), 200);
            http2::whole(streamed).await.unwrap_err();
            held.await.unwrap_err();
        });
    })
}

fn request(user: &str, path: &str) -> String {
    format!("GET /{path} HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\nconnection: close\r\n\r\n")
}
