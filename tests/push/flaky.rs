//! A receiver that takes and refuses as Prometheus does, by a model of it, and fails in every way on the way.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::base::telemetry::{Label, Metric};
use tollgate::record::push::cursor::Cursor;

use crate::common::certificate::Certificate;
use crate::common::tls::put;
use crate::common::{Gateway, Message, Upstream, status, wait_until, write};
use crate::wire::{Labels, Written, write_request};

/// What the receiver does with the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Takes,
    /// Takes it and says nothing.
    Dies,
    /// Says nothing and takes nothing.
    Hangs,
    Answers(&'static str),
}

/// The model: series with their samples, as remote write leaves them.
#[derive(Default)]
pub struct Model {
    series: BTreeMap<Labels, Vec<(u64, f64)>>,
    /// The last one first.
    pub moods: Vec<Mood>,
    /// Most samples of a request, if there is a bound.
    pub most: Option<usize>,
    /// Requests of which nothing was taken, for what was there before.
    pub refused: usize,
    pub requests: usize,
}

impl Model {
    /// All of a request or nothing.
    fn take(&mut self, request: &[Written]) -> Result<(), &'static str> {
        let mut after = self.series.clone();
        for (labels, samples) in request {
            let known = after.entry(labels.clone()).or_default();
            for (at, value) in samples {
                match known.last() {
                    Some((last, _)) if at < last => return Err("out of order sample"),
                    Some((last, known)) if at == last && value != known => {
                        return Err("duplicate sample for timestamp");
                    }
                    Some((last, _)) if at == last => {}
                    _ => known.push((*at, *value)),
                }
            }
        }
        self.series = after;
        Ok(())
    }

    /// The times of a series that has a sample for every second in which a process served.
    pub fn times(&self) -> Vec<u64> {
        let samples = self.of("tollgate_store_keys", "");
        samples.iter().map(|(at, _)| at / 1000).collect()
    }

    /// What was counted of requests.
    pub fn admitted(&self) -> f64 {
        let samples = self.of("tollgate_requests_total", "admitted");
        samples.last().map_or(0.0, |last| last.1)
    }

    fn of(&self, name: &str, outcome: &str) -> Vec<(u64, f64)> {
        let has = |labels: &[(String, String)], label: &str, value: &str| {
            labels
                .iter()
                .any(|(own, text)| own == label && text == value)
        };
        let mut found = self.series.iter().filter(|(labels, _)| {
            let of_route = has(labels, "route", "all") && has(labels, "outcome", outcome);
            has(labels, "__name__", name) && (outcome.is_empty() || of_route)
        });
        let samples = found.next().map(|(_, samples)| samples.clone());
        assert!(found.next().is_none(), "one series");
        samples.unwrap_or_default()
    }
}

#[derive(Clone, Default)]
pub struct Receiver(pub Arc<Mutex<Model>>);

impl Receiver {
    pub fn start(&self) -> Upstream {
        let model = self.0.clone();
        Upstream::scripted(move |mut served, report| {
            while let Ok(request) = served.request() {
                let mut model = model.lock().unwrap();
                model.requests += 1;
                let mood = model.moods.pop().unwrap_or(Mood::Takes);
                let body = write_request(&request.body);
                report(request);
                let answer = match mood {
                    Mood::Hangs => return,
                    Mood::Answers(text) => text.to_owned(),
                    _ if model.most.is_some_and(|most| samples(&body) > most) => status(413),
                    Mood::Takes | Mood::Dies => match model.take(&body) {
                        Ok(()) => status(204),
                        Err(why) => {
                            model.refused += 1;
                            let length = why.len();
                            format!("HTTP/1.1 400 Bad\r\ncontent-length: {length}\r\n\r\n{why}")
                        }
                    },
                };
                if mood == Mood::Dies {
                    return;
                }
                served.send(answer);
            }
        })
    }
}

fn samples(request: &[Written]) -> usize {
    request.iter().map(|(_, samples)| samples.len()).sum()
}

pub const LATER: &str = "HTTP/1.1 503 No\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
const BUSY: &str = "HTTP/1.1 429 No\r\ncontent-length: 5\r\n\r\nlater";
const NEVER: &str = "HTTP/1.1 422 No\r\ncontent-length: 9\r\n\r\nnot this\n";

pub fn folder(upstream: &Upstream, receiver: &Upstream, record: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("push.token"), "secret-of-push\n").unwrap();
    let url = format!("http://{}/api/v1/write", receiver.address);
    let push = format!(
        "{{ to: prometheus, name: model, url: \"{url}\", every: 1s, token_file: push.token, labels: {{ instance: a }} }}"
    );
    let gateway = format!("admin: off\nrecord: {{ {record} push: {push} }}\n");
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 1000000/s } }\n";
    write(&folder, upstream.address, &gateway, &[("all", policy)]);
    folder
}

