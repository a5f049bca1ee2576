//! The two servers, and what they are asked.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tollgate::base::clock::Clock;

use super::common::child::{Guard, Server, finish, program};
use super::common::redis::free_port;
use super::common::{Client, Upstream, wait_until, write};
use super::{alike, dashboard, world};

/// A path of the interface, and what is asked there.
#[derive(Clone, Debug)]
pub struct Question {
    /// Below `/api/v1/`.
    pub path: String,
    /// Names and values.
    pub parameters: Vec<(String, String)>,
}

impl Question {
    pub fn new(path: &str, parameters: &[(&str, &str)]) -> Question {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Question {
            path: path.to_owned(),
            parameters: parameters.iter().map(own).collect(),
        }
    }

    fn encoded(&self) -> String {
        let pairs = self.parameters.iter();
        let pairs = pairs.map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// As Grafana asks: by POST where Prometheus takes both.
    fn ask(&self, server: SocketAddr, prefix: &str, post: bool) -> (u16, Value) {
        let (path, encoded) = (&self.path, self.encoded());
        let mut client = Client::connect(server);
        client.send(if post {
            let kind = "content-type: application/x-www-form-urlencoded";
            let length = encoded.len();
            format!(
                "POST {prefix}/api/v1/{path} HTTP/1.1\r\nhost: {server}\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{encoded}"
            )
        } else {
            format!("GET {prefix}/api/v1/{path}?{encoded} HTTP/1.1\r\nhost: {server}\r\n\r\n")
        });
        let answer = client.answer();
        let body = serde_json::from_slice(&answer.body);
        (
            answer.status(),
            body.unwrap_or_else(|e| panic!("{self:?}: {e}: {}", answer.text())),
        )
    }
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let each = text.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    each.collect()
}

/// A gateway with a record and a Prometheus with the same samples. They end when this is dropped.
pub struct Both {
    /// The first second of what they know, since 1970.
    pub start: u64,
    gateway: Server,
    /// What the address of the data source has behind the port.
    prefix: String,
    prometheus: SocketAddr,
    series: Vec<Value>,
    _child: Guard,
    _folder: TempDir,
    _upstream: Upstream,
}

impl Both {
    /// Starts both.
    pub fn start() -> Both {
        let now = Clock::system().wall().as_secs();
        let start = now - now % 3_600 - world::START;
        let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
        let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 30/h } }\n";
        let gateway = "admin: 127.0.0.1:0\nrecord: data/record\n";
        write(&folder, upstream.address, gateway, &[("all", policy)]);
        world::record(&folder.path().join("data/record"), start);
        let gateway = Server::start(folder.path(), true);
        let series = all_series(&gateway);
        let (child, prometheus) = prometheus(folder.path(), start, &series, gateway.admin.unwrap());
        Both {
            start,
            gateway,
            prefix: dashboard::prefix(),
            prometheus,
            series,
            _child: child,
            _folder: folder,
            _upstream: upstream,
        }
    }

    fn ours(&self, question: &Question, post: bool) -> (u16, Value) {
        question.ask(self.gateway.admin.unwrap(), &self.prefix, post)
    }

    /// Asks both the same; how their answers differ.
    pub fn compare(&self, question: &Question, ordered: bool) -> Result<(), String> {
        let posted = matches!(
            question.path.as_str(),
            "query" | "query_range" | "labels" | "series" | "query_exemplars"
        );
        // Panels are asked in one way each, as Grafana asks them.
        let ways = match question.path.as_str() {
            "query_range" => &[true][..],
            _ if posted => &[false, true],
            _ => &[false],
        };
        for post in ways.iter().copied() {
            let (our_status, mut ours) = self.ours(question, post);
            let (their_status, mut theirs) = question.ask(self.prometheus, "", post);
            if !ordered {
                alike::sort(&mut ours);
                alike::sort(&mut theirs);
            }
            let different = alike::difference(&ours, &theirs);
            if our_status != their_status || different.is_some() {
                let different = different.unwrap_or_default();
                return Err(format!(
                    "{question:?}\n  {our_status} {their_status} {different}"
                ));
            }
        }
        Ok(())
    }

    /// Kinds and sentences of the metrics that both know of.
    pub fn described_alike(&self) {
        let question = Question::new("metadata", &[]);
        let ask = |ours: bool| match ours {
            true => self.ours(&question, false).1,
            false => question.ask(self.prometheus, "", false).1,
        };
        let of = |answer: &Value| answer["data"].as_object().unwrap().clone();
        wait_until("Prometheus has read /metrics", || {
            of(&ask(false)).len() > 10
        });
        let (ours, theirs) = (of(&ask(true)), of(&ask(false)));
        for (name, described) in &theirs {
            assert_eq!(ours.get(name), Some(described), "{name}");
        }
        for name in world::names() {
            assert!(ours.contains_key(&name), "{name}");
        }
        let limited = Question::new("metadata", &[("limit", "3")]);
        assert_eq!(of(&self.ours(&limited, false).1).len(), 3);
        let one = Question::new("metadata", &[("metric", "tollgate_requests_total")]);
        self.compare(&one, true).unwrap();
    }

    /// Grafana reads the version, and which fields there are.
    pub fn built_alike(&self) {
        let question = Question::new("status/buildinfo", &[]);
        let (status, ours) = self.ours(&question, false);
        let (_, theirs) = question.ask(self.prometheus, "", false);
        assert_eq!(status, 200);
        let fields = |answer: &Value| {
            let data = answer["data"].as_object().unwrap();
            let mut names: Vec<String> = data.keys().cloned().collect();
            names.sort();
            names
        };
        assert_eq!(fields(&ours), fields(&theirs));
        let version = |answer: &Value| answer["data"]["version"].as_str().unwrap().to_owned();
        assert!(version(&theirs).starts_with(&version(&ours)), "{theirs}");
    }

    /// What is not as in Prometheus is said, with what is there instead.
    pub fn answers_of_its_own(&self) {
        let check = |path: &str, query: &str, status: u16, kind: &str, part: &str| {
            let question = Question::new(
                path,
                &[("query", query), ("match[]", query), ("limit", "1")],
            );
            let (given, answer) = self.ours(&question, false);
            assert_eq!(
                (given, answer["errorType"].as_str()),
                (status, Some(kind)),
                "{answer}"
            );
            let said = answer["error"].as_str().unwrap();
            assert!(said.contains(part), "`{part}` in {said}");
        };
        let bad = |query, part| check("query", query, 400, "bad_data", part);
        bad(
            "deriv(a[5m])",
            "unknown function with name \"deriv\"; supported are avg_over_time",
        );
        bad(
            "max_over_time(rate(a[5m])[1h:1m])",
            "subqueries are not supported",
        );
        bad("a @ 5", "the modifier @ is not supported");
        let limited = Question::new("label/route/values", &[("limit", "2")]);
        let (_, answer) = self.ours(&limited, false);
        assert_eq!(answer["data"].as_array().unwrap().len(), 2);
        assert_eq!(answer["warnings"][0], "results truncated due to limit");
        // Now is recorded too.
        let now = Question::new("query", &[("query", "tollgate_store_budget_bytes > 0")]);
        wait_until("a second was recorded", || {
            self.ours(&now, true).1["data"]["result"][0]["value"][1].is_string()
        });
    }

    /// A series that came meanwhile would have no zeros in Prometheus.
    pub fn still_the_same_series(&self) {
        let of_both = |all: &[Value]| {
            let names = world::names();
            let ours = |series: &&Value| names.iter().any(|name| series["name"] == **name);
            all.iter().filter(ours).cloned().collect::<Vec<_>>()
        };
        let now = all_series(&self.gateway);
        assert_eq!(of_both(&self.series), of_both(&now));
    }
}

