//! Real engines from Debian's packages, and a collector of OTLP, each on a free port for as long as the value lives.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::child::{Guard, finish, program};
use crate::common::redis::free_port;
use crate::common::{Client, wait_until};

/// All samples that a peer has of each series: labels as `name{label=value}` in order, without those of the peer itself.
pub type Series = BTreeMap<String, Vec<(u64, f64)>>;

/// What a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Prometheus,
    Victoria,
    Carbon,
    Collector,
}

impl Kind {
    pub const ALL: [Kind; 4] = [
        Kind::Prometheus,
        Kind::Victoria,
        Kind::Carbon,
        Kind::Collector,
    ];
}

/// A peer, which can be stopped and started again where it was.
pub struct Peer {
    pub kind: Kind,
    pub port: u16,
    folder: TempDir,
    child: Option<Guard>,
}

const CARBON: &str = "[cache]\nSTORAGE_DIR = DIR\nCONF_DIR = DIR\nLOG_DIR = DIR/log\nPID_DIR = DIR\nLOCAL_DATA_DIR = DIR/whisper\n\
LINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = LINES\nPICKLE_RECEIVER_INTERFACE = 127.0.0.1\nPICKLE_RECEIVER_PORT = PICKLES\n\
CACHE_QUERY_INTERFACE = 127.0.0.1\nCACHE_QUERY_PORT = QUERIES\nMAX_CREATES_PER_MINUTE = inf\nMAX_UPDATES_PER_SECOND = inf\n\
ENABLE_TAGS = False\nTAG_HASH_FILENAMES = False\n";

fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/push")
        .join(name)
}

impl Peer {
    pub fn start(kind: Kind) -> Peer {
        let mut peer = Peer {
            kind,
            port: free_port(),
            folder: tempfile::tempdir().unwrap(),
            child: None,
        };
        peer.up();
        peer
    }

    /// The destination as the gateway file writes it.
    pub fn destination(&self, every: &str) -> String {
        let port = self.port;
        let (to, url) = match self.kind {
            Kind::Prometheus => (
                "prometheus",
                format!("http://127.0.0.1:{port}/api/v1/write"),
            ),
            Kind::Victoria => (
                "prometheus",
                format!("http://127.0.0.1:{port}/api/v1/write"),
            ),
            Kind::Carbon => ("graphite", format!("tcp://127.0.0.1:{port}")),
            Kind::Collector => ("otlp", format!("http://127.0.0.1:{port}/v1/metrics")),
        };
        let name = format!("{:?}", self.kind);
        format!("{{ to: {to}, name: {name}, url: \"{url}\", every: {every} }}")
    }

    /// Starts it where it was.
    pub fn up(&mut self) {
        let folder = self.folder.path();
        let mut command = match self.kind {
            Kind::Prometheus => {
                fs::write(folder.join("prometheus.yml"), "global: {}\n").unwrap();
                let mut command = program("prometheus", folder, &["--config.file=prometheus.yml"]);
                command.args([
                    "--storage.tsdb.path=data",
                    "--web.enable-remote-write-receiver",
                ]);
                command.arg(format!("--web.listen-address=127.0.0.1:{}", self.port));
                command
            }
            Kind::Victoria => {
                let mut command = program("victoria-metrics", folder, &["-storageDataPath=data"]);
                command.args(["-retentionPeriod=1", "-memory.allowedBytes=64000000"]);
                command.arg(format!("-httpListenAddr=127.0.0.1:{}", self.port));
                command
            }
            Kind::Carbon => self.carbon(),
            Kind::Collector => {
                let mut command = program("/usr/bin/python3", folder, &[]);
                command.arg(beside("collector.py"));
                command.args([&self.port.to_string(), "points.jsonl"]);
                command
            }
        };
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(folder.join("peer.log"));
        command
            .stdout(Stdio::null())
            .stderr(Stdio::from(log.unwrap()));
        self.child = Some(Guard(command.spawn().unwrap()));
        wait_until("the peer listens", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
        if self.kind == Kind::Prometheus {
            wait_until("it is ready", || self.get("/-/ready").0 == 200);
        }
    }

    fn carbon(&self) -> Command {
        let folder = self.folder.path();
        let conf = CARBON
            .replace("DIR/", &format!("{}/", folder.display()))
            .replace(" DIR\n", &format!(" {}\n", folder.display()))
            .replace("LINES", &self.port.to_string())
            .replace("PICKLES", &free_port().to_string())
            .replace("QUERIES", &free_port().to_string());
        fs::write(folder.join("carbon.conf"), conf).unwrap();
        let schemas = "[all]\npattern = .*\nretentions = 1s:1h\n";
        fs::write(folder.join("storage-schemas.conf"), schemas).unwrap();
        let rules = "[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = last\n";
        fs::write(folder.join("storage-aggregation.conf"), rules).unwrap();
        fs::create_dir_all(folder.join("log")).unwrap();
        let mut command = program("carbon-cache", folder, &["--config=carbon.conf"]);
        command.args(["--pidfile=carbon.pid", "--debug", "start"]);
        command
    }

    /// Ends it, in its own time.
    pub fn down(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.signal(Signal::TERM);
            child.ended();
        }
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut client = Client::connect(([127, 0, 0, 1], self.port).into());
        client.send(format!(
            "GET {path} HTTP/1.1\r\nhost: peer\r\nconnection: close\r\n\r\n"
        ));
        let answer = client.answer();
        (answer.status(), answer.text())
    }

