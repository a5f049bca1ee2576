//! A gateway with HTTP/3, and a client by aioquic.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdout, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::base::clock::Clock;

use crate::common::certificate::Certificate;
use crate::common::child::{self, Guard};
use crate::common::tls::put;
use crate::common::{Gateway, Upstream, write};

/// The name in the certificate, for which all requests are.
pub const NAME: &str = "test";

/// Writes the files of a gateway with one TLS listener. `listener` are further fields of it, each with a comma before it.
pub fn write_site(
    upstream: &Upstream,
    listener: &str,
    gateway: &str,
    policies: &[(&str, &str)],
) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, 0, &Certificate::of(&[NAME]));
    write(&folder, upstream.address, gateway, policies);
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listen = format!(
        "listen: {{ address: 127.0.0.1:0, tls: {{ cert: 0.pem, key: 0.key }}{listener} }}\n"
    );
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", &listen)).unwrap();
    folder
}

/// A gateway that serves HTTP/3, and logs.
pub fn start(upstream: &Upstream, gateway: &str, policies: &[(&str, &str)]) -> Gateway {
    let gateway = format!("access_log: {{ file: access.log, fields: [protocol, tls] }}\n{gateway}");
    let folder = write_site(upstream, ", http3: true", &gateway, policies);
    Gateway::start_in(folder, Clock::system())
}

/// A client, which does what `client.py` says.
pub struct Client {
    child: Guard,
    out: BufReader<ChildStdout>,
}

impl Client {
    pub fn start(folder: &Path) -> Client {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let modules = root.join("target/aioquic");
        assert!(
            modules.join("aioquic").exists(),
            "aioquic is missing: run `make tools`"
        );
        let script = root.join("tests/http3/client.py");
        let script = script.to_str().unwrap();
        let mut command = child::program("/usr/bin/python3", folder, &[script]);
        command
            .env("PYTHONPATH", modules)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = Guard(command.spawn().unwrap());
        let out = BufReader::new(child.0.stdout.take().unwrap());
        Client { child, out }
    }

    /// A client with an open connection to the only listener of a gateway.
    pub fn connected(gateway: &Gateway) -> Client {
        let mut client = Client::start(gateway.folder.path());
        let answer = client.connect(gateway.address.port());
        assert_eq!(answer["protocol"], "h3", "{answer}");
        client
    }

    pub fn connect(&mut self, port: u16) -> Value {
        self.ask(json!({ "do": "connect", "port": port, "name": NAME }))
    }

    /// The answer to a command.
    pub fn ask(&mut self, command: Value) -> Value {
        let input = self.child.0.stdin.as_mut().unwrap();
        writeln!(input, "{command}").unwrap();
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect("the client answers")
    }

    /// The responses to these requests, which are sent together.
    pub fn fetch(&mut self, requests: &[Value]) -> Vec<Value> {
        let answer = self.ask(json!({ "do": "fetch", "requests": requests }));
        answer
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"))
            .clone()
    }

    /// The response to one request.
    pub fn fetch_one(&mut self, request: Value) -> Value {
        self.fetch(&[request]).remove(0)
    }
}
