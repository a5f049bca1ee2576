//! A server that writes down what reaches it and when.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use tollgate::base::clock::Clock;

/// Who sent a request, and when it came in nanoseconds.
type Log = Arc<Mutex<Vec<(String, u64)>>>;

pub struct Upstream {
    pub address: SocketAddr,
    log: Log,
}

impl Upstream {
    pub fn start(clock: &Clock) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let log = Log::default();
        let (seen, clock) = (log.clone(), clock.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, clock) = (seen.clone(), clock.clone());
                thread::spawn(move || serve(stream, &seen, &clock));
            }
        });
        Upstream { address, log }
    }

    /// When requests of each sender came, in order.
    pub fn seen(&self) -> BTreeMap<String, Vec<u64>> {
        let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (who, at) in &*self.log.lock().unwrap() {
            all.entry(who.clone()).or_default().push(*at);
        }
        for times in all.values_mut() {
            times.sort_unstable();
        }
        all
    }
}

/// The most of these moments, in order, within any `window`.
pub fn within(times: &[u64], window: u64) -> usize {
    let from =
        |(place, first): (usize, &u64)| times.partition_point(|at| *at < first + window) - place;
    times.iter().enumerate().map(from).max().unwrap_or(0)
}

fn serve(mut stream: TcpStream, log: &Log, clock: &Clock) {
    stream.set_nodelay(true).unwrap();
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = text.windows(4).position(|part| part == b"\r\n\r\n") {
            let at = clock.now().0;
            let head = String::from_utf8_lossy(&text[..end]).into_owned();
            text.drain(..end + 4);
            let who = head.lines().find_map(|line| line.strip_prefix("x-user: "));
            log.lock()
                .unwrap()
                .push((who.unwrap_or("nobody").to_owned(), at));
            if stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .is_err()
            {
                return;
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(count) => text.extend_from_slice(&piece[..count]),
        }
    }
}
