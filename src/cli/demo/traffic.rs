//! What the scenes of the demo share: the time since its start, paced requests with a tally of their responses, and the
//! clients that send requests all the time.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::client::{DemoClient, DemoResponse};
use crate::app::Gateway;
use crate::base::clock::Nanos;
use crate::base::telemetry::{Label, Metric};
use crate::serve::admin::Control;

/// The clients that send requests all the time, far below every limit.
pub(super) const USUAL_CLIENTS: [DemoClient; 6] = [
    usual_client("192.0.2.1", "alice"),
    usual_client("192.0.2.2", "erin"),
    usual_client("192.0.2.3", "frank"),
    usual_client("192.0.2.4", "grace"),
    usual_client("192.0.2.5", "heidi"),
    usual_client("192.0.2.6", "ivan"),
];

/// The requests a second of all usual clients together: one of each client in two seconds.
const USUAL_PER_SECOND: u64 = 3;

/// The longest sleep before the end of the demo is looked at again.
const MAX_SLEEP: Duration = Duration::from_millis(200);

const fn usual_client(ip: &'static str, user: &'static str) -> DemoClient {
    DemoClient {
        ip,
        user: Some((user, "free")),
    }
}

/// The running gateway, and the time of the demo.
pub(super) struct DemoRun<'a> {
    gateway: &'a Gateway,
    /// Where clients send their requests.
    pub(super) address: SocketAddr,
    /// When the demo started, by the gateway's clock.
    start: Nanos,
    /// When it ends by itself.
    end: Option<Nanos>,
    /// Whether a signal has come.
    should_end: &'a AtomicBool,
    /// Whether the scenes have ended or failed.
    is_played: AtomicBool,
}

/// The responses to some requests.
#[derive(Default)]
pub(super) struct ResponseTally {
    /// Those with a status below 400.
    pub(super) admitted: usize,
    /// Those with status 429.
    pub(super) refused: usize,
    /// The first one with status 429.
    pub(super) first_refusal: Option<DemoResponse>,
}

/// The responses that the usual clients have had so far.
#[derive(Default)]
pub(super) struct UsualTally {
    admitted: AtomicUsize,
    refused: AtomicUsize,
}

impl UsualTally {
    /// The admitted and the refused requests so far.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.admitted.load(Relaxed), self.refused.load(Relaxed))
    }
}

impl ResponseTally {
    /// Counts a response.
    pub(super) fn add(&mut self, response: DemoResponse) {
        match response.status() {
            429 => {
                self.refused += 1;
                self.first_refusal.get_or_insert(response);
            }
            200..400 => self.admitted += 1,
            _ => {}
        }
    }
}

impl<'a> DemoRun<'a> {
    /// The demo starts now, and ends after `seconds` if there are any, or when `should_end` becomes true.
    pub(super) fn new(
        gateway: &'a Gateway,
        address: SocketAddr,
        seconds: Option<u64>,
        should_end: &'a AtomicBool,
    ) -> DemoRun<'a> {
        let start = gateway.clock().now();
        DemoRun {
            gateway,
            address,
            start,
            end: seconds.map(|seconds| start.after(Nanos::from_secs(seconds))),
            should_end,
            is_played: AtomicBool::new(false),
        }
    }

    /// Whether the demo is to end.
    pub(super) fn is_over(&self) -> bool {
        let now = self.gateway.clock().now();
        self.end.is_some_and(|end| now >= end)
            || self.should_end.load(Relaxed)
            || self.is_played.load(Relaxed)
    }

    /// The time since the start, as minutes and seconds: `0:08`.
    pub(super) fn time(&self) -> String {
        let seconds = self.gateway.clock().now().since(self.start).0 / 1_000_000_000;
        format!("{}:{:02}", seconds / 60, seconds % 60)
    }

    /// How often a limit has decided so since the start.
    pub(super) fn decisions(&self, limit: &str, outcome: &str) -> u64 {
        let labels = [(Label::Limit, limit), (Label::Outcome, outcome)];
        self.gateway.counter_total(Metric::LimitDecisions, &labels)
    }

    /// Waits so many seconds, or until the demo is over.
    pub(super) fn wait(&self, seconds: u64) {
        self.wait_until(self.gateway.clock().now().after(Nanos::from_secs(seconds)));
    }

    fn wait_until(&self, time: Nanos) {
        while !self.is_over() {
            let left = time.since(self.gateway.clock().now());
            if left == Nanos::ZERO {
                return;
            }
            thread::sleep(Duration::from(left).min(MAX_SLEEP));
        }
    }

    /// Sends `count` requests at an even pace, `per_second` of them in a second, or fewer if the demo ends before.
    /// `send` gets the number of the request, from 0.
    pub(super) fn send_paced(
        &self,
        count: usize,
        per_second: u64,
        mut send: impl FnMut(usize) -> io::Result<DemoResponse>,
    ) -> io::Result<ResponseTally> {
        let mut tally = ResponseTally::default();
        let pause = Nanos(1_000_000_000 / per_second.max(1));
        let mut next = self.gateway.clock().now();
        for number in 0..count {
            self.wait_until(next);
            if self.is_over() {
                break;
            }
            tally.add(send(number)?);
            next = next.after(pause);
        }
        Ok(tally)
    }

    /// Runs the usual clients on a thread of their own while the scenes are played.
    pub(super) fn with_usual_clients(
        &self,
        play: impl FnOnce(&UsualTally) -> io::Result<()>,
    ) -> io::Result<()> {
        let usual = UsualTally::default();
        thread::scope(|scope| {
            let clients = scope.spawn(|| self.run_usual_clients(&usual));
            let played = play(&usual);
            self.is_played.store(true, Relaxed);
            let sent = clients.join();
            played?;
            sent.unwrap_or_else(|_| Err(io::Error::other("the clients of the demo failed")))
        })
    }

    fn run_usual_clients(&self, usual: &UsualTally) -> io::Result<()> {
        let mut clients = USUAL_CLIENTS.iter().cycle();
        let send = |_| {
            let client = clients.next().unwrap_or(&USUAL_CLIENTS[0]);
            let response = client.get(self.address, "/api/hello")?;
            match response.status() {
                429 => usual.refused.fetch_add(1, Relaxed),
                200..400 => usual.admitted.fetch_add(1, Relaxed),
                _ => 0,
            };
            Ok(response)
        };
        self.send_paced(usize::MAX, USUAL_PER_SECOND, send)
            .map(|_| ())
    }
}
