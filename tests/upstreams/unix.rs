//! Servers that listen on Unix sockets.

use std::fs;
use std::io::{BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;
use tollgate::base::clock::Clock;

use crate::ALL;
use crate::common::{Gateway, ok, read_head, wait_until, write};

/// A server on `app.sock` of its folder, which answers with the host that it was asked for.
struct Local {
    folder: TempDir,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    stopped: bool,
    connections: Vec<UnixStream>,
}

impl Local {
    fn start() -> Local {
        let local = Local {
            folder: tempfile::tempdir().unwrap(),
            state: Arc::default(),
        };
        local.listen();
        local
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("app.sock")
    }

    fn listen(&self) {
        let listener = UnixListener::bind(self.path()).unwrap();
        *self.state.lock().unwrap() = State::default();
        let state = self.state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut state = state.lock().unwrap();
                if state.stopped {
                    return;
                }
                state.connections.push(stream.try_clone().unwrap());
                thread::spawn(move || answer_all(&stream));
            }
        });
    }

    fn connections(&self) -> usize {
        self.state.lock().unwrap().connections.len()
    }

    /// Ends it, and leaves its file as a process does that is killed.
    fn stop(&self) {
        self.state.lock().unwrap().stopped = true;
        wait_until("it has stopped", || {
            UnixStream::connect(self.path()).is_err()
        });
        for connection in &self.state.lock().unwrap().connections {
            connection.shutdown(Shutdown::Both).unwrap();
        }
    }

    /// A gateway in front of it.
    fn gateway(&self, more: &str) -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        let path = self.path();
        let text = format!(
            "workers: 1\nupstreams: {{ up: {{ servers: [\"unix:{}\"], eject: off, {more} }} }}\n",
            path.display()
        );
        write(&folder, ([127, 0, 0, 1], 1).into(), &text, &[ALL]);
        Gateway::start_in(folder, Clock::system())
    }
}

fn answer_all(mut stream: &UnixStream) {
    let mut reader = BufReader::new(stream);
    while let Ok(request) = read_head(&mut reader) {
        let text = ok(request.field("host").unwrap_or("none"));
        if stream.write_all(text.as_bytes()).is_err() || request.field("connection").is_some() {
            return;
        }
    }
}

/// The value of a metric of this server.
fn figure(gateway: &Gateway, metric: &str, path: &Path) -> u64 {
    let start = format!(
        "{metric}{{upstream=\"up\",server=\"unix:{}\"}} ",
        path.display()
    );
    let text = gateway.app.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start} in {text}"))
        .parse()
        .unwrap()
}

#[test]
fn requests_share_a_connection_and_keep_their_host() {
    let local = Local::start();
    let gateway = local.gateway("");
    let mut client = gateway.connect();
    for _ in 0..20 {
        assert_eq!(client.get("/").text(), "test");
    }
    assert_eq!(local.connections(), 1);
    // HTTP/1.0 names none.
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().text(), "localhost");
}

#[test]
fn checks_find_a_socket_on_which_nobody_listens() {
    let local = Local::start();
    let gateway = local.gateway("health: { path: /healthz, every: 100ms }");
    let up = || figure(&gateway, "tollgate_upstream_server_up", &local.path());
    assert_eq!(gateway.connect().get("/").status(), 200);
    local.stop();
    wait_until("its checks fail", || up() == 0);
    let failures = "tollgate_upstream_server_check_failures_total";
    assert!(figure(&gateway, failures, &local.path()) > 0);
    assert_eq!(gateway.connect().get("/").status(), 503);
    // It comes back in the place of its file.
    fs::remove_file(local.path()).unwrap();
    local.listen();
    wait_until("its checks succeed", || up() == 1);
    assert_eq!(gateway.connect().get("/").status(), 200);
}

#[test]
fn one_that_is_not_there_is_503() {
    let local = Local::start();
    let gateway = local.gateway("");
    local.stop();
    let answer = gateway.connect().get("/");
    assert_eq!(answer.status(), 503, "{}", answer.text());
}
