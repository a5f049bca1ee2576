//! Every order in every way, at one gateway and at two that share a Redis: it takes effect at all of them within a second, ends
//! at its time, is in the audit, and outlives a kill of the gateway that took it.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use tollgate::base::clock::{Clock, Nanos};

use crate::common::browser::Browser;
use crate::common::child::{self, Server};
use crate::common::redis::Redis;
use crate::common::{Client, Upstream, wait_until, write};
use crate::forms::{fill, press, send};
use crate::rights::{operators, token};
use crate::verbs::{ENDING, LASTING, Order, Request};
use crate::{Setup, json};

/// How often something that shall take a second at most is tried. A busy machine may delay one of them.
const ATTEMPTS: usize = 3;

const AT_MOST: Nanos = Nanos::from_secs(1);

const GATEWAY: &str = "\
admin: { address: 127.0.0.1:0, tokens: operators.yaml }
identity:
  ip: { trusted_proxies: [127.0.0.0/8] }
  user: { api_keys: runtime }
  token: { header: x-api-key }
  tenant: { header: x-tenant }
record: { dir: record }
";

const POLICIES: [(&str, &str); 4] = [
    ("free", "match: GET /free\nupstream: up\n"),
    (
        "keyed",
        "match: GET /keyed\nupstream: up\nrequire: { user: api_keys }\n",
    ),
    (
        "api",
        "match: GET /api/**\nupstream: up\nlimits: { per-tenant: { key: tenant, rate: 8/h } }\n",
    ),
    (
        "paid",
        "match: GET /paid\nupstream: up\nlimits: { prepaid: { key: tenant, credits: true } }\n",
    ),
];

/// A way to order.
enum Way {
    Command,
    Api,
    Form(Browser),
}

/// Gateways that are one to their operators: one alone, or two that share a store.
struct Fleet {
    /// Orders are given at the first one.
    gateways: Vec<Setup>,
    /// A connection to each gateway that stays open.
    open: Vec<Client>,
    clock: Clock,
    way: Way,
    /// The beginning and the end of what the audit has of each order so far.
    audited: Vec<[String; 2]>,
    /// The kinds of events of these orders, and on whom they were.
    events: Vec<(&'static str, String)>,
    /// Held so that the store runs.
    _store: Option<Redis>,
}

/// What `{n}`, `{id}` and `{key}` stand for.
#[derive(Default, Clone)]
struct Words {
    number: usize,
    id: String,
    key: String,
}

impl Words {
    fn fill(&self, text: &str) -> String {
        text.replace("{n}", &self.number.to_string())
            .replace("{id}", &self.id)
            .replace("{key}", &self.key)
    }

    /// Takes the id and the key of the response to an order, if it is about an API key.
    fn learn(&mut self, response: &Value) {
        for (word, name) in [(&mut self.id, "id"), (&mut self.key, "key")] {
            if let Some(text) = response[name].as_str() {
                text.clone_into(word);
            }
        }
    }
}

impl Fleet {
    fn start(store: Option<Redis>, way: impl FnOnce(&Setup) -> Way) -> Fleet {
        let by_store = match &store {
            Some(redis) => format!("store: {{ address: \"{}\", budget: 1s }}\n", redis.url()),
            None => "store: { snapshots: counts }\n".to_owned(),
        };
        let gateway = format!("{GATEWAY}{by_store}");
        let count = if store.is_some() { 2 } else { 1 };
        let gateways = (0..count).map(|_| {
            let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
            fs::write(folder.path().join("operators.yaml"), operators()).unwrap();
            fs::write(folder.path().join("ada.token"), token("ada")).unwrap();
            write(&folder, upstream.address, &gateway, &POLICIES);
            let server = Server::start(folder.path(), true);
            Setup {
                server,
                folder,
                upstream,
            }
        });
        let gateways: Vec<Setup> = gateways.collect();
        if store.is_some() {
            gateways.iter().for_each(wait_for_store);
        }
        Fleet {
            open: gateways.iter().map(|one| one.server.connect()).collect(),
            way: way(&gateways[0]),
            gateways,
            clock: Clock::system(),
            audited: Vec::new(),
            events: Vec::new(),
            _store: store,
        }
    }

    fn first(&self) -> &Setup {
        &self.gateways[0]
    }

    /// Orders by the API, whatever the way is.
    fn request(&self, words: &Words, (method, path, body): Request) -> Value {
        let (path, body) = (words.fill(path), words.fill(body));
        let response = self.first().ask_as("ada", method, &path, &body);
        assert_eq!(response.status(), 200, "{path}: {}", response.text());
        json(&response)
    }

    /// Runs a command of an operator against the first gateway.
    fn command(&self, arguments: &[&str]) -> String {
        let admin = self.first().server.admin.unwrap().to_string();
        let options = ["--admin", &admin, "--token-file", "ada.token"];
        let ended = child::run(
            self.first().folder.path(),
            &[arguments, &options[..]].concat(),
        );
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.err);
        ended.out
    }

