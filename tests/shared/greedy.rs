//! Clients that ask as fast as they are answered, or at a rate, whatever they are told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate::clock::Clock;

/// One answer: when it was asked for, how long it took, both in nanoseconds; its status, 0 when there was none.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub at: u64,
    pub took: u64,
    pub status: u16,
}

/// Clients that run until they are told to stop.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Answer>>>,
}

impl Crowd {
    /// One client for each of `users` at each gateway, with a pause between requests.
    pub fn start(gateways: &[SocketAddr], users: &[&str], pause: Duration, clock: &Clock) -> Crowd {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for gateway in gateways {
            for user in users {
                let (gateway, user) = (*gateway, (*user).to_owned());
                let (stop, clock) = (stop.clone(), clock.clone());
                threads.push(thread::spawn(move || {
                    ask(gateway, &user, pause, &stop, &clock)
                }));
            }
        }
        Crowd { stop, threads }
    }

    /// All answers, in the order of their questions.
    pub fn stop(self) -> Vec<Answer> {
        self.stop.store(true, Relaxed);
        let each = self
            .threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        let mut answers: Vec<Answer> = each.collect();
        answers.sort_by_key(|answer| answer.at);
        answers
    }
}

fn ask(
    gateway: SocketAddr,
    user: &str,
    pause: Duration,
    stop: &AtomicBool,
    clock: &Clock,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut connection = None;
    while !stop.load(Relaxed) {
        let at = clock.now().0;
        let status = once(&mut connection, gateway, user).unwrap_or(0);
        if status == 0 {
            connection = None;
        }
        let took = clock.now().0 - at;
        answers.push(Answer { at, took, status });
        thread::park_timeout(pause);
    }
    answers
}

fn once(
    connection: &mut Option<BufReader<TcpStream>>,
    gateway: SocketAddr,
    user: &str,
) -> Option<u16> {
    if connection.is_none() {
        let stream = TcpStream::connect(gateway).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        *connection = Some(BufReader::new(stream));
    }
    let stream = connection.as_mut()?;
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).ok()?;
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest.get(..3)?.parse().ok()?;
        } else if let Some(rest) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = rest.parse().ok()?;
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    Some(status)
}

/// The answer that so many hundredths of all are faster than.
pub fn percentile(answers: &[Answer], hundredths: f64) -> Duration {
    let mut times: Vec<u64> = answers.iter().map(|answer| answer.took).collect();
    times.sort_unstable();
    let place =
        ((times.len() as f64 * hundredths / 100.0) as usize).min(times.len().saturating_sub(1));
    Duration::from_nanos(times.get(place).copied().unwrap_or(0))
}
