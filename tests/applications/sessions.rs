//! A shop of Express below a path that it does not know: its session's cookie survives, limits count by it, and a WebSocket
//! has it too.

use std::io::Read;

use serde_json::{Value, json};

use crate::application::{Application, root, script};
use crate::common::child::program;
use crate::common::{Client, Gateway, Message};

const IDENTITY: &str = "identity: { session: { cookie: connect.sid } }\n";

const POLICY: &str = "match: /shop/**\nupstream: up\nstrip: /shop\nmap_back: true\n\
    limits: { per-session: { key: session, rate: 6/h }, per-ip: { key: ip, rate: 1000/h } }\n";

/// A browser that keeps one cookie, and follows redirects.
struct Visitor {
    client: Client,
    cookie: Option<String>,
}

impl Visitor {
    fn new(gateway: &Gateway) -> Visitor {
        Visitor {
            client: gateway.connect(),
            cookie: None,
        }
    }

    fn cookie_line(&self) -> String {
        let cookie = self.cookie.as_ref();
        cookie.map_or(String::new(), |cookie| format!("cookie: {cookie}\r\n"))
    }

    fn send(&mut self, method: &str, path: &str) -> Message {
        let cookie = self.cookie_line();
        self.client.send(format!(
            "{method} {path} HTTP/1.1\r\nhost: shop.test\r\n{cookie}content-length: 0\r\n\r\n"
        ));
        let answer = self.client.answer();
        if let Some(cookie) = answer.field("set-cookie") {
            let (pair, attributes) = cookie.split_once("; ").unwrap();
            assert_eq!(attributes, "Path=/shop; HttpOnly");
            self.cookie = Some(pair.to_owned());
        }
        answer
    }

    /// The cart to which a request leads.
    fn cart(&mut self, method: &str, path: &str) -> Value {
        let mut answer = self.send(method, path);
        if let Some(location) = answer.field("location").map(str::to_owned) {
            assert_eq!(location, "/shop/cart");
            answer = self.send("GET", &location);
        }
        assert_eq!(answer.status(), 200, "{}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// The status of a handshake for a WebSocket, over the connection, which is one from then on.
    fn open_socket(&mut self) -> u16 {
        let cookie = self.cookie_line();
        self.client.send(format!(
            "GET /shop/live HTTP/1.1\r\nhost: shop.test\r\n{cookie}connection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        self.client.head().unwrap().status()
    }

    /// Sends a short text over the WebSocket, and reads the next one.
    fn say(&mut self, text: &str) -> String {
        // A final text under a mask of zeros.
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        self.client.send(frame);
        let mut head = [0; 2];
        self.client.reader.read_exact(&mut head).unwrap();
        assert_eq!(head[0], 0x81);
        let mut text = vec![0; usize::from(head[1])];
        self.client.reader.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }
}

#[test]
fn sessions_of_express() {
    let mut command = program("node", &root(), &[&script("express_app.cjs")]);
    command.env("NODE_PATH", root().join("target/node/node_modules"));
    let app = Application::start(&mut command);
    let gateway = Gateway::start(app.address, IDENTITY, &[("shop", POLICY)]);

    let mut stranger = Visitor::new(&gateway);
    assert_eq!(stranger.send("GET", "/shop/cart").status(), 401);
    assert_eq!(stranger.open_socket(), 401);

    let mut alice = Visitor::new(&gateway);
    let mut bob = Visitor::new(&gateway);
    // The requests that begin the sessions have none yet.
    let cart = alice.cart("POST", "/shop/login?user=alice");
    assert_eq!(cart, json!({ "user": "alice", "cart": [] }));
    let cart = bob.cart("POST", "/shop/login?user=bob");
    assert_eq!(cart, json!({ "user": "bob", "cart": [] }));
    let cart = alice.cart("POST", "/shop/cart/tea");
    assert_eq!(cart, json!({ "user": "alice", "cart": ["tea"] }));
    let cart = alice.cart("POST", "/shop/cart/milk");
    assert_eq!(cart, json!({ "user": "alice", "cart": ["tea", "milk"] }));

    // The sixth request of the session opens a WebSocket, and its messages are none.
    assert_eq!(alice.open_socket(), 101);
    for text in ["a", "b", "c"] {
        assert_eq!(alice.say(text), format!("alice: {text}"));
    }
    let mut other = Visitor {
        client: gateway.connect(),
        cookie: alice.cookie.clone(),
    };
    assert_eq!(other.send("GET", "/shop/cart").status(), 429);
    assert_eq!(other.open_socket(), 429);
    assert_eq!(alice.say("d"), "alice: d");
    assert_eq!(bob.cart("GET", "/shop/cart")["user"], "bob");
}