    /// Gives an order, and returns the time at which it was sent.
    fn give(&self, order: &Order, words: &mut Words) -> Nanos {
        match &self.way {
            Way::Api => {
                let sent = self.clock.now();
                let response = self.request(words, order.request);
                words.learn(&response);
                sent
            }
            Way::Command => {
                let arguments = order.command.iter().map(|text| words.fill(text));
                let arguments: Vec<String> = arguments.collect();
                let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                arguments.push("--json");
                let sent = self.clock.now();
                let out = self.command(&arguments);
                words.learn(&serde_json::from_str(&out).unwrap());
                sent
            }
            Way::Form(browser) => self.send_form(browser, order, words),
        }
    }

    fn send_form(&self, browser: &Browser, order: &Order, words: &mut Words) -> Nanos {
        browser.script(&format!("location.hash = '{}'", words.fill(order.screen)));
        press(browser, &words.fill(order.button));
        for (field, text) in order.fields {
            fill(browser, field, &words.fill(text));
        }
        let sent = self.clock.now();
        if order.verb != "key add" {
            send(browser);
            return sent;
        }
        browser.click("#order-send");
        wait_until("the key is shown", || {
            browser.script("return document.querySelector('#new-key') !== null") == true
        });
        words.key = browser.text("#new-key");
        browser.click("#order-close");
        let listed = json(&self.first().ask_as("ada", "GET", "/v1/keys", ""));
        let keys = listed["keys"].as_array().unwrap().iter();
        let newest = keys.max_by(|a, b| {
            a["since"]
                .as_f64()
                .partial_cmp(&b["since"].as_f64())
                .unwrap()
        });
        newest.unwrap()["id"]
            .as_str()
            .unwrap()
            .clone_into(&mut words.id);
        sent
    }

    /// The statuses of a request at each gateway, on the connection that is open and on a new one.
    fn statuses(&mut self, order: &Order, words: &Words) -> Vec<u16> {
        let mut new = Vec::new();
        for gateway in &self.gateways {
            new.push(gateway.server.connect());
        }
        let clients = self.open.iter_mut().chain(&mut new);
        clients
            .map(|client| status_of(client, order, words))
            .collect()
    }

    /// Waits until each gateway treats the client so, on all connections. No connection asks again once it does.
    fn wait_for(&mut self, order: &Order, words: &Words, status: u16) {
        let what = format!("{} of {} leads to {status}", order.verb, order.target);
        let mut new: Vec<Client> = self
            .gateways
            .iter()
            .map(|one| one.server.connect())
            .collect();
        for client in self.open.iter_mut().chain(&mut new) {
            wait_until(&what, || status_of(client, order, words) == status);
        }
    }

    /// Uses up what the limit has for the client.
    fn use_up(&mut self, order: &Order, words: &Words) {
        wait_until("all is used", || {
            self.statuses(order, words)
                .iter()
                .all(|status| *status == 429)
        });
    }

    /// Gives an order to which nothing has led yet, and returns how long it took until all gateways followed it.
    fn order(&mut self, order: &Order, words: &mut Words) -> Nanos {
        if order.path.starts_with("/api") {
            self.use_up(order, words);
        }
        if let Some(before) = order.before {
            let response = self.request(words, before);
            words.learn(&response);
        }
        if let Some(status) = order.statuses.0 {
            self.wait_for(order, words, status);
        }
        let sent = self.give(order, words);
        self.wait_for(order, words, order.statuses.1);
        let took = self.clock.now().since(sent);
        let target = words.fill(order.target);
        self.audited.push([
            format!("ada at 127.0.0.1: {} ", order.verb),
            format!("{target} (done)"),
        ]);
        if !order.event.is_empty() {
            self.events.push((order.event, target));
        }
        took
    }

    /// Gives an order until it takes effect within a second, with other names each time.
    #[track_caller]
    fn check(&mut self, order: &Order) -> Words {
        let mut took = Vec::new();
        for number in 0..ATTEMPTS {
            let mut words = Words {
                number,
                ..Words::default()
            };
            took.push(self.order(order, &mut words));
            if took[number] <= AT_MOST {
                println!("{} of {}: {took:?}", order.verb, order.target);
                return words;
            }
        }
        panic!("{} of {}: {took:?}", order.verb, order.target);
    }

    /// Gives orders with an end, and returns by how much they ended late at most.
    fn late(&mut self, number: usize) -> Vec<Nanos> {
        let given = ENDING.each_ref().map(|(order, list, named_by, _)| {
            let mut words = Words {
                number,
                ..Words::default()
            };
            self.order(order, &mut words);
            (words.clone(), self.end_of(list, named_by, &words))
        });
        let ends = ENDING.iter().zip(given);
        let late = ends.map(|((order, _, _, status), (words, end))| {
            self.wait_for(order, &words, *status);
            let late = self.clock.wall().as_secs_f64() - end;
            assert!(late > -0.01, "{} ends no sooner: {late} s", order.target);
            Nanos((late.max(0.0) * 1e9) as u64)
        });
        late.collect()
    }

