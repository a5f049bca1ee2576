//! Grants that operators order at run time: how much more a key has, for how long, and who sees it.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
#[path = "../common/mod.rs"]
mod common;
mod credits;
mod kept;
mod limits;
// What other tests need of it.
#[allow(dead_code)]
#[path = "../memcached/server.rs"]
mod memcached;
mod orders;
mod sharing;

use common::child::{self, Ended, Server};
use common::{Client, Message, Upstream, write};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Clients say who they are by fields, as proxies would.
const GATEWAY: &str = "\
admin: 127.0.0.1:0
identity:
  ip: { trusted_proxies: [127.0.0.0/8] }
  user: { header: x-user, from: [127.0.0.0/8] }
  token: { header: x-key }
  plan: { header: x-plan, from: [127.0.0.0/8], default: free }
plans: { free: { multiply: 1 }, gold: { multiply: 10 } }
record: { dir: record }
";

/// A gateway in a process of its own, its files, and the server behind it.
struct Site {
    server: Server,
    folder: TempDir,
    /// Held so that the server runs.
    _upstream: Upstream,
}

impl Site {
    /// A gateway with more fields in its file, and a policy with these limits for every request.
    fn start(gateway: &str, limits: &str) -> Site {
        Site::start_with(gateway, limits, &[])
    }

    /// The same, with other files beside the gateway file.
    fn start_with(gateway: &str, limits: &str, files: &[(&str, &str)]) -> Site {
        let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let gateway = format!("{GATEWAY}{gateway}");
        let policy = format!("match: /**\nupstream: up\nlimits: {limits}\n");
        write(&folder, upstream.address, &gateway, &[("all", &policy)]);
        let server = Server::start(folder.path(), true);
        Site {
            server,
            folder,
            _upstream: upstream,
        }
    }

    fn restart(&mut self) {
        self.server = Server::start(self.folder.path(), true);
    }

    /// The status of a request with these header fields, on a connection of its own.
    fn status(&self, fields: &str) -> u16 {
        get(&mut self.server.connect(), fields).status()
    }

    /// The number of requests that are admitted until one is refused.
    fn admitted(&self, fields: &str) -> usize {
        let mut client = self.server.connect();
        let requests = (0..200).take_while(|_| get(&mut client, fields).status() == 200);
        requests.count()
    }

    fn order(&self, order: &Value) -> Message {
        self.server.ask("POST", "/v1/grants", &order.to_string())
    }

    /// Grants a key more for an hour. Panics if that fails.
    #[track_caller]
    fn grant(&self, limit: &str, key: &str, more: (&str, u64)) -> Value {
        self.grant_for(limit, key, more, "1h")
    }

    #[track_caller]
    fn grant_for(&self, limit: &str, key: &str, (name, more): (&str, u64), time: &str) -> Value {
        let order = json!({ "limit": limit, "key": key, name: more, "for": time });
        let granted = self.order(&order);
        assert_eq!(granted.status(), 200, "{}", granted.text());
        json_of(&granted)
    }

    fn revoke(&self, limit: &str, key: &str) -> Message {
        let escape = |text: &str| text.replace('/', "%2F").replace('#', "%23");
        let path = format!("/v1/grants/{}/{}", escape(limit), escape(key));
        self.server.ask("DELETE", &path, "")
    }

    fn grants(&self) -> Vec<Value> {
        let listed = json_of(&self.server.ask("GET", "/v1/grants", ""));
        listed["grants"].as_array().unwrap().clone()
    }

    /// What the gateway says of a key of a limit.
    fn key(&self, limit: &str, key: &str) -> Value {
        let path = format!("/v1/limits/{limit}/keys/{key}");
        json_of(&self.server.ask("GET", &path, ""))["limits"][0].clone()
    }

    /// Runs a command against this gateway.
    fn command(&self, arguments: &[&str]) -> Ended {
        let admin = self.server.admin.unwrap().to_string();
        let arguments = [arguments, &["--admin", &admin]].concat();
        child::run(self.folder.path(), &arguments)
    }
}

fn get(client: &mut Client, fields: &str) -> Message {
    client.send(format!("GET /a HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
    client.answer()
}

#[track_caller]
fn json_of(answer: &Message) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("{e}: {}", answer.text()))
}
