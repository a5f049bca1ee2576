//! A collector in Python, and the spans that it has got.

use std::collections::HashSet;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::child::Guard;
use crate::common::redis::free_port;
use crate::common::{Gateway, wait_until};

/// A route that takes everything.
pub const ALL: (&str, &str) = ("all", "match: /**\nupstream: up\n");
/// Makes the clients of tests trusted proxies.
pub const TRUSTED: &str = "identity: { ip: { trusted_proxies: 127.0.0.1 } }\n";

/// Python with the packages that `make tools` has put beside the build, and a program of this folder.
pub fn python(program: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = root.join("target/otlp");
    assert!(packages.exists(), "no decoder: `make tools` installs it");
    let mut command = Command::new("/usr/bin/python3");
    command.arg(root.join("tests/tracing").join(program));
    command.env("PYTHONPATH", packages);
    command
}

pub struct Collector {
    pub port: u16,
    file: PathBuf,
    _child: Guard,
    _folder: TempDir,
}

impl Collector {
    pub fn start() -> Collector {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let file = folder.path().join("spans");
        let mut command = python("collector.py");
        command
            .arg(port.to_string())
            .arg(&file)
            .stdin(Stdio::null());
        let child = Guard(command.spawn().unwrap());
        wait_until("the collector listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Collector {
            port,
            file,
            _child: child,
            _folder: folder,
        }
    }

    /// The line of the gateway file. `more` has further fields.
    pub fn traces(&self, sample: &str, more: &str) -> String {
        traces(self.port, sample, more)
    }

    /// All spans that have come so far. A gateway that gets no answer in time sends its spans again.
    pub fn spans_so_far(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.file).unwrap();
        let lines = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let mut seen = HashSet::new();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|span: &Value| seen.insert(span["span"].to_string()))
            .collect()
    }

    /// All spans, once there are so many.
    #[track_caller]
    pub fn spans(&self, number: usize) -> Vec<Value> {
        wait_until("the spans come", || self.spans_so_far().len() >= number);
        let spans = self.spans_so_far();
        assert_eq!(spans.len(), number, "{spans:#?}");
        spans
    }
}

/// The line of the gateway file for a collector on this port.
pub fn traces(port: u16, sample: &str, more: &str) -> String {
    format!("traces: {{ to: \"http://127.0.0.1:{port}/v1/traces\", sample: {sample}{more} }}\n")
}

/// The number of spans with this result that the metrics count.
pub fn counted(gateway: &Gateway, result: &str) -> u64 {
    let text = gateway.app.metrics();
    let start = format!("tollgate_spans_total{{result=\"{result}\"}} ");
    let mut values = text.lines().filter_map(|line| line.strip_prefix(&start));
    values.next().unwrap().parse().unwrap()
}

/// The value of an attribute; null without it.
pub fn attribute<'s>(span: &'s Value, name: &str) -> &'s Value {
    &span["attributes"][name]
}
