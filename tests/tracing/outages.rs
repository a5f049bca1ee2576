//! A collector that is away, slow, full or silent: requests do not wait, memory does not grow, and what is lost is counted.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::base::clock::{Clock, Nanos};

use crate::collector::{ALL, counted, traces};
use crate::common::redis::free_port;
use crate::common::{Client, Gate, Gateway, Upstream, ok, wait_until};

/// How long the gateway waits for a collector's response while it runs. At its end it waits for 2 seconds.
const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(10);

/// The median time of a request, in microseconds.
fn median(client: &mut Client, requests: usize) -> u64 {
    let clock = Clock::system();
    let mut times: Vec<u64> = (0..requests)
        .map(|_| {
            let start = clock.now();
            assert_eq!(client.get("/").status(), 200);
            clock.now().since(start).0 / 1_000
        })
        .collect();
    times.sort_unstable();
    times[requests / 2]
}

fn start(collector: u16, sample: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, &traces(collector, sample, ""), &[ALL]);
    (gateway, upstream)
}

#[test]
fn a_collector_that_is_away_or_silent_slows_no_request() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    // A collector that takes all spans, so that only the wait for one can make a difference.
    let collector = Upstream::plain();
    let (plain_upstream, upstreams) = (
        Upstream::plain(),
        [free_port(), silent.local_addr().unwrap().port()],
    );
    let plain_line = traces(collector.address.port(), "100%", "");
    let plain = Gateway::start(plain_upstream.address, &plain_line, &[ALL]);
    let gateways = upstreams.map(|port| start(port, "100%"));
    let mut plain_client = plain.connect();
    // Rounds in turn, so that the machine is as busy for all of them.
    for (gateway, _upstream) in &gateways {
        let mut client = gateway.connect();
        let mut ratios: Vec<f64> = (0..5)
            .map(|_| {
                let with_collector = median(&mut plain_client, 400);
                median(&mut client, 400) as f64 / with_collector as f64
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        assert!(ratios[2] < 2.0, "{ratios:?}");
    }
    // The first one is refused at once, and given up after three attempts.
    let (gateway, _) = &gateways[0];
    wait_until("lost spans are counted", || counted(gateway, "lost") > 0);
    assert_eq!(counted(gateway, "sent"), 0);
    // The end does not wait for a collector that never answers.
    for (gateway, _) in &gateways {
        let clock = Clock::system();
        let before = clock.now();
        gateway.app.shut_down();
        assert!(clock.now().since(before) < REQUEST_TIMEOUT);
        assert_eq!(counted(gateway, "lost"), 4_000);
    }
}

#[test]
fn what_the_queue_has_no_room_for_is_lost() {
    let gate = Gate::default();
    let upstream_gate = gate.clone();
    let (bytes, posts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (taken, count) = (bytes.clone(), posts.clone());
    let collector = Upstream::answering(move |request| {
        upstream_gate.pass();
        count.fetch_add(1, Ordering::Relaxed);
        taken.fetch_add(request.body.len(), Ordering::Relaxed);
        ok("")
    });
    let own = ("own", "match: /**\nrespond: { status: 204 }\n");
    let traces = traces(collector.address.port(), "100%", "");
    let gateway = Gateway::start(collector.address, &traces, &[own]);
    let mut client = gateway.connect();
    let request = format!(
        "GET /{} HTTP/1.1\r\nhost: t\r\nuser-agent: {}\r\n\r\n",
        "a".repeat(250),
        "b".repeat(250)
    );
    let mut sent = 0;
    while counted(&gateway, "lost") == 0 {
        assert!(sent < 50_000, "the queue has no bound");
        client.send(request.repeat(50));
        for _ in 0..50 {
            assert_eq!(client.head().unwrap().status(), 204);
        }
        sent += 50;
    }
    gate.open();
    let settled = || counted(&gateway, "lost") + counted(&gateway, "sent");
    wait_until("the rest is sent", || settled() == sent);
    let bytes = bytes.load(Ordering::Relaxed);
    assert!((3 << 20..6 << 20).contains(&bytes), "{bytes}");
    // One batch was under way, and 16 waited.
    let posts = posts.load(Ordering::Relaxed);
    assert!(posts <= 20, "{posts}");
    // Afterwards all is as before.
    let lost = counted(&gateway, "lost");
    client.get("/");
    wait_until("the next is sent", || settled() == sent + 1);
    assert_eq!(counted(&gateway, "lost"), lost);
}

/// Sends one request to a gateway whose collector gives these answers in turn. Returns how often it was asked, and how
/// many spans were sent, refused and lost.
fn results(answers: &'static [&'static str]) -> (usize, [u64; 3]) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let collector = Upstream::answering(move |_| {
        answers[count.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1)].to_owned()
    });
    let (gateway, _upstream) = start(collector.address.port(), "100%");
    gateway.connect().get("/");
    let all = || ["sent", "refused", "lost"].map(|result| counted(&gateway, result));
    wait_until("the spans are settled", || all().iter().sum::<u64>() == 2);
    (asked.load(Ordering::Relaxed), all())
}

#[test]
fn answers_of_the_collector_are_heeded() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    const BUSY: &str = "HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
    const MANY: &str = "HTTP/1.1 429 Many\r\ncontent-length: 0\r\n\r\n";
    const WRONG: &str = "HTTP/1.1 400 Wrong\r\ncontent-length: 0\r\n\r\n";
    const PARTLY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n\x0a\x06\x08\x01\x12\x02no";
    assert_eq!(results(&[OK]), (1, [2, 0, 0]));
    assert_eq!(results(&[BUSY, OK]), (2, [2, 0, 0]));
    assert_eq!(results(&[MANY, BUSY, OK]), (3, [2, 0, 0]));
    assert_eq!(results(&[BUSY]), (3, [0, 0, 2]));
    assert_eq!(results(&[WRONG]), (1, [0, 2, 0]));
    assert_eq!(results(&[PARTLY]), (1, [1, 1, 0]));
}
