//! Bans that operators order at run time: what banned clients get, how long bans hold, and who sees them.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod edges;
mod flood;
// What other tests need of it.
#[allow(dead_code)]
#[path = "../http3/site.rs"]
mod http3;
mod kept;
mod limits;
// What other tests need of it.
#[allow(dead_code)]
#[path = "../memcached/server.rs"]
mod memcached;
mod orders;
mod protocols;
mod responses;
mod sharing;

use std::path::Path;

use common::child::{self, Ended, Server};
use common::{Message, Upstream, write};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Clients say who they are by fields, as proxies would.
const GATEWAY: &str = "\
admin: 127.0.0.1:0
identity:
  ip: { trusted_proxies: [127.0.0.0/8] }
  user: { header: x-user, from: [127.0.0.0/8] }
  token: { header: x-key }
  tenant: { header: x-tenant }
record: { dir: record }
";
const POLICY: &str = "match: /**\nupstream: up\n";

/// A gateway in a process of its own, its files, and the server behind it.
struct Site {
    server: Server,
    folder: TempDir,
    upstream: Upstream,
}

impl Site {
    fn start(gateway: &str) -> Site {
        let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
        let gateway = format!("{GATEWAY}{gateway}");
        write(&folder, upstream.address, &gateway, &[("all", POLICY)]);
        let server = Server::start(folder.path(), true);
        Site {
            server,
            folder,
            upstream,
        }
    }

    /// The response to a request with these header fields, on a connection of its own.
    fn get(&self, fields: &str) -> Message {
        let mut client = self.server.connect();
        client.send(request(fields));
        client.answer()
    }

    fn ban(&self, order: &Value) -> Message {
        self.server.ask("POST", "/v1/bans", &order.to_string())
    }

    /// Bans a key for an hour. Panics if that fails.
    #[track_caller]
    fn ban_key(&self, key: &str) {
        let banned = self.ban(&json!({ "key": key }));
        assert_eq!(banned.status(), 200, "{}", banned.text());
    }

    fn unban(&self, key: &str) -> Message {
        let key = key.replace('#', "%23").replace('=', "%3D");
        let key = key.replace('/', "%2F");
        self.server.ask("DELETE", &format!("/v1/bans/{key}"), "")
    }

    fn bans(&self) -> Vec<Value> {
        let listed = json_of(&self.server.ask("GET", "/v1/bans", ""));
        listed["bans"].as_array().unwrap().clone()
    }

    /// The keys of the bans that are listed.
    fn keys(&self) -> Vec<String> {
        let key = |ban: &Value| ban["key"].as_str().unwrap().to_owned();
        self.bans().iter().map(key).collect()
    }

    /// Runs a command against this gateway.
    fn command(&self, arguments: &[&str]) -> Ended {
        command_at(&self.server, self.folder.path(), arguments)
    }
}

fn command_at(server: &Server, folder: &Path, arguments: &[&str]) -> Ended {
    let admin = server.admin.unwrap().to_string();
    let arguments = [arguments, &["--admin", &admin]].concat();
    child::run(folder, &arguments)
}

fn request(fields: &str) -> String {
    format!("GET /a HTTP/1.1\r\nhost: t\r\n{fields}\r\n")
}

fn from(ip: &str) -> String {
    format!("x-forwarded-for: {ip}\r\n")
}

#[track_caller]
fn json_of(answer: &Message) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("{e}: {}", answer.text()))
}
