//! memcached as a child process, and servers that are not quite one.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::common::child::Guard;
use crate::common::wait_until;

/// A server of this test alone.
pub struct Server {
    child: Guard,
    pub address: SocketAddr,
}

fn spawn(port: u16, more: &[&str]) -> Guard {
    let mut command = Command::new("memcached");
    // Root may not run it as root; for others the user says nothing.
    let arguments = ["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p"];
    command.args(arguments).arg(port.to_string()).args(more);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Guard(command.spawn().unwrap())
}

impl Server {
    pub fn start() -> Server {
        Server::with(&["-m", "64"])
    }

    pub fn with(more: &[&str]) -> Server {
        loop {
            // Another test may take the port in between, and the child then ends.
            let port = TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap();
            let mut child = spawn(port.port(), more);
            let mut ended = false;
            wait_until("memcached listens", || {
                ended = child.0.try_wait().unwrap().is_some();
                ended || TcpStream::connect(port).is_ok()
            });
            if !ended {
                return Server {
                    child,
                    address: port,
                };
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Stops it, and waits until all its threads stand still: a signal takes effect in its own time.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.0.id());
        let still = |task: std::io::Result<fs::DirEntry>| {
            let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default();
            state.trim_start().starts_with('T')
        };
        wait_until("memcached stands still", || {
            fs::read_dir(&tasks).unwrap().all(still)
        });
    }

    /// Ends at once, as by `kill -9`.
    pub fn kill(&mut self) {
        self.child.signal(Signal::KILL);
        self.child.ended();
    }

    /// Starts anew where it was.
    pub fn again(&mut self) {
        self.child = spawn(self.address.port(), &["-m", "64"]);
        let address = self.address;
        wait_until("memcached listens again", || {
            TcpStream::connect(address).is_ok()
        });
    }

    /// Forgets everything without ending.
    pub fn flush(&self) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(b"flush_all\r\n").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"OK\r\n");
    }

    /// Puts an item there.
    #[allow(dead_code)] // By the tests of bans.
    pub fn set(&self, key: &str, text: &str) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = text.len();
        let command = format!("set {key} 0 0 {length}\r\n{text}\r\n");
        stream.write_all(command.as_bytes()).unwrap();
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"STORED\r\n");
    }

    /// How many items there are.
    pub fn items(&self) -> u64 {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(b"stats\r\nquit\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("STAT curr_items "));
        line.unwrap().parse().unwrap()
    }
}

/// A server that says what it likes.
pub struct Liar {
    pub address: SocketAddr,
    /// How many connections it has had.
    pub connections: Arc<AtomicUsize>,
}

/// Answers each connection's first line with `first` and all others with `others`.
pub fn liar(first: &'static [u8], others: &'static [u8]) -> Liar {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || {
                let mut buffer = [0; 4_096];
                let mut answer = first;
                while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                    answer = others;
                }
            });
        }
    });
    Liar {
        address,
        connections,
    }
}
