//! Accounts of credits that operators fill at run time: how orders add up, who may make them, and what is left.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod kept;
mod orders;
mod sharing;

use std::net::SocketAddr;

use common::child::{self, Ended, Server};
use common::{Client, Message, Upstream, write};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Rita may read, simon is of the support team, and ada may do everything.
const OPERATORS: &str = "\
ada: { token: token-of-ada-0123456789, rights: admin }
rita: { token: token-of-rita-0123456789, rights: read }
simon: { token: token-of-simon-0123456789, rights: support }
";
const GATEWAY: &str = "\
admin: { address: 127.0.0.1:0, tokens: operators.yaml }
identity:
  ip: { trusted_proxies: [127.0.0.0/8] }
  user: { header: x-user, from: [127.0.0.0/8] }
  token: { header: x-key }
record: { dir: record }
";
const ALONE: &str = "store: { snapshots: data }\n";
const PREPAID: &str = "{ prepaid: { key: user, credits: true } }";
const ALICE: &str = "x-user: alice\r\n";

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
        let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("operators.yaml"), OPERATORS).unwrap();
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

    /// Runs these limits from now on.
    fn reload(&self, limits: &str) {
        let policy = format!("match: /**\nupstream: up\nlimits: {limits}\n");
        std::fs::write(self.folder.path().join("policies/all.yaml"), policy).unwrap();
        let reloaded = self.ask("ada", "POST", "/v1/reload", "");
        assert_eq!(reloaded.status(), 200, "{}", reloaded.text());
    }

    fn doors(&self) -> Doors {
        Doors {
            clients: self.server.address,
            admin: self.server.admin.unwrap(),
        }
    }

    fn admitted(&self, fields: &str) -> usize {
        self.doors().admitted(fields)
    }

    fn ask(&self, operator: &str, method: &str, path: &str, body: &str) -> Message {
        self.doors().ask(operator, method, path, body)
    }

    fn order(&self, order: &Value) -> Message {
        self.doors().order(order)
    }

    #[track_caller]
    fn add(&self, key: &str, credits: u64) -> Value {
        self.doors().add(key, credits)
    }

    fn revoke(&self, key: &str) -> Message {
        self.doors().revoke(key)
    }

    fn status(&self, fields: &str) -> u16 {
        get(&mut self.server.connect(), fields).status()
    }

    fn grants(&self) -> Vec<Value> {
        let listed = json_of(&self.ask("rita", "GET", "/v1/grants", ""));
        listed["grants"].as_array().unwrap().clone()
    }

    /// What the gateway says of the credits of a key.
    fn key(&self, key: &str) -> Value {
        let path = format!("/v1/limits/prepaid/keys/{key}");
        json_of(&self.ask("rita", "GET", &path, ""))["limits"][0].clone()
    }

    /// The credits that all orders for a key have added.
    fn added(&self, key: &str) -> u64 {
        self.key(key)["credits"]["added"].as_u64().unwrap()
    }

    /// Runs a command against this gateway, as an operator.
    fn command_as(&self, operator: &str, arguments: &[&str]) -> Ended {
        let admin = self.server.admin.unwrap().to_string();
        let token_file = self.folder.path().join(format!("token-of-{operator}"));
        std::fs::write(&token_file, format!("token-of-{operator}-0123456789\n")).unwrap();
        let token_file = token_file.to_str().unwrap().to_owned();
        let arguments = [arguments, &["--admin", &admin, "--token-file", &token_file]].concat();
        child::run(self.folder.path(), &arguments)
    }

    fn command(&self, arguments: &[&str]) -> Ended {
        self.command_as("simon", arguments)
    }
}

/// The addresses of a gateway, which several threads may use.
#[derive(Clone, Copy)]
struct Doors {
    clients: SocketAddr,
    admin: SocketAddr,
}

impl Doors {
    /// The number of requests of a client that are admitted until one is refused.
    fn admitted(self, fields: &str) -> usize {
        let mut client = Client::connect(self.clients);
        let requests = (0..5_000).take_while(|_| get(&mut client, fields).status() == 200);
        requests.count()
    }

    /// The response to a request of an operator.
    fn ask(self, operator: &str, method: &str, path: &str, body: &str) -> Message {
        let (admin, length) = (self.admin, body.len());
        let mut client = Client::connect(admin);
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nhost: {admin}\r\ncontent-type: application/json\r\n\
             authorization: Bearer token-of-{operator}-0123456789\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
        client.answer()
    }

    fn order(self, order: &Value) -> Message {
        self.ask("simon", "POST", "/v1/grants", &order.to_string())
    }

    /// Adds credits to the account of a key of the limit `prepaid`. Panics if that fails.
    #[track_caller]
    fn add(self, key: &str, credits: u64) -> Value {
        let added = self.order(&json!({ "limit": "prepaid", "key": key, "add": credits }));
        assert_eq!(added.status(), 200, "{}", added.text());
        json_of(&added)
    }

    fn revoke(self, key: &str) -> Message {
        let path = format!("/v1/grants/prepaid/{key}");
        self.ask("simon", "DELETE", &path, "")
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
