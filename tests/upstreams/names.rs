//! A name that leads to several addresses, one of which answers nothing, not even that nobody is there; and one that
//! leads elsewhere later. The name is in the hosts file of the gateway, which has one of its own.

use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use notify::event::AccessKind;
use notify::{Event, EventKind, RecursiveMode, Watcher};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use tollgate::base::clock::Clock;

use crate::common::child::{Server, program};
use crate::common::{Client, Gate, MAX_WAIT, Message, Served, ok, wait_until, write};

const NAME: &str = "svc.test";
const POLICY: (&str, &str) = ("all", "match: /**\nupstream: up\n");

/// How long a request may wait for an address that does not answer, and some more.
const SLOW: Duration = Duration::from_millis(400);
/// Less than any of them waits for it.
const UNDISTURBED: Duration = Duration::from_millis(240);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Http1,
    Http2,
}

fn at(last: u8, port: u16) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 0, last), port).into()
}

/// Takes no connection and refuses none.
fn swallowing(address: SocketAddr) -> Vec<Socket> {
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let listener = socket();
    listener.bind(&address.into()).unwrap();
    listener.listen(0).unwrap();
    let mut held = vec![listener];
    // What fills its queue.
    loop {
        let filling = socket();
        let full = filling.connect_timeout(&address.into(), Duration::from_millis(100));
        held.push(filling);
        if full.is_err() {
            return held;
        }
        assert!(held.len() < 10, "its queue has no end");
    }
}

/// Answers each request with its address; a request for `/slow` when the gate is open.
fn serve(listener: TcpListener, protocol: Protocol, keeps: bool, gate: Gate) {
    let address = listener.local_addr().unwrap().ip().to_string();
    if protocol == Protocol::Http2 {
        return serve_http2(listener, address, keeps);
    }
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (address, gate) = (address.clone(), gate.clone());
            thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let reader = BufReader::new(stream.try_clone().unwrap());
                let mut served = Served { reader, stream };
                while let Ok(request) = served.request() {
                    if request.start.contains("/slow") {
                        gate.pass();
                    }
                    let answer = ok(&address);
                    if keeps {
                        served.send(answer);
                    } else {
                        served.send(answer.replacen("\r\n", "\r\nconnection: close\r\n", 1));
                        return;
                    }
                }
            });
        }
    });
}

fn serve_http2(listener: TcpListener, address: String, keeps: bool) {
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let address = address.clone();
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else {
                        return;
                    };
                    while let Some(Ok((_, mut respond))) = connection.accept().await {
                        let head = http::Response::new(());
                        let Ok(mut out) = respond.send_response(head, false) else {
                            return;
                        };
                        let _ = out.send_data(bytes::Bytes::from(address.clone()), true);
                        if !keeps {
                            connection.graceful_shutdown();
                        }
                    }
                });
            }
        });
    });
}

/// A gateway in front of the name, and what the name leads to.
struct Site {
    server: Server,
    hosts: PathBuf,
    port: u16,
    gate: Gate,
    _folder: TempDir,
}

