//! What the machine itself does to a run: when it stood still, and runs that say nothing because it did.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate::base::clock::{Clock, Nanos};

use crate::greedy::{Answer, percentile};

/// What timers, and processors that a dozen servers share, add to a request now and then: less is no news.
pub const NOISE: Duration = Duration::from_millis(10);

/// From ping to ping, and how long one takes at most where nothing else has the processors.
const PING: Duration = Duration::from_millis(10);
const PAUSE: u64 = 20_000_000;
/// Before and after a pause requests suffer from it too.
const AROUND: u64 = 50_000_000;

/// Runs until one is as it should be, at most three times. What a machine that is busy otherwise cannot cause,
/// a run does not report here: it panics.
#[track_caller]
pub fn attempts(mut run: impl FnMut() -> Result<(), String>) {
    for left in [2, 1, 0] {
        match run() {
            Ok(()) => return,
            Err(why) if left > 0 => println!("once more: {why}"),
            Err(why) => panic!("{why}"),
        }
    }
}

/// Two threads that send each other a byte again and again, and ask nothing of any gateway or store.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Answer>>,
}

impl Watch {
    pub fn start(clock: &Clock) -> Watch {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        here.set_nodelay(true).unwrap();
        there.set_nodelay(true).unwrap();
        thread::spawn(move || {
            let mut byte = [0];
            while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
        });
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, clock) = (stop.clone(), clock.clone());
        let thread = thread::spawn(move || {
            let mut pings = Vec::new();
            while !stopped.load(Relaxed) {
                let due = clock.now().after(PING.into());
                loop {
                    let left = due.since(clock.now());
                    if left == Nanos::ZERO {
                        break;
                    }
                    thread::park_timeout(left.into());
                }
                let mut byte = [0];
                here.write_all(&byte).unwrap();
                here.read_exact(&mut byte).unwrap();
                let (at, took) = (due.0, clock.now().since(due).0);
                pings.push(Answer {
                    at,
                    took,
                    ..Answer::default()
                });
            }
            pings
        });
        Watch { stop, thread }
    }

    pub fn stop(self) -> Pings {
        self.stop.store(true, Relaxed);
        Pings(self.thread.join().unwrap())
    }
}

/// How long pings took.
pub struct Pings(Vec<Answer>);

impl Pings {
    /// Answers that no pause of the machine held up.
    pub fn undisturbed(&self, answers: &[Answer]) -> Vec<Answer> {
        let pauses: Vec<&Answer> = self.0.iter().filter(|ping| ping.took > PAUSE).collect();
        let suffers = |answer: &Answer| {
            pauses
                .iter()
                .any(|pause| answer.at < pause.end() + AROUND && answer.end() + AROUND > pause.at)
        };
        let calm = answers.iter().filter(|answer| !suffers(answer));
        calm.copied().collect()
    }

    /// The 99th hundredth of two lots of answers, without those that a pause held up, and the first no lower than
    /// what the machine does to pings while the second are given.
    pub fn compare(
        &self,
        name: &str,
        before: &[Answer],
        after: &[Answer],
    ) -> Result<(Duration, Duration), String> {
        let (calm, then) = (self.undisturbed(before), self.undisturbed(after));
        if calm.len() * 3 < before.len() || then.len() * 3 < after.len() {
            return Err(format!("{name}: the machine has too much else to do"));
        }
        let (first, last) = (after.first(), after.last());
        let span = first.map_or(0, |first| first.at)..last.map_or(0, Answer::end);
        let pings: Vec<Answer> = self
            .0
            .iter()
            .filter(|ping| span.contains(&ping.at))
            .copied()
            .collect();
        let ping = percentile(&self.undisturbed(&pings), 99.0);
        let (calm, then) = (percentile(&calm, 99.0), percentile(&then, 99.0));
        println!("{name}: p99 {calm:?} before and {then:?} then, pings {ping:?}");
        Ok((calm.max(ping), then))
    }
}
