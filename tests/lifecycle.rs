//! How a process begins and ends: sockets that are there before it, another process in its place, and what the
//! service manager is told.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use command_fds::{CommandFdExt, FdMapping};
use common::child::{self, Server, line_with};
use common::manager::{Manager, Successor};
use common::{Client, Gate, Upstream, ok, wait_until, write};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_blocking, spawn_local, yield_now};
use tollgate::serve::admin;

const OPEN: &str = "match: /**\nupstream: up\n";

fn folder(upstream: &Upstream, gateway: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, upstream.address, gateway, &[("all", OPEN)]);
    folder
}

#[test]
fn the_service_manager_is_told() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\n");
    let manager = Manager::new(folder.path());
    let mut server = Server::of(&mut Manager::command(folder.path()), false);
    assert_eq!(manager.hears(), "READY=1");
    assert_eq!(server.connect().get("/").status(), 200);
    server.signal(Signal::TERM);
    assert_eq!(manager.hears(), "STOPPING=1");
    assert_eq!(server.ended(), Some(0));
}

/// `sd_listen_fds(3)`: sockets that the manager listens on, and what waits in them since before the start.
#[test]
fn sockets_may_be_there_already() {
    let upstream = Upstream::plain();
    let sockets = [0, 0, 0].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [clients, admin, other] = sockets.each_ref().map(|s| s.local_addr().unwrap());
    let folder = folder(&upstream, &format!("admin: {admin}\n"));
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("listen: 127.0.0.1:0", &format!("listen: {clients}"));
    std::fs::write(&file, text).unwrap();
    let mut early = Client::connect(clients);
    early.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
    let mapped = (3..).zip(sockets).map(|(child_fd, socket)| FdMapping {
        parent_fd: OwnedFd::from(socket),
        child_fd,
    });
    let mut command = child::command(folder.path(), &["run", "--config", "tollgate.yaml"]);
    command.env("LISTEN_FDS", "3").env("LISTEN_PID", "");
    command.fd_mappings(mapped.collect()).unwrap();
    let server = Server::of(&mut command, true);
    // The command keeps the test's own ends.
    drop(command);
    assert_eq!((server.address, server.admin), (clients, Some(admin)));
    assert_eq!(early.answer().status(), 200);
    let health = server.ask("GET", "/healthz", "");
    assert_eq!(health.status(), 200);
    wait_until("one that no file names is closed", || {
        TcpStream::connect(other).is_err()
    });
}

#[test]
fn a_new_process_takes_over() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            let slow = request.start.contains("/slow");
            report(request);
            if slow {
                held.pass();
            }
            served.send(ok("fine"));
        }
    });
    // Sockets are found again by their address, so the port is not to be any.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let folder = folder(&upstream, &format!("admin: {free}\n"));
    let manager = Manager::new(folder.path());
    let mut server = Server::of(&mut Manager::command(folder.path()), true);
    assert_eq!(manager.hears(), "READY=1");
    let mut slow = server.connect();
    slow.send("GET /slow HTTP/1.1\r\nhost: t\r\n\r\n");
    assert!(upstream.next().start.contains("/slow"));
    let before = server.ask("GET", "/v1/policies", "").text();
    // What the new process runs by is what the files say now.
    let policy = folder.path().join("policies/all.yaml");
    std::fs::write(
        policy,
        "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 5/h } }\n",
    )
    .unwrap();
    server.signal(Signal::USR2);
    let successor = manager.hears_of_successor();
    wait_until("operators ask the new one", || {
        let now = server.ask("GET", "/v1/policies", "").text();
        now != before && now.contains("few")
    });
    assert_eq!(
        server.connect().get("/").status(),
        200,
        "on the same address"
    );
    gate.open();
    assert_eq!(slow.answer().text(), "fine", "what was under way ends well");
    assert_eq!(server.ended(), Some(0));
    assert_eq!(server.connect().get("/").status(), 200);
    drop(successor);
    wait_until("nobody listens any more", || {
        TcpStream::connect(server.address).is_err()
    });
}

/// Two processes record for a while, and what both say of one second is there once.
#[test]
fn the_record_goes_on() {
    let upstream = Upstream::plain();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let folder = folder(&upstream, &format!("admin: {free}\nrecord: data/record\n"));
    let manager = Manager::new(folder.path());
    let mut server = Server::of(&mut Manager::command(folder.path()), true);
    assert_eq!(manager.hears(), "READY=1");
    let address = server.address;
    let ask = |times: usize| {
        (0..times).for_each(|_| assert_eq!(Client::connect(address).get("/").status(), 200));
    };
    ask(25);
    server.signal(Signal::USR2);
    ask(10);
    let successor = manager.hears_of_successor();
    ask(12);
    let recorded = || {
        let path = "/v1/record/range?series=tollgate_requests_total&from=-1h&points=10";
        let answer = server.ask("GET", path, "");
        let answer: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        let series = answer["series"].as_array().cloned().unwrap_or_default();
        let sums = series
            .iter()
            .flat_map(|series| series["sum"].as_array().unwrap());
        sums.map(|sum| sum.as_u64().unwrap()).sum::<u64>()
    };
    wait_until("both have recorded all", || recorded() == 47);
    assert_eq!(recorded(), 47);
    drop(successor);
    assert_eq!(server.ended(), Some(0));
}