impl Site {
    /// The name leads to these; the others are served too.
    fn start(leads: &[u8], serves: &[u8], kind: (Protocol, bool), upstream: &str) -> Site {
        let (protocol, keeps) = kind;
        let first = TcpListener::bind(at(serves[0], 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let others = serves[1..].iter();
        let others = others.map(|last| TcpListener::bind(at(*last, port)).unwrap());
        let gate = Gate::default();
        for listener in others.chain([first]) {
            serve(listener, protocol, keeps, gate.clone());
        }
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("hosts");
        let protocol = if protocol == Protocol::Http2 {
            "h2"
        } else {
            "h1"
        };
        let text = format!(
            "admin: 127.0.0.1:0\nupstreams: {{ up: {{ servers: [\"http://{NAME}:{port}\"], \
             protocol: {protocol}, {upstream} }} }}\n"
        );
        write(&folder, at(1, port), &text, &[POLICY]);
        std::fs::write(&hosts, lines(leads)).unwrap();
        let server = Server::of(&mut with_hosts(&folder), true);
        Site {
            server,
            hosts,
            port,
            gate,
            _folder: folder,
        }
    }

    /// The file stays the same, for it is mounted.
    fn leads_to(&self, leads: &[u8]) {
        std::fs::write(&self.hosts, lines(leads)).unwrap();
    }

    /// What is known of each address.
    fn states(&self) -> Vec<(String, String)> {
        let answer = self.server.ask("GET", "/v1/upstreams", "").text();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let servers = answer["upstreams"][0]["servers"].as_array().unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        for server in servers {
            assert_eq!(text(&server["server"]), format!("{NAME}:{}", self.port));
        }
        let each = servers.iter();
        each.map(|one| (text(&one["address"]), text(&one["state"])))
            .collect()
    }
}

fn lines(leads: &[u8]) -> String {
    let each = leads.iter().map(|last| format!("127.0.0.{last} {NAME}\n"));
    each.collect()
}

fn with_hosts(folder: &TempDir) -> Command {
    let script = "mount --bind hosts /etc/hosts && exec \"$@\"";
    let tollgate = env!("CARGO_BIN_EXE_tollgate");
    let arguments = [
        ["--user", "--map-root-user", "--mount", "sh"],
        ["-c", script, "sh", tollgate],
    ];
    let mut command = program("unshare", folder.path(), &arguments.concat());
    command.args(["run", "--config", "tollgate.yaml"]);
    command
}

/// When each request began, how long it took, and what came of it.
fn load(site: &Site) -> Vec<(Duration, Duration, Message)> {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 125;
    let (address, clock) = (site.server.address, Clock::system());
    let start = clock.now();
    let client = |_| {
        let clock = clock.clone();
        thread::spawn(move || {
            let mut client = Client::connect(address);
            let mut seen = Vec::new();
            for _ in 0..REQUESTS {
                let begun = clock.now();
                let answer = client.get("/");
                let took = clock.now().since(begun);
                seen.push((begun.since(start).into(), took.into(), answer));
                thread::sleep(Duration::from_millis(25));
            }
            seen
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let all = clients
        .into_iter()
        .flat_map(|client| client.join().unwrap());
    all.collect()
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

/// One of three addresses swallows connections: no request fails, and few of the first notice.
fn one_of_three_swallows(protocol: Protocol, keeps: bool) {
    let site = Site::start(&[5, 3, 4], &[3, 4], (protocol, keeps), "");
    let _held = swallowing(at(5, site.port));
    let seen = load(&site);
    assert_eq!(seen.len(), 1_000);
    let failed = seen.iter().filter(|(.., answer)| answer.status() != 200);
    let failed: Vec<_> = failed
        .map(|(at, took, answer)| (at, took, answer.status()))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    let second = Duration::from_secs(1);
    let (first, after): (Vec<_>, Vec<_>) = seen.iter().partition(|(at, ..)| *at < second);
    let times = |of: Vec<&(_, Duration, _)>| of.iter().map(|(_, took, _)| *took).collect();
    let (first, after) = (p99(times(first)), p99(times(after)));
    println!("{protocol:?}, keeps {keeps}: {first:?} in the first second, {after:?} after");
    assert!(first < SLOW && after < UNDISTURBED, "{first:?}, {after:?}");
    let states = site.states();
    let up = states
        .iter()
        .map(|(address, state)| (&**address, state == "up"));
    let expected = [
        ("127.0.0.3", true),
        ("127.0.0.4", true),
        ("127.0.0.5", false),
    ];
    assert!(up.eq(expected), "{states:?}");
}

#[test]
fn one_of_three_swallows_connections_that_are_kept() {
    one_of_three_swallows(Protocol::Http1, true);
}

#[test]
fn one_of_three_swallows_connections_for_one_request_each() {
    one_of_three_swallows(Protocol::Http1, false);
}

#[test]
fn one_of_three_swallows_connections_of_http2() {
    one_of_three_swallows(Protocol::Http2, true);
}

#[test]
fn one_of_three_swallows_connections_of_http2_for_one_request_each() {
    one_of_three_swallows(Protocol::Http2, false);
}

#[test]
fn each_address_is_checked_by_itself() {
    let checks = "health: { tcp: true, every: 200ms, timeout: 200ms, fall: 2 }";
    let site = Site::start(&[5, 3, 4], &[3, 4], (Protocol::Http1, false), checks);
    let _held = swallowing(at(5, site.port));
    let expected = |last: &str| {
        let states = [("3", "up"), ("4", "up"), ("5", last)];
        states.map(|(address, state)| (format!("127.0.0.{address}"), state.to_owned()))
    };
    wait_until("its checks fail", || site.states() == expected("failing"));
    for _ in 0..20 {
        assert_eq!(site.server.connect().get("/").status(), 200);
    }
    let metrics = site.server.ask("GET", "/metrics", "").text();
    let up = format!(
        "tollgate_upstream_server_up{{upstream=\"up\",server=\"{NAME}:{}\"}} 1\n",
        site.port
    );
    assert!(metrics.contains(&up), "{metrics}");
}

#[test]
fn a_name_that_leads_elsewhere_is_followed_and_what_is_under_way_ends_well() {
    let kind = (Protocol::Http1, true);
    let site = Site::start(&[4], &[3, 4], kind, "");
    let mut slow = site.server.connect();
    slow.send("GET /slow HTTP/1.1\r\nhost: t\r\n\r\n");
    wait_until("it is under way", || connections(&site, 4) == 1);
    let mut kept = site.server.connect();
    assert_eq!(kept.get("/").text(), "127.0.0.4");
    assert_eq!(connections(&site, 4), 2);
    site.leads_to(&[3]);
    wait_until("the other is asked", || kept.get("/").text() == "127.0.0.3");
    for _ in 0..20 {
        assert_eq!(kept.get("/").text(), "127.0.0.3");
    }
    // What was unused is closed.
    wait_until("one is left", || connections(&site, 4) == 1);
    site.gate.open();
    assert_eq!(slow.answer().text(), "127.0.0.4");
    wait_until("none is left", || connections(&site, 4) == 0);
    // What is known stays while the name leads nowhere.
    site.leads_to(&[]);
    let (_watcher, opened) = opened(&site.hosts);
    // The second time whoever looked it up has found it so before.
    for _ in 0..2 {
        opened
            .recv_timeout(MAX_WAIT)
            .expect("the name is looked up");
    }
    assert_eq!(kept.get("/").text(), "127.0.0.3");
}

/// Until then the others are asked, and nobody waits for long.
#[test]
fn a_name_whose_lookup_hangs_holds_up_no_request() {
    let first = TcpListener::bind(at(3, 0)).unwrap();
    let port = first.local_addr().unwrap().port();
    for listener in [first, TcpListener::bind(at(4, port)).unwrap()] {
        serve(listener, Protocol::Http1, false, Gate::default());
    }
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "admin: off\nworkers: 1\nupstreams: {{ up: [\"http://{NAME}:{port}\", \"http://127.0.0.3:{port}\"] }}\n"
    );
    write(&folder, at(1, port), &text, &[POLICY]);
    // Whoever reads it waits for a writer.
    let hosts = folder.path().join("hosts");
    let made = Command::new("mkfifo").arg(&hosts).status().unwrap();
    assert!(made.success());
    let server = Server::of(&mut with_hosts(&folder), false);
    let (clock, mut client) = (Clock::system(), server.connect());
    let begun = clock.now();
    for _ in 0..8 {
        assert_eq!(client.get("/").text(), "127.0.0.3");
    }
    let took: Duration = clock.now().since(begun).into();
    assert!(took < Duration::from_millis(1500), "{took:?}");
}

/// Tells of each time that a file is opened.
fn opened(file: &Path) -> (impl Watcher, Receiver<()>) {
    let (send, opened) = channel();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| matches!(event.kind, EventKind::Access(AccessKind::Open(_)))) {
            let _ = send.send(());
        }
    })
    .unwrap();
    watcher.watch(file, RecursiveMode::NonRecursive).unwrap();
    (watcher, opened)
}

/// Established connections to an address of the name, as the kernel knows them.
fn connections(site: &Site, last: u8) -> usize {
    let place = format!("{:02X}00007F:{:04X}", last, site.port);
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().map(|line| line.split_whitespace());
    let to_it = fields.filter(|fields| {
        let mut fields = fields.clone().skip(2);
        fields.next() == Some(&place) && fields.next() == Some("01")
    });
    to_it.count()
}
