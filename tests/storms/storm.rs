//! Six ways in which 429s begin to rain, in front of a gateway that had quiet traffic before.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tollgate::base::clock::Clock;

use crate::common::child::Server;
use crate::common::{Client, Message, Upstream, ok, status, write};

/// Text that a browser must not take for anything else.
pub const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// Addresses of usual clients.
const USUAL: u32 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    OneKey,
    FewKeys,
    Spray,
    Everyone,
    Config,
    Upstream,
}

impl Kind {
    pub const ALL: [Kind; 6] = [
        Kind::OneKey,
        Kind::FewKeys,
        Kind::Spray,
        Kind::Everyone,
        Kind::Config,
        Kind::Upstream,
    ];

    /// As the explanation calls it.
    pub fn cause(self) -> &'static str {
        match self {
            Kind::OneKey => "one_key",
            Kind::FewKeys => "few_keys",
            Kind::Spray => "spray",
            Kind::Everyone => "everyone",
            Kind::Config => "config",
            Kind::Upstream => "upstream",
        }
    }
}

/// A gateway in front of an upstream that answers 429 to `/busy`.
pub struct Site {
    pub server: Server,
    folder: TempDir,
    _upstream: Upstream,
}

fn policy(rate: &str) -> String {
    format!(
        "match: /**\nupstream: up\nlimits:\n  per-ip: {{ key: ip, rate: {rate} }}\n  \
         per-user: {{ key: user, rate: 100000/m }}\n"
    )
}

impl Site {
    /// With usual traffic.
    pub fn start() -> Site {
        let upstream = Upstream::answering(|request| {
            let busy = request.start.starts_with("GET /busy");
            if busy { status(429) } else { ok("hello") }
        });
        let folder = tempfile::tempdir().unwrap();
        let gateway = "admin: 127.0.0.1:0\nrecord: data/record\n\
            identity: { ip: { trusted_proxies: [127.0.0.0/8] }, user: { header: x-user, from: [127.0.0.0/8] } }\n";
        write(
            &folder,
            upstream.address,
            gateway,
            &[("shop", &policy("20/m"))],
        );
        let server = Server::start(folder.path(), true);
        let site = Site {
            server,
            folder,
            _upstream: upstream,
        };
        let mut client = site.server.connect();
        for address in 0..USUAL {
            for _ in 0..8 {
                assert_eq!(site.ask(&mut client, usual(address), "/").status(), 200);
            }
        }
        site
    }

    fn ask(&self, client: &mut Client, from: String, path: &str) -> Message {
        let user = if from == HOSTILE_ADDRESS {
            HOSTILE
        } else {
            "alice"
        };
        client.send(format!(
            "GET {path} HTTP/1.1\r\nhost: t\r\nx-forwarded-for: {from}\r\nx-user: {user}\r\n\r\n"
        ));
        client.answer()
    }

    fn ask_often(&self, client: &mut Client, from: String, path: &str, times: u32) {
        for _ in 0..times {
            self.ask(client, from.clone(), path);
        }
    }

    /// Lets it rain.
    pub fn rain(&self, kind: Kind) {
        let mut client = self.server.connect();
        match kind {
            Kind::OneKey => self.ask_often(&mut client, HOSTILE_ADDRESS.into(), "/login", 600),
            Kind::FewKeys => {
                for few in 0..4 {
                    let from = format!("198.51.100.{few}");
                    self.ask_often(&mut client, from, "/login", 150);
                }
            }
            Kind::Spray => {
                for many in 0..300_u32 {
                    let from = format!("100.64.{}.{}", many / 250, many % 250);
                    self.ask_often(&mut client, from, "/login", 23);
                }
            }
            Kind::Everyone => {
                for address in 0..USUAL {
                    self.ask_often(&mut client, usual(address), "/", 40);
                }
            }
            Kind::Config => {
                self.set_rate("2/m");
                for address in 0..USUAL {
                    self.ask_often(&mut client, usual(address), "/", 10);
                }
            }
            Kind::Upstream => self.ask_often(&mut client, usual(1), "/busy", 10),
        }
    }

    /// Changes the limit on addresses.
    pub fn set_rate(&self, rate: &str) {
        let file = self.folder.path().join("policies/shop.yaml");
        std::fs::write(file, policy(rate)).unwrap();
        assert_eq!(self.server.ask("POST", "/v1/reload", "").status(), 200);
    }

    pub fn json(&self, path: &str) -> Value {
        let answer = self.server.ask("GET", path, "");
        assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }
}

/// Who sends the hostile text.
const HOSTILE_ADDRESS: &str = "203.0.113.9";

fn usual(number: u32) -> String {
    format!("192.0.2.{number}")
}

/// Waits until the minute is over in which sites have had their usual traffic: lists are of whole minutes.
pub fn next_minute() {
    let now = Clock::system().wall();
    let over = Duration::from_secs(now.as_secs() / 60 * 60 + 60);
    // In the middle of a second: at its beginning, requests may count for the one before, which is still being read.
    thread::park_timeout(over.saturating_sub(now) + Duration::from_millis(1_500));
}
