//! The gateway as a process of an ordinary machine: signals, the files that it writes, who asks whether it is well.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod booted;
mod check;
mod logs;
mod probes;
mod signals;
mod systemd;
mod unix;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use common::child::Server;
use common::{Client, Upstream, write};
use tempfile::TempDir;

/// A folder with a configuration of one route without limits.
fn folder(upstream: &Upstream, gateway: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let open = "match: /**\nupstream: up\n";
    write(&folder, upstream.address, gateway, &[("all", open)]);
    folder
}

/// Clients that ask without a pause while something else happens.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Load {
    /// Some clients, each asking for `/CLIENT/NUMBER`.
    fn start(server: &Server) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let address = server.address;
        let client = |client: u64| {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut connection = Client::connect(address);
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let answer = connection.get(&format!("/{client}/{number}"));
                    assert_eq!(answer.status(), 200);
                    number += 1;
                }
                number
            })
        };
        let threads = (0..3).map(client).collect();
        Load { stop, threads }
    }

    /// How many requests each client has sent.
    fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let each = self.threads.into_iter();
        each.map(|thread| thread.join().expect("every request is answered"))
            .collect()
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
