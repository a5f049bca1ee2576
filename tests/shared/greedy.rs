//! Clients that ask as fast as they are answered, or at a rate, whatever they are told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate::base::clock::Clock;

/// One answer: when it was asked for, how long it took, both in nanoseconds; its status, 0 when there was none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer {
    pub at: u64,
    pub took: u64,
    pub status: u16,
    /// The place of who asked among the users.
    pub user: usize,
}

impl Answer {
    pub fn end(&self) -> u64 {
        self.at + self.took
    }
}

/// Clients that run until they are told to stop.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<Answer>>>,
}

impl Crowd {
    /// One client for each of `users` at each gateway, with a pause between requests.
    pub fn start(gateways: &[SocketAddr], users: &[&str], pause: Duration, clock: &Clock) -> Crowd {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut threads = Vec::new();
        for gateway in gateways {
            for (place, user) in users.iter().enumerate() {
                let mut client = Client {
                    gateway: *gateway,
                    place,
                    user: (*user).to_owned(),
                    connection: None,
                };
                let (stop, asked, clock) = (stop.clone(), asked.clone(), clock.clone());
                threads.push(thread::spawn(move || {
                    let mut answers = Vec::new();
                    while !stop.load(Relaxed) {
                        answers.push(client.ask(&clock));
                        asked.fetch_add(1, Relaxed);
                        thread::park_timeout(pause);
                    }
                    answers
                }));
            }
        }
        Crowd {
            stop,
            asked,
            threads,
        }
    }

    /// Waits until so many requests are answered.
    pub fn until_asked(&self, count: usize) {
        while self.asked.load(Relaxed) < count {
            thread::park_timeout(Duration::from_millis(10));
        }
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

struct Client {
    gateway: SocketAddr,
    place: usize,
    user: String,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    fn ask(&mut self, clock: &Clock) -> Answer {
        let at = clock.now().0;
        let status = once(&mut self.connection, self.gateway, &self.user).unwrap_or(0);
        if status == 0 {
            self.connection = None;
        }
        Answer {
            at,
            took: clock.now().0 - at,
            status,
            user: self.place,
        }
    }
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

/// The most that were admitted within any `window` nanoseconds for certain: asked for after it began, answered
/// before it ended. However long the machine held one up, no other counts for less.
pub fn most<'a>(answers: impl Iterator<Item = &'a Answer>, window: u64) -> usize {
    let mut admitted: Vec<&Answer> = answers.filter(|answer| answer.status == 200).collect();
    admitted.sort_unstable_by_key(|answer| answer.at);
    let from = |(place, first): (usize, &&Answer)| {
        let end = first.at + window;
        let asked = admitted[place..]
            .iter()
            .take_while(|answer| answer.at < end);
        asked.filter(|answer| answer.end() < end).count()
    };
    admitted.iter().enumerate().map(from).max().unwrap_or(0)
}

/// That answers say how many were admitted in a window: hardly any took a tenth of it.
pub fn says(answers: &[Answer], window: u64) -> Result<(), String> {
    let admitted = answers.iter().filter(|answer| answer.status == 200);
    let admitted: Vec<Answer> = admitted.copied().collect();
    let slow = percentile(&admitted, 99.0);
    match slow.as_nanos() as u64 * 10 <= window {
        true => Ok(()),
        false => Err(format!("admissions took {slow:?}")),
    }
}
