//! API keys that operators add at run time: what they prove, how long, on which gateways, and who sees them.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod kept;
// What other tests need of it.
#[allow(dead_code)]
#[path = "../memcached/server.rs"]
mod memcached;
mod orders;
mod places;
mod sharing;

use common::child::{self, Ended, Server};
use common::{Message, Upstream, write};
use serde_json::{Value, json};
use tempfile::TempDir;

const IDENTITY: &str = "\
identity:
  user: { api_keys: [keys.yaml, runtime] }
  token: { header: x-api-key }
  plan: { api_keys: true, default: free }
  tenant: { api_keys: true, forward: true }
  device: { header: x-device }
";
const GATEWAY: &str = "\
admin: 127.0.0.1:0
plans: { free: { multiply: 1 }, gold: { multiply: 10 } }
record: { dir: record }
access_log: access.log
";
const POLICY: &str = "\
match: /**
upstream: up
require: { user: api_keys }
limits: { per-user: { key: user, rate: 1000/h, plans: true } }
";

/// A policy for gateway files that say nothing of plans.
const PLAIN_POLICY: &str = "\
match: /**
upstream: up
require: { user: api_keys }
limits: { per-user: { key: user, rate: 1000/h } }
";

/// A gateway in a process of its own, its files, and the server behind it.
struct Site {
    server: Server,
    folder: TempDir,
    upstream: Upstream,
}

impl Site {
    /// A site with these lines beside the others of the gateway file.
    fn start(gateway: &str) -> Site {
        Site::with(&format!("{GATEWAY}{IDENTITY}{gateway}"), POLICY)
    }

    fn with(gateway: &str, policy: &str) -> Site {
        let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("keys.yaml"), "of-the-file: fay\n").unwrap();
        write(&folder, upstream.address, gateway, &[("all", policy)]);
        let server = Server::start(folder.path(), true);
        Site {
            server,
            folder,
            upstream,
        }
    }

    fn order(&self, order: &Value) -> Message {
        self.server.ask("POST", "/v1/keys", &order.to_string())
    }

    /// Adds a key. Panics if that fails.
    #[track_caller]
    fn add(&self, order: &Value) -> Added {
        let answer = self.order(order);
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let answer = json_of(&answer);
        Added {
            key: text(&answer["key"]),
            id: text(&answer["id"]),
        }
    }

    /// Adds a key of this user without an end.
    #[track_caller]
    fn add_for(&self, user: &str) -> Added {
        self.add(&json!({ "user": user }))
    }

    fn revoke(&self, id: &str) -> Message {
        self.server.ask("DELETE", &format!("/v1/keys/{id}"), "")
    }

    fn keys(&self) -> Vec<Value> {
        let listed = json_of(&self.server.ask("GET", "/v1/keys", ""));
        listed["keys"].as_array().unwrap().clone()
    }

    /// The response to a request with these header fields, on a connection of its own.
    fn get(&self, fields: &str) -> Message {
        let mut client = self.server.connect();
        client.send(request(fields));
        client.answer()
    }

    /// The response to a request with this key.
    fn get_with(&self, key: &str) -> Message {
        self.get(&key_field(key))
    }

    fn accepts(&self, key: &str) -> bool {
        self.get_with(key).status() == 200
    }

    /// Runs a command against this gateway.
    fn command(&self, arguments: &[&str]) -> Ended {
        let admin = self.server.admin.unwrap().to_string();
        let arguments = [arguments, &["--admin", &admin]].concat();
        child::run(self.folder.path(), &arguments)
    }

    /// Writes another gateway file and reloads.
    fn reload_with(&self, gateway: &str) {
        write(&self.folder, self.upstream.address, gateway, &[]);
        let reloaded = self.server.ask("POST", "/v1/reload", "");
        assert_eq!(reloaded.status(), 200, "{}", reloaded.text());
    }
}

/// What the answer to an order shows once.
#[derive(Debug)]
struct Added {
    key: String,
    id: String,
}

fn request(fields: &str) -> String {
    format!("GET /a HTTP/1.1\r\nhost: t\r\n{fields}\r\n")
}

fn key_field(key: &str) -> String {
    format!("x-api-key: {key}\r\n")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[track_caller]
fn json_of(answer: &Message) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("{e}: {}", answer.text()))
}

/// Why a request is refused, as its access log line says.
fn credential_faults(site: &Site) -> Vec<String> {
    let log = std::fs::read_to_string(site.folder.path().join("access.log")).unwrap_or_default();
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter_map(|line| line["credential"].as_str().map(str::to_owned))
        .collect()
}
