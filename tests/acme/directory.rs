//! A directory of ACME: pebble, with names that all lead to this machine.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;

use rcgen::SanType;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tempfile::TempDir;

use crate::common::certificate::{Authority, Certificate};
use crate::common::child::{self, Guard};
use crate::common::wait_until;

// The port is below those of outgoing connections, which might take it before the server does.
pub use crate::common::redis::free_port as port;

fn udp_port() -> u16 {
    // The server of names listens on both.
    loop {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        if TcpListener::bind(address).is_ok() {
            return address.port();
        }
    }
}

/// Where everything is, before any of it is there.
pub struct Plan {
    folder: TempDir,
    authority: Authority,
    own: Certificate,
    directory: u16,
    management: u16,
    /// Where proofs are looked for by http-01.
    pub http: u16,
    /// And by tls-alpn-01.
    pub tls: u16,
    /// How long certificates hold, in seconds.
    pub life: u64,
    /// A name that is refused.
    pub refused: &'static str,
}

/// One that runs; ended when it is dropped.
pub struct Directory {
    _names: Guard,
    _pebble: Guard,
    /// Whoever believes these believes what it issues.
    pub roots: RootCertStore,
}

impl Plan {
    pub fn new() -> Plan {
        let authority = Authority::new();
        let own = authority.issue("pebble", |params| {
            params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        });
        Plan {
            folder: tempfile::tempdir().unwrap(),
            authority,
            own,
            directory: port(),
            management: port(),
            http: port(),
            tls: port(),
            life: 86_400,
            refused: "refused.example",
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.directory)
    }

    /// Whom to believe that it is who it says.
    pub fn pem(&self) -> &str {
        &self.authority.pem
    }

    /// Starts it. Nothing is left of a former one.
    pub fn start(&self) -> Directory {
        let path = self.folder.path();
        let names = udp_port();
        let local = |port: u16| format!("127.0.0.1:{port}");
        std::fs::write(path.join("own.pem"), &self.own.pem).unwrap();
        std::fs::write(path.join("own.key"), &self.own.key).unwrap();
        std::fs::write(path.join("ca.pem"), &self.authority.pem).unwrap();
        let config = json!({ "pebble": {
            "listenAddress": local(self.directory),
            "managementListenAddress": local(self.management),
            "certificate": "own.pem",
            "privateKey": "own.key",
            "httpPort": self.http,
            "tlsPort": self.tls,
            "certificateValidityPeriod": self.life,
            "domainBlocklist": [self.refused],
        } });
        std::fs::write(path.join("pebble.json"), config.to_string()).unwrap();

        let here = local(names);
        let management = local(port());
        let arguments = [
            ["-dns01", &here],
            ["-defaultIPv6", ""],
            ["-http01", ""],
            ["-https01", ""],
            ["-tlsalpn01", ""],
            ["-management", &management],
        ];
        let arguments = arguments.as_flattened();
        let names = run(child::program("pebble-challtestsrv", path, arguments));
        ready(management.parse().unwrap());
        let arguments = ["-config", "pebble.json", "-dnsserver", &here];
        let mut pebble = child::program("pebble", path, &arguments);
        pebble.envs([
            ("PEBBLE_VA_NOSLEEP", "1"),
            ("PEBBLE_WFE_NONCEREJECT", "0"),
            ("PEBBLE_AUTHZREUSE", "0"),
        ]);
        let pebble = run(pebble);
        ready(local(self.directory).parse().unwrap());
        ready(local(self.management).parse().unwrap());
        Directory {
            _names: names,
            _pebble: pebble,
            roots: self.roots(path),
        }
    }

    fn roots(&self, path: &Path) -> RootCertStore {
        let url = format!("https://127.0.0.1:{}/roots/0", self.management);
        let arguments = ["-sS", "--max-time", "20", "--cacert", "ca.pem", &url];
        let said = child::program("curl", path, &arguments).output().unwrap();
        let root = CertificateDer::from_pem_slice(&said.stdout).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root).unwrap();
        roots
    }
}

fn run(mut command: Command) -> Guard {
    let tool = command.get_program().to_string_lossy().into_owned();
    let started = command.spawn();
    let missing = |error| panic!("{tool}: {error}; install the Debian package `pebble`");
    let mut child = started.unwrap_or_else(missing);
    // What it says is of no interest, but it must not wait for a reader.
    drop(child::lines(child.stdout.take().unwrap()));
    drop(child::lines(child.stderr.take().unwrap().take(u64::MAX)));
    Guard(child)
}

fn ready(address: SocketAddr) {
    wait_until("it listens", || TcpStream::connect(address).is_ok());
}