pub fn ask_for(gateway: &Gateway, clock: &Clock, span: Nanos) -> u64 {
    let begun = clock.now();
    let mut client = gateway.connect();
    let mut asked = 0;
    while clock.now().since(begun) < span {
        assert_eq!(client.get("/").status(), 200);
        asked += 1;
        thread::park_timeout(Duration::from_millis(20));
    }
    asked
}

fn is_right(request: &Message) {
    assert_eq!(request.start, "POST /api/v1/write HTTP/1.1");
    let field = |name| request.field(name).unwrap_or_default();
    assert_eq!(field("authorization"), "Bearer secret-of-push");
    assert_eq!(field("content-encoding"), "snappy");
    assert_eq!(field("content-type"), "application/x-protobuf");
    assert_eq!(field("x-prometheus-remote-write-version"), "0.1.0");
}

#[test]
fn a_receiver_that_fails_in_every_way() {
    let receiver = Receiver::default();
    // The last one first.
    receiver.0.lock().unwrap().moods = vec![
        Mood::Takes,
        Mood::Answers(NEVER),
        Mood::Takes,
        Mood::Hangs,
        Mood::Takes,
        Mood::Answers(BUSY),
        Mood::Takes,
        Mood::Dies,
        Mood::Takes,
        Mood::Answers(LATER),
        Mood::Dies,
        Mood::Takes,
    ];
    let (upstream, at) = (Upstream::plain(), receiver.start());
    let clock = Clock::system();
    let gateway = Gateway::start_in(folder(&upstream, &at, ""), clock.clone());
    let mut asked = ask_for(&gateway, &clock, Nanos::from_secs(3));
    wait_until("all moods have passed", || {
        asked += ask_for(&gateway, &clock, Nanos::from_millis(200));
        receiver.0.lock().unwrap().moods.is_empty()
    });
    asked += ask_for(&gateway, &clock, Nanos::from_millis(1500));
    let of = |result| {
        let labels = [(Label::Destination, "model"), (Label::Result, result)];
        use tollgate::serve::admin::Control;
        gateway.app.counter_total(Metric::PushSamples, &labels)
    };
    // One batch was refused, and what died twice was there after all.
    let before = gateway.app.push_status().remove(0);
    assert!(
        of("refused") > 0 && of("sent") > of("refused"),
        "{before:?}"
    );
    assert_eq!(before.refused_samples, of("refused"), "{before:?}");
    wait_until("nothing is behind", || {
        gateway.app.push_status()[0].behind_seconds <= 5
    });
    assert_eq!(gateway.app.push_status()[0].last_error, "");
    gateway.app.shut_down();
    at.drain().iter().for_each(is_right);
    let model = receiver.0.lock().unwrap();
    let samples = model.of("tollgate_requests_total", "admitted");
    assert_eq!(samples.last().unwrap().1, asked as f64, "{samples:?}");
    assert!(
        samples.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
        "{samples:?}"
    );
    assert!(model.refused >= 2, "what died was sent again");
}

/// A cursor from long ago: what is known already is told from what is not, but nobody knows who sent it.
#[test]
fn a_cursor_that_is_behind() {
    let receiver = Receiver::default();
    let (upstream, at) = (Upstream::plain(), receiver.start());
    let clock = Clock::system();
    let gateway = Gateway::start_in(folder(&upstream, &at, "dir: data/record,"), clock.clone());
    let cursor = gateway.folder.path().join("data/record/push/model");
    wait_until("there is a cursor", || cursor.exists());
    let old = fs::read(&cursor).unwrap();
    let mut asked = ask_for(&gateway, &clock, Nanos::from_secs(6));
    wait_until("something was sent", || {
        receiver.0.lock().unwrap().requests > 0
    });
    receiver.0.lock().unwrap().moods = vec![Mood::Answers(LATER); 100];
    // What happens now is not there when the process ends.
    asked += ask_for(&gateway, &clock, Nanos::from_secs(3));
    gateway.app.shut_down();
    let Gateway { folder, app, .. } = gateway;
    drop(app);
    fs::write(&cursor, old).unwrap();
    receiver.0.lock().unwrap().moods.clear();
    let gateway = Gateway::start_in(folder, clock.clone());
    asked += ask_for(&gateway, &clock, Nanos::from_secs(1));
    wait_until("all is there", || {
        let model = receiver.0.lock().unwrap();
        let samples = model.of("tollgate_requests_total", "admitted");
        samples.last().is_some_and(|last| last.1 == asked as f64)
    });
    let model = receiver.0.lock().unwrap();
    let times = model.times();
    // Every second that a process served in has its sample.
    let gaps = times
        .windows(2)
        .filter(|pair| pair[0] + 1 != pair[1])
        .count();
    assert!(gaps <= 1 && times.len() >= 10, "{times:?}");
    assert!(model.refused > 0);
    assert!(gateway.app.push_status()[0].refused_samples > 0);
}

