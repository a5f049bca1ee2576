//! Other proxies ask the gateway whether they may serve a request: what a check says, what hostile clients of such a proxy
//! gain, and the real proxies with the configurations of examples/doors.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod checks;
mod hostile;
mod proxies;

use tollgate::base::clock::Clock;

use common::{Client, Gateway, Message};

/// The gateway file of a door, without its version.
pub const DOOR: &str = "decide: { http: 127.0.0.1:0 }\naccess_log: off\nadmin: off\nworkers: 1\nidentity:\n  ip: { trusted_proxies: [127.0.0.1] }\n";

/// Starts a gateway with this gateway file and these policies. The first listener of the file is its address.
pub fn start(gateway: &str, policies: &[(&str, &str)]) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), gateway, policies);
    Gateway::start_in(folder, Clock::system())
}

/// Writes the files of a gateway.
pub fn write(folder: &std::path::Path, gateway: &str, policies: &[(&str, &str)]) {
    let policy_folder = folder.join("policies");
    std::fs::create_dir_all(&policy_folder).unwrap();
    std::fs::write(
        folder.join("tollgate.yaml"),
        format!("version: 1\n{gateway}"),
    )
    .unwrap();
    for (name, text) in policies {
        std::fs::write(policy_folder.join(format!("{name}.yaml")), text).unwrap();
    }
}

/// A proxy that asks over one connection.
pub struct CheckClient(pub Client);

impl CheckClient {
    /// A proxy at the first listener of this gateway.
    pub fn of(gateway: &Gateway) -> CheckClient {
        CheckClient(gateway.connect())
    }

    /// Asks about a request as Caddy and Traefik do.
    pub fn ask(&mut self, method: &str, uri: &str, fields: &str) -> Message {
        self.ask_at(
            "/",
            &format!("X-Forwarded-Method: {method}\r\nX-Forwarded-Uri: {uri}\r\n{fields}"),
        )
    }

    /// Asks at this URI of the door, with these fields. The client has some address unless they name one.
    pub fn ask_at(&mut self, door_uri: &str, fields: &str) -> Message {
        let address = match fields.contains("X-Forwarded-For:") {
            true => "",
            false => "X-Forwarded-For: 192.0.2.1\r\n",
        };
        let fields = &format!("{address}{fields}");
        let head = format!("GET {door_uri} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
        self.0.send(head);
        self.0.answer()
    }
}