    /// When an order ends, in seconds since 1970.
    fn end_of(&self, list: &str, [member, text]: &[&str; 2], words: &Words) -> f64 {
        let listed = json(
            &self
                .first()
                .ask_as("ada", "GET", &format!("/v1/{list}"), ""),
        );
        let mut entries = listed[list].as_array().unwrap().iter();
        let entry = entries.find(|entry| entry[*member] == words.fill(text));
        entry.expect(text)["until"].as_f64().unwrap()
    }

    /// Each order is in the audit, and its change is an event.
    fn check_audit(&self) {
        let has_all = |lines: &[String]| {
            let is_in = |order: &[String; 2]| {
                let has = |line: &String| order.iter().all(|part| line.contains(part.as_str()));
                lines.iter().any(has)
            };
            self.audited.iter().all(is_in)
        };
        wait_until("all orders are in the audit", || {
            let audit = self.command(&["audit", "--from", "-1h"]);
            has_all(&audit.lines().map(str::to_owned).collect::<Vec<_>>())
        });
        let events = |query: &str| {
            let path = format!("/v1/record/events?from=-1h&most=1000&{query}");
            json(&self.first().ask_as("ada", "GET", &path, ""))["events"].clone()
        };
        let orders = events("audit=true");
        let orders = orders.as_array().unwrap().iter();
        let orders: Vec<String> = orders
            .map(|event| {
                assert_eq!(
                    (&event["event"], &event["audit"]["by"]),
                    (&"ordered".into(), &"ada".into())
                );
                event["detail"].to_string()
            })
            .collect();
        assert!(has_all(&orders), "{orders:#?}");
        let changes = events("audit=false");
        let changes = changes.as_array().unwrap();
        for (kind, target) in &self.events {
            let subject = target.rsplit(' ').next().unwrap();
            let is_change = |event: &&Value| {
                let detail = event["detail"].as_str().unwrap();
                event["event"] == *kind && detail.contains(subject)
            };
            assert!(
                changes.iter().any(|event| is_change(&event)),
                "{kind} {target}: {changes:#?}"
            );
        }
    }

    /// What was ordered holds after a restart of the gateway that took it.
    fn check_kept(&mut self, orders: &[(&Order, Words)]) {
        let first = &mut self.gateways[0];
        first.server.signal(Signal::KILL);
        first.server.ended();
        first.server = Server::start(first.folder.path(), true);
        self.open[0] = self.first().server.connect();
        // Until then credits are refused.
        if self.gateways.len() > 1 {
            wait_for_store(self.first());
        }
        for (order, words) in orders {
            for _ in 0..order.used_first {
                self.statuses(order, words);
            }
            let statuses = self.statuses(order, words);
            let is_kept = |status: &u16| *status == order.statuses.1;
            assert!(
                statuses.iter().all(is_kept),
                "{} {}: {statuses:?}",
                order.verb,
                order.target
            );
        }
        self.check_audit();
    }
}

fn wait_for_store(gateway: &Setup) {
    wait_until("the store is shared", || {
        let status = json(&gateway.ask_as("ada", "GET", "/v1/status", ""));
        status["store"]["state"] == "shared"
    });
}

fn status_of(client: &mut Client, order: &Order, words: &Words) -> u16 {
    let (path, fields) = (order.path, words.fill(order.client));
    client.send(format!(
        "GET {path} HTTP/1.1\r\nhost: t\r\n{fields}\r\n\r\n"
    ));
    client.answer().status()
}

fn check(store: Option<Redis>, way: impl FnOnce(&Setup) -> Way) {
    let mut fleet = Fleet::start(store, way);
    let mut late = Vec::new();
    while late.len() < ATTEMPTS && late.last().is_none_or(|worst| *worst > AT_MOST) {
        late.push(fleet.late(late.len()).into_iter().max().unwrap());
    }
    println!("ends: {late:?}");
    assert!(late.last() <= Some(&AT_MOST), "{late:?}");
    let is_command = matches!(fleet.way, Way::Command);
    let has_way = |order: &&Order| !is_command || !order.command.is_empty();
    let orders: Vec<(&Order, Words)> = LASTING
        .iter()
        .filter(has_way)
        .map(|order| (order, fleet.check(order)))
        .collect();
    fleet.check_audit();
    fleet.check_kept(&orders);
}

fn form(gateway: &Setup) -> Way {
    Way::Form(gateway.open("ada", "keys"))
}

#[test]
fn commands_take_effect() {
    check(None, |_| Way::Command);
}

#[test]
fn commands_take_effect_at_two_gateways() {
    check(Some(Redis::start()), |_| Way::Command);
}

#[test]
fn requests_take_effect() {
    check(None, |_| Way::Api);
}

#[test]
fn requests_take_effect_at_two_gateways() {
    check(Some(Redis::start()), |_| Way::Api);
}

#[test]
fn forms_take_effect() {
    check(None, form);
}

#[test]
fn forms_take_effect_at_two_gateways() {
    check(Some(Redis::start()), form);
}