/// The file of a Unix socket passes on with it, and the last process removes it.
#[test]
fn a_unix_socket_passes_on() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\n");
    let path = folder.path().join("in.sock");
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listen = format!("listen: [127.0.0.1:0, \"unix:{}\"]\n", path.display());
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", &listen)).unwrap();
    let manager = Manager::new(folder.path());
    let mut server = Server::of(&mut Manager::command(folder.path()), false);
    assert_eq!(manager.hears(), "READY=1");
    server.signal(Signal::USR2);
    let first = manager.hears_of_successor();
    assert_eq!(server.ended(), Some(0));
    kill_process(first.0, Signal::USR2).unwrap();
    let second = manager.hears_of_successor();
    wait_until("the one before has ended", || {
        !Path::new(&format!("/proc/{}", first.0.as_raw_nonzero())).exists()
    });
    let mut stream = UnixStream::connect(&path).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    kill_process(second.0, Signal::TERM).unwrap();
    wait_until("the file is removed", || !path.exists());
}

/// A new process that cannot serve changes nothing.
#[test]
fn a_new_process_that_fails_is_no_end() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\n");
    let mut server = Server::start(folder.path(), false);
    let file = folder.path().join("tollgate.yaml");
    let good = std::fs::read_to_string(&file).unwrap();
    for _ in 0..3 {
        std::fs::write(&file, format!("{good}nonsense: 1\n")).unwrap();
        server.signal(Signal::USR2);
        line_with(&server.err, "this one goes on");
        assert_eq!(server.connect().get("/").status(), 200);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
}

/// Clients notice nothing of many processes in a row: none is refused, none is cut off.
#[test]
fn hand_over_under_load() {
    const TIMES: usize = 10;
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\n");
    let manager = Manager::new(folder.path());
    let mut server = Server::of(&mut Manager::command(folder.path()), false);
    assert_eq!(manager.hears(), "READY=1");
    let address = server.address;
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (stop, served) = (stop.clone(), served.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    requests(address, number % 2 == 0, &stop, &served);
                }
            })
        })
        .collect();
    let mut running = None;
    for _ in 0..TIMES {
        let before = served.load(Ordering::Relaxed);
        wait_until("clients are served", || {
            served.load(Ordering::Relaxed) > before + 50
        });
        match &running {
            None => server.signal(Signal::USR2),
            Some(Successor(process)) => kill_process(*process, Signal::USR2).unwrap(),
        }
        // It is not the test's to end any more.
        std::mem::forget(running.replace(manager.hears_of_successor()));
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no request fails");
    }
    assert_eq!(server.ended(), Some(0));
}

/// Sends requests over one connection until the gateway says that it ends; or one connection for each.
fn requests(address: SocketAddr, keep: bool, stop: &AtomicBool, served: &AtomicUsize) {
    let mut client = Client::connect(address);
    while !stop.load(Ordering::Relaxed) {
        let answer = client.get("/");
        assert_eq!(answer.status(), 200);
        served.fetch_add(1, Ordering::Relaxed);
        if !keep || answer.field("connection") == Some("close") {
            return;
        }
    }
}

/// One process is told to end in the turn in which a connection comes. Whether it accepts that connection or leaves it to
/// the process that took over, the client gets its response.
#[test]
fn operators_get_a_response_from_one_of_two() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let router = axum::Router::new().fallback(async || "fine");
    for _ in 0..40 {
        let ending = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ending.local_addr().unwrap();
        let beginning = ending.try_clone().unwrap();
        let (stop_sender, stop) = oneshot::channel();
        let stop_sender = Rc::new(Cell::new(Some(stop_sender)));
        // Ends the first process when a connection waits.
        let stop_at_connection = || {
            // It is watched as a stream, because a listener of tokio can only accept.
            let socket = TcpStream::from(OwnedFd::from(ending.try_clone().unwrap()));
            let stop_sender = stop_sender.clone();
            async move {
                socket.set_nonblocking(true).unwrap();
                let socket = tokio::net::TcpStream::from_std(socket).unwrap();
                socket.readable().await.unwrap();
                drop(stop_sender.take());
            }
        };
        // The kernel wakes them in an order of its own, so one is woken before the listener.
        let stops = [stop_at_connection(), stop_at_connection()];
        let [before, after] = stops;
        let tasks = LocalSet::new();
        let response = tasks.block_on(&runtime, async {
            let before = spawn_local(before);
            let ends = spawn_local(admin::serve(ending, router.clone(), stop));
            let after = spawn_local(after);
            for _ in 0..10 {
                yield_now().await;
            }
            let mut client = Client::connect(address);
            client.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
            before.await.unwrap();
            after.await.unwrap();
            let (_stop_sender, stop) = oneshot::channel();
            let goes_on = spawn_local(admin::serve(beginning, router.clone(), stop));
            let response = spawn_blocking(move || client.answer()).await.unwrap();
            ends.await.unwrap().unwrap();
            goes_on.abort();
            response
        });
        assert_eq!(response.text(), "fine");
    }
}