/// A process that died after sending, before it could note what became of it.
#[test]
fn a_batch_that_was_on_its_way() {
    let receiver = Receiver::default();
    let (upstream, at) = (Upstream::plain(), receiver.start());
    let clock = Clock::system();
    let gateway = Gateway::start_in(folder(&upstream, &at, "dir: data/record,"), clock.clone());
    // The first batch is there, and is not known to be when the process ends.
    let mut moods = vec![Mood::Answers(LATER); 100];
    moods.push(Mood::Dies);
    receiver.0.lock().unwrap().moods = moods;
    let mut asked = ask_for(&gateway, &clock, Nanos::from_secs(3));
    wait_until("something was sent", || {
        receiver.0.lock().unwrap().requests > 1
    });
    asked += ask_for(&gateway, &clock, Nanos::from_secs(1));
    gateway.app.shut_down();
    let Gateway { folder, app, .. } = gateway;
    drop(app);
    let cursor = folder.path().join("data/record/push");
    let cursor = Cursor::load(&cursor, "model").unwrap().unwrap();
    assert!(cursor.attempted_until > cursor.delivered_until);
    receiver.0.lock().unwrap().moods.clear();
    let gateway = Gateway::start_in(folder, clock.clone());
    wait_until("all is there", || {
        receiver.0.lock().unwrap().admitted() == asked as f64
    });
    assert_eq!(gateway.app.push_status()[0].refused_samples, 0);
}

/// What a process in memory has counted reaches the receiver before its end.
#[test]
fn the_last_seconds_are_sent() {
    let receiver = Receiver::default();
    let (upstream, at) = (Upstream::plain(), receiver.start());
    let clock = Clock::system();
    let folder = folder(&upstream, &at, "");
    let file = folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("every: 1s", "every: 1h")).unwrap();
    let gateway = Gateway::start_in(folder, clock.clone());
    let asked = ask_for(&gateway, &clock, Nanos::from_millis(1200));
    let begun = clock.now();
    gateway.app.shut_down();
    assert!(clock.now().since(begun) < Nanos::from_secs(4));
    let model = receiver.0.lock().unwrap();
    let samples = model.of("tollgate_requests_total", "admitted");
    assert_eq!(samples.last().unwrap().1, asked as f64, "{samples:?}");
}

/// A receiver under https:// proves who it is, or gets nothing; who vouches for it may change.
#[test]
fn a_receiver_under_tls() {
    let receiver = Receiver::default();
    let (upstream, at) = (Upstream::plain(), receiver.start());
    let clock = Clock::system();
    let certificate = Certificate::of(&["localhost"]);
    // A gateway in front of the receiver ends TLS.
    let front = tempfile::tempdir().unwrap();
    put(&front, 0, &certificate);
    let policy = "match: /**\nupstream: up\n";
    write(&front, at.address, "admin: off\n", &[("all", policy)]);
    let file = front.path().join("tollgate.yaml");
    let listen = "listen:\n  - address: 127.0.0.1:0\n    tls: { cert: 0.pem, key: 0.key }\n";
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
    let front = Gateway::start_in(front, clock.clone());
    let folder = folder(&upstream, &at, "");
    let vouch = |folder: &TempDir, ca: &Certificate| {
        fs::write(folder.path().join("ca.pem"), &ca.pem).unwrap();
    };
    vouch(&folder, &Certificate::of(&["localhost"]));
    let file = folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let plain = format!("http://{}", at.address);
    let secure = format!("https://localhost:{}", front.address.port());
    let text = text
        .replace(&plain, &secure)
        .replace("name: model", "name: model, ca: ca.pem");
    fs::write(&file, text).unwrap();
    let gateway = Gateway::start_in(folder, clock.clone());
    wait_until("it is not believed", || {
        gateway.app.push_status()[0]
            .last_error
            .contains("certificate")
    });
    assert_eq!(receiver.0.lock().unwrap().requests, 0);
    // Another file and a reload are enough.
    vouch(&gateway.folder, &certificate);
    let reloaded = gateway.reload().unwrap();
    assert!(reloaded.needs_restart.is_empty());
    wait_until("it is", || receiver.0.lock().unwrap().requests > 0);
    wait_until("all is well", || {
        gateway.app.push_status()[0].last_error.is_empty()
    });
    at.drain().iter().for_each(is_right);
}
