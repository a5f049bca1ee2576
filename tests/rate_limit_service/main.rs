//! Envoy's rate limit service as a door of the gateway: by a client that is not ours (grpcio for Python), and by Envoy itself
//! with the configuration of examples/doors.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod calls;
mod checked;
mod envoy;
mod hostile;
mod shared;
mod streams;
mod units;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::base::clock::Clock;

use common::Gateway;
use common::child::{self, Guard};

/// The gateway file of the door, without its version.
pub const DOOR: &str = "decide: { grpc: 127.0.0.1:0 }\nadmin: off\nworkers: 2\n";

/// Starts a gateway with this gateway file and these policies. The first listener of the file is its address.
pub fn start(gateway: &str, policies: &[(&str, &str)]) -> Gateway {
    Gateway::start_in(write(gateway, policies), Clock::system())
}

/// Writes this gateway file and these policies into a folder.
pub fn write(gateway: &str, policies: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let policy_folder = folder.path().join("policies");
    std::fs::create_dir_all(&policy_folder).unwrap();
    let text = format!("version: 1\n{gateway}");
    std::fs::write(folder.path().join("tollgate.yaml"), text).unwrap();
    for (name, text) in policies {
        std::fs::write(policy_folder.join(format!("{name}.yaml")), text).unwrap();
    }
    folder
}

/// A client, which does what `client.py` says.
pub struct Asker {
    child: Guard,
    out: BufReader<ChildStdout>,
    port: u16,
}

impl Asker {
    /// A client of the first listener of this gateway.
    pub fn of(gateway: &Gateway) -> Asker {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rate_limit_service/client.py");
        let script = script.to_str().unwrap();
        let mut command = child::program("/usr/bin/python3", gateway.folder.path(), &[script]);
        command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = Guard(command.spawn().unwrap());
        let out = BufReader::new(child.0.stdout.take().unwrap());
        let port = gateway.address.port();
        Asker { child, out, port }
    }

    /// The answer to a command.
    pub fn ask(&mut self, mut command: Value) -> Value {
        command["port"] = self.port.into();
        let input = self.child.0.stdin.as_mut().unwrap();
        writeln!(input, "{command}").unwrap();
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect("the client answers")
    }

    /// The answer to a request in the domain `edge` with these descriptors, each a list of entries.
    pub fn decide(&mut self, descriptors: &[&[(&str, &str)]]) -> Value {
        self.ask(request(descriptors))
    }
}

/// A request in the domain `edge` with these descriptors.
pub fn request(descriptors: &[&[(&str, &str)]]) -> Value {
    let descriptors = descriptors
        .iter()
        .map(|entries| json!({ "entries": entries }));
    json!({ "domain": "edge", "descriptors": descriptors.collect::<Vec<_>>() })
}

/// The codes of all descriptors of an answer: 1 for OK, 2 for OVER_LIMIT.
pub fn codes(answer: &Value) -> Vec<u64> {
    let statuses = answer["statuses"].as_array();
    let statuses = statuses.unwrap_or_else(|| panic!("{answer}"));
    statuses
        .iter()
        .map(|status| status["code"].as_u64().unwrap())
        .collect()
}