/// All series of the record, once every metric that is shown is among them.
fn all_series(gateway: &Server) -> Vec<Value> {
    let mut found = Vec::new();
    wait_until("all series are recorded", || {
        let answer = gateway.ask("GET", "/v1/record/series", "").text();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        found = answer["series"].as_array().unwrap().clone();
        let metrics = gateway.ask("GET", "/metrics", "").text();
        let mut lines = metrics.lines().filter(|line| !line.starts_with('#'));
        lines.all(|line| {
            let name = line.split(['{', ' ']).next().unwrap();
            found.iter().any(|series| series["name"] == name)
        })
    });
    found
}

/// A Prometheus on a port of its own, which has the two hours and reads the gateway's metrics for what they are.
fn prometheus(
    folder: &Path,
    start: u64,
    series: &[Value],
    gateway: SocketAddr,
) -> (Guard, SocketAddr) {
    std::fs::write(folder.join("samples.txt"), world::text(start, series)).unwrap();
    let import = [
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "samples.txt",
        "tsdb",
    ];
    let imported = finish(&mut program("promtool", folder, &import));
    assert_eq!(imported.code, Some(0), "{imported:?}");
    // Samples of now are dropped: only what is said of the metrics is wanted.
    let config = format!(
        "scrape_configs:\n- job_name: tollgate\n  scrape_interval: 1s\n  static_configs: [{{ targets: ['{gateway}'] }}]\n  metric_relabel_configs: [{{ source_labels: [__name__], regex: '.*', action: drop }}]\n"
    );
    std::fs::write(folder.join("prometheus.yml"), config).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut command = Command::new("prometheus");
    let listen = format!("--web.listen-address={address}");
    command.args([
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=tsdb",
        &listen,
    ]);
    command.args(["--storage.tsdb.retention.time=10y", "--log.level=error"]);
    let command = command.current_dir(folder).stdin(Stdio::null());
    let child = Guard(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    wait_until("Prometheus is ready", || {
        let Ok(stream) = std::net::TcpStream::connect(address) else {
            return false;
        };
        drop(stream);
        Client::connect(address).get("/-/ready").status() == 200
    });
    (child, address)
}
