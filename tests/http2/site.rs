//! A gateway that is spoken to in frames, with and without TLS.

use std::io::{Read, Write};
use std::sync::Arc;

use tollgate::base::clock::Clock;

use crate::common::certificate::Certificate;
use crate::common::tls::{ALL, Tls, put, trusting};
use crate::common::{Gate, Gateway, Upstream, wait_until, write};
use crate::raw::{Raw, socket};
use crate::rules::{OPEN, server};

/// A gateway with and without TLS, that logs.
pub struct Site {
    pub gateway: Gateway,
    pub gate: Gate,
    pub upstream: Upstream,
    tls: Arc<rustls::ClientConfig>,
    lines: usize,
}

/// Cleartext or TLS.
pub trait Duplex: Read + Write {}
impl<S: Read + Write> Duplex for S {}
pub type Connection = Raw<Box<dyn Duplex>>;

impl Site {
    pub fn start() -> Site {
        let (gate, upstream) = server();
        let folder = tempfile::tempdir().unwrap();
        let own = Certificate::of(&["test"]);
        put(&folder, 0, &own);
        let more = "workers: 1\naccess_log: { file: access.log }\n";
        write(&folder, upstream.address, more, &[("all", OPEN)]);
        let file = folder.path().join("tollgate.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let listen = "listen:\n  - 127.0.0.1:0\n  - { address: 127.0.0.1:0, tls: { cert: 0.pem, key: 0.key } }\n";
        std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
        let mut tls = trusting(&[&own], ALL);
        Arc::make_mut(&mut tls).alpn_protocols = vec![b"h2".to_vec()];
        Site {
            gateway: Gateway::start_in(folder, Clock::system()),
            gate,
            upstream,
            tls,
            lines: 0,
        }
    }

    /// One connection without TLS, and one with it.
    pub fn connections(&self) -> [(&'static str, Connection); 2] {
        let addresses = self.gateway.app.addresses();
        let [plain, secure] = [0, 1].map(|place: usize| addresses[place].tcp().unwrap());
        let plain: Box<dyn Duplex> = Box::new(socket(plain));
        let secure: Box<dyn Duplex> = Box::new(Tls::to(secure, "test", &self.tls).0.into_inner());
        [
            ("cleartext", Raw::over(plain, &[])),
            ("TLS", Raw::over(secure, &[])),
        ]
    }

    /// The lines that were logged since the last time, so many.
    pub fn lines(&mut self, number: usize) -> Vec<serde_json::Value> {
        let file = self.gateway.folder.path().join("access.log");
        let read = || std::fs::read_to_string(&file).unwrap_or_default();
        wait_until("all is logged", || {
            read().lines().count() >= self.lines + number
        });
        let text = read();
        let new: Vec<_> = text
            .lines()
            .skip(self.lines)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        self.lines += new.len();
        new
    }
}
