//! A failing server among three loses at most the requests in flight on it, is ejected within two
//! seconds, and comes back; with all down the client gets 503 at once.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::backend::{Backend, Mode};
use crate::common::{Client, Gateway, assert_contains, wait_until};
use crate::{comes_up, figure, gateway, goes_down, is_up, never_shaking_hands, timed};

const CLIENTS: usize = 6;

/// Clients that post without a pause, each over one connection; a POST is never sent twice.
struct Load {
    stop: Arc<AtomicBool>,
    well: Arc<AtomicUsize>,
    lost: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(gateway: &Gateway) -> Load {
        let [well, lost] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let address = gateway.address;
        let client = |_| {
            let (stop, well, lost) = (stop.clone(), well.clone(), lost.clone());
            thread::spawn(move || {
                let mut client = Client::connect(address);
                while !stop.load(SeqCst) {
                    client.send("POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nhi");
                    let ended = if client.answer().status() == 200 {
                        &well
                    } else {
                        &lost
                    };
                    ended.fetch_add(1, SeqCst);
                }
            })
        };
        let threads = (0..CLIENTS).map(client).collect();
        let load = Load {
            stop,
            well,
            lost,
            threads,
        };
        load.goes_on();
        load
    }

    fn goes_on(&self) {
        let until = self.well.load(SeqCst) + 100;
        wait_until("answers come", || self.well.load(SeqCst) >= until);
    }

    fn lost(&self) -> usize {
        self.lost.load(SeqCst)
    }

    fn end(self) {
        self.stop.store(true, SeqCst);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// `fail` makes the first of three fail, `mend` makes it well; says how many requests may be lost.
fn check(
    upstream: &str,
    fail: impl Fn(&mut Backend),
    may_lose: impl Fn(&Backend) -> usize,
    mend: impl Fn(&mut Backend),
) {
    let mut backends = Backend::several(3);
    let gateway = gateway(&backends, upstream, "timeouts: { first_byte: 300ms }\n");
    let load = Load::start(&gateway);
    assert_eq!(load.lost(), 0, "all are well");
    fail(&mut backends[0]);
    let ((), time) = timed(|| goes_down(&gateway, &backends[0]));
    assert!(time < Duration::from_secs(2), "ejected after {time:?}");
    load.goes_on();
    assert!(is_up(&gateway, &backends[1]) && is_up(&gateway, &backends[2]));
    let (lost, may) = (load.lost(), may_lose(&backends[0]));
    assert!(lost <= may, "{lost} lost, {may} were in flight");
    mend(&mut backends[0]);
    let before = backends[0].asked();
    wait_until("it is asked again", || backends[0].asked() > before + 20);
    comes_up(&gateway, &backends[0]);
    // A trial may have gone to it just before it was well.
    let lost = load.lost();
    load.goes_on();
    assert_eq!(load.lost(), lost, "all are well again");
    load.end();
}

#[test]
fn a_killed_server_loses_what_was_in_flight_on_it() {
    check(
        "eject: { for: 200ms }",
        |backend| {
            let before = backend.asked();
            backend.set(Mode::Hang);
            wait_until("requests are in flight on it", || {
                backend.asked() > before + 1
            });
            backend.kill();
            backend.set(Mode::Well);
        },
        |_| CLIENTS,
        Backend::revive,
    );
}

#[test]
fn a_hanging_server_loses_what_was_in_flight_on_it() {
    let hanging = Arc::new(AtomicUsize::new(0));
    check(
        "eject: { for: 2s }",
        |backend| {
            hanging.store(backend.asked(), SeqCst);
            backend.set(Mode::Hang);
        },
        |backend| backend.asked() - hanging.load(SeqCst) + CLIENTS,
        |backend| backend.set(Mode::Well),
    );
}

#[test]
fn a_server_that_answers_as_a_gateway_in_trouble_is_ejected() {
    let failing = Arc::new(AtomicUsize::new(0));
    check(
        "eject: { after: 5, for: 1s }",
        |backend| {
            failing.store(backend.asked(), SeqCst);
            backend.set(Mode::Status(503));
        },
        |backend| backend.asked() - failing.load(SeqCst) + CLIENTS,
        |backend| backend.set(Mode::Well),
    );
}

#[test]
fn a_server_that_refuses_from_the_start_loses_nothing() {
    let mut backends = Backend::several(3);
    backends[0].kill();
    let gateway = gateway(&backends, "eject: { for: 200ms }", "");
    let load = Load::start(&gateway);
    let ((), time) = timed(|| goes_down(&gateway, &backends[0]));
    assert!(time < Duration::from_secs(2), "ejected after {time:?}");
    backends[0].revive();
    wait_until("it is asked", || backends[0].asked() > 20);
    assert_eq!(load.lost(), 0);
    load.end();
}

#[test]
fn what_one_worker_finds_out_serves_all() {
    let backends = Backend::several(2);
    let gateway = gateway(&backends, "eject: { for: 1h }", "workers: 4\n");
    backends[0].set(Mode::Status(502));
    // Connections go to all workers; each tells the first server three failures at most.
    let mut clients: Vec<_> = (0..16).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.get("/");
        client.get("/");
    }
    assert_eq!(backends[0].asked(), 3);
    assert!(!is_up(&gateway, &backends[0]));
    let ejections = "tollgate_upstream_server_ejections_total";
    assert_eq!(figure(&gateway, ejections, &backends[0]), 1);
}

#[test]
fn never_more_than_half_is_ejected() {
    let backends = Backend::several(4);
    let gateway = gateway(&backends, "eject: { after: 1, for: 1h }", "");
    for backend in &backends {
        backend.set(Mode::Status(503));
    }
    let mut client = gateway.connect();
    for _ in 0..40 {
        assert_eq!(client.get("/").status(), 503);
    }
    let up = backends.iter().filter(|backend| is_up(&gateway, backend));
    assert_eq!(up.count(), 2);
}

#[test]
fn ejection_can_be_turned_off() {
    let backends = Backend::several(2);
    let gateway = gateway(&backends, "eject: off", "workers: 1\n");
    backends[0].set(Mode::Status(503));
    let mut client = gateway.connect();
    (0..40).for_each(|_| drop(client.get("/")));
    assert_eq!(backends[0].asked(), 20);
}

#[test]
fn with_all_down_the_client_gets_503_at_once() {
    let mut backends = Backend::several(3);
    let gateway = gateway(&backends, "eject: { for: 100ms }", "");
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 200);
    backends.iter_mut().for_each(Backend::kill);
    for _ in 0..50 {
        let (answer, time) = timed(|| client.get("/"));
        assert_eq!(answer.status(), 503);
        assert!(time < Duration::from_millis(100), "after {time:?}");
        assert_eq!(
            answer.field("content-type"),
            Some("application/problem+json")
        );
        assert_contains(&answer.text(), &["\"status\":503", "upstream"]);
    }
    backends.iter_mut().for_each(Backend::revive);
    wait_until("they are back", || client.get("/").status() == 200);
}

#[test]
fn one_that_does_not_even_refuse_holds_nobody_up_for_long() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = never_shaking_hands(&silent, "", "timeouts: { connect: 1s }\n");
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 503, "after its time-out");
    let (answer, time) = timed(|| client.get("/"));
    assert_eq!(answer.status(), 503);
    assert!(time < Duration::from_millis(100), "after {time:?}");
}
