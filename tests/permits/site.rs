//! A gateway with limits on open requests, and a server whose paths say what it does.

use std::io::Read;

use serde_json::Value;

use crate::common::{
    Client, Gateway, Message, Served, Upstream, ok, read_body, read_head, wait_until,
};

/// The first half of an answer.
const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf!";

/// A gateway, and two upstreams that are one server: `/slow/` has a server's patience of 300 ms.
pub struct Site {
    pub gateway: Gateway,
    pub upstream: Upstream,
}

/// The requests of one connection, each as its path says.
fn serve(mut served: Served, report: &dyn Fn(Message)) {
    while let Ok(mut request) = read_head(&mut served.reader) {
        let path = request.start.split(' ').nth(1).unwrap_or_default();
        let does = path.rsplit('/').next().unwrap_or_default().to_owned();
        if does != "early" && read_body(&mut served.reader, &mut request).is_err() {
            return;
        }
        report(request);
        match does.as_str() {
            // Until the gateway hangs up.
            "half" => {
                served.send(HALF);
                let _ = served.reader.read(&mut [0]);
                return;
            }
            "silent" => {
                let _ = served.reader.read(&mut [0]);
                return;
            }
            "dies" => return served.send(HALF),
            "dies-first" => return,
            "unframed" => {
                return served.send("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto the end");
            }
            "chunked" => {
                served.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
                served.send("4\r\nfine\r\n0\r\nx-last: 1\r\n\r\n");
            }
            "empty" => served.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            "204" => served.send("HTTP/1.1 204 No Content\r\n\r\n"),
            "304" => served.send("HTTP/1.1 304 Not Modified\r\netag: \"1\"\r\n\r\n"),
            "head" => served.send("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n"),
            "early" => {
                served.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n");
                let _ = served.reader.read(&mut [0; 9]);
                return;
            }
            _ => served.send(ok("fine")),
        }
    }
}

impl Site {
    /// With these limits, each a line `name: { … }`, shared by both routes.
    pub fn shared(limits: &[&str]) -> Site {
        let gateway = format!("{}limits:\n{}", Site::servers(), lines(limits));
        Site::start(&gateway, "")
    }

    /// With these limits of one route.
    pub fn own(gateway: &str, limits: &[&str]) -> Site {
        let gateway = format!("{}{gateway}", Site::servers());
        Site::start(&gateway, &format!("limits:\n{}", lines(limits)))
    }

    fn servers() -> &'static str {
        "upstreams:\n  up: \"http://{upstream}\"\n  \
         slow: { servers: [\"http://{upstream}\"], timeouts: { first_byte: 300ms } }\n"
    }

    fn start(gateway: &str, policy: &str) -> Site {
        let upstream = Upstream::scripted(serve);
        // Clients that leave close both sides, which looks the same.
        let timeouts = match gateway.contains("\ntimeouts:") {
            true => "",
            false => "timeouts: { half_close: gone }\n",
        };
        let gateway = &format!("{gateway}{timeouts}");
        let all = format!("match: /**\nupstream: up\n{policy}");
        let slow = "match: /slow/**\nupstream: slow\n";
        let gateway = Gateway::start(upstream.address, gateway, &[("all", &all), ("slow", slow)]);
        Site { gateway, upstream }
    }

    /// Sends a GET with more fields, each ended by CRLF, and gives the head of the answer.
    pub fn open_with(&self, path: &str, fields: &str) -> (Client, Message) {
        let mut client = self.gateway.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
        let head = client.head().unwrap();
        (client, head)
    }

    /// A request whose answer goes on until the client leaves.
    #[track_caller]
    pub fn open(&self) -> Client {
        let (client, head) = self.open_with("/half", "");
        assert_eq!(head.status(), 200, "{head:?}");
        client
    }

    pub fn get(&self, path: &str) -> Message {
        self.gateway.connect().get(path)
    }

    /// One figure of `/metrics`.
    pub fn figure(&self, series: &str) -> u64 {
        let text = self.gateway.app.metrics();
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// Permits of the limit `parallel` that are out.
    pub fn out(&self) -> u64 {
        self.figure("tollgate_permits_open{limit=\"parallel\"}")
    }

    /// So many of one outcome of the limit `parallel`.
    pub fn decisions(&self, outcome: &str) -> u64 {
        self.figure(&format!(
            "tollgate_limit_decisions_total{{limit=\"parallel\",outcome=\"{outcome}\"}}"
        ))
    }

    /// Every permit is back: the next `most` requests pass, and one more does not.
    #[track_caller]
    pub fn all_back(&self, most: usize) {
        wait_until("all permits are back", || self.out() == 0);
        let clients: Vec<Client> = (0..most).map(|_| self.open()).collect();
        assert_eq!(violated(&self.get("/half")), ["parallel"]);
        assert_eq!(self.out(), most as u64);
        drop(clients);
        wait_until("all permits are back", || self.out() == 0);
        let entries = self.gateway.app.running().admission.permits().key_count();
        assert_eq!(entries, 0);
    }
}

pub fn lines(limits: &[&str]) -> String {
    limits.iter().map(|limit| format!("  {limit}\n")).collect()
}

/// The limits that refused, as the client is told.
#[track_caller]
pub fn violated(answer: &Message) -> Vec<String> {
    assert_eq!(answer.status(), 429, "{}", answer.text());
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let names = body["violated-policies"].as_array();
    let names = names.into_iter().flatten();
    names
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}