    /// What it says of itself.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("peer.log")).unwrap_or_default()
    }

    /// All that it has.
    pub fn series(&self) -> Series {
        match self.kind {
            Kind::Prometheus => self.prometheus(),
            Kind::Victoria => self.victoria(),
            Kind::Carbon => self.whisper(),
            Kind::Collector => self.collector(),
        }
    }

    fn prometheus(&self) -> Series {
        let (status, text) =
            self.get("/api/v1/query?query=%7B__name__=~%22tollgate_.*%22%7D%5B1h%5D");
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let mut all = Series::new();
        for series in answer["data"]["result"].as_array().unwrap() {
            let samples = series["values"].as_array().unwrap().iter().map(|sample| {
                let value = sample[1].as_str().unwrap().parse().unwrap();
                (sample[0].as_f64().unwrap() as u64, value)
            });
            all.insert(shown(None, &series["metric"]), samples.collect());
        }
        all
    }

    fn victoria(&self) -> Series {
        // What came just now is found after this.
        self.get("/internal/force_flush");
        let (status, text) =
            self.get("/api/v1/export?match%5B%5D=%7B__name__=~%22tollgate_.*%22%7D");
        assert_eq!(status, 200, "{text}");
        let mut all = Series::new();
        for line in text.lines() {
            let series: Value = serde_json::from_str(line).unwrap();
            let values = series["values"].as_array().unwrap().iter();
            let times = series["timestamps"].as_array().unwrap().iter();
            let samples = times.zip(values);
            let samples =
                samples.map(|(at, value)| (at.as_u64().unwrap() / 1000, value.as_f64().unwrap()));
            let known = all.entry(shown(None, &series["metric"])).or_default();
            known.extend(samples);
            known.sort_by_key(|(at, _)| *at);
        }
        all
    }

    fn whisper(&self) -> Series {
        let mut command = program("/usr/bin/python3", self.folder.path(), &[]);
        command.arg(beside("whisper_files.py")).arg("whisper");
        let said = finish(&mut command);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let mut all = Series::new();
        for line in said.out.lines() {
            let series: Value = serde_json::from_str(line).unwrap();
            let samples = series["samples"].as_array().unwrap().iter();
            let samples = samples.map(|one| (one[0].as_u64().unwrap(), one[1].as_f64().unwrap()));
            all.insert(
                shown(Some(&series["name"]), &series["labels"]),
                samples.collect(),
            );
        }
        all
    }

    fn collector(&self) -> Series {
        let path = self.folder.path().join("points.jsonl");
        let mut all: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
        let mut starts: BTreeMap<String, u64> = BTreeMap::new();
        let text = fs::read_to_string(path).unwrap_or_default();
        // The last one may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            let point: Value = serde_json::from_str(line).unwrap();
            let series = shown(Some(&point["name"]), &point["labels"]);
            let at = point["time"].as_u64().unwrap() / 1_000_000_000;
            if point["counter"] == true {
                let start = point["start"].as_u64().unwrap();
                let known = *starts.entry(series.clone()).or_insert(start);
                assert_eq!(start, known, "sums begin when they began");
            }
            let samples = all.entry(series).or_default();
            samples.insert(at, point["value"].as_f64().unwrap());
        }
        let sorted = |samples: BTreeMap<u64, f64>| samples.into_iter().collect();
        all.into_iter()
            .map(|(name, samples)| (name, sorted(samples)))
            .collect()
    }
}

/// `name{label=value,…}`.
pub fn shown(name: Option<&Value>, labels: &Value) -> String {
    let labels = labels.as_object().unwrap();
    let name = name.unwrap_or_else(|| &labels["__name__"]);
    let mut all: Vec<String> = labels
        .iter()
        .filter(|(label, _)| *label != "__name__")
        .map(|(label, value)| format!("{label}={}", value.as_str().unwrap()))
        .collect();
    all.sort();
    format!("{}{{{}}}", name.as_str().unwrap(), all.join(","))
}
