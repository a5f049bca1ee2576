//! An upstream that writes down what it gets, reads it with a strict reader of its own, and answers every
//! request with what it took it for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::strict::{self, Message, Stop};

/// What no request to a server has, whatever the client sent.
const NEVER: [&str; 3] = ["keep-alive", "proxy-connection", "http2-settings"];

/// What came so far.
#[derive(Debug, Default)]
pub struct Log {
    /// Whole requests.
    pub requests: Vec<Message>,
    /// What came of those that broke off.
    pub begun: Vec<Vec<u8>>,
    /// What no server should have to read.
    pub unclean: Vec<String>,
}

/// See the module.
pub struct Recorder {
    pub address: SocketAddr,
    log: Arc<Mutex<Log>>,
}

impl Recorder {
    pub fn start() -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Log::default()));
        let shared = log.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let log = shared.clone();
                thread::spawn(move || serve(stream, &log));
            }
        });
        Recorder { address, log }
    }

    /// What came since the last time.
    pub fn take(&self) -> Log {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// How many requests came, whole or not.
    pub fn count(&self) -> usize {
        let log = self.log.lock().unwrap();
        log.requests.len() + log.begun.len()
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Log>) {
    stream.set_nodelay(true).unwrap();
    let mut input = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        match strict::request(&input) {
            Ok(message) => {
                input.drain(..message.length);
                let reply = reply(&message);
                let mut log = log.lock().unwrap();
                log.unclean.extend(odd(&message));
                log.requests.push(message);
                drop(log);
                let _ = stream.write_all(&reply);
                continue;
            }
            Err(Stop::Unclean(why)) => {
                log.lock().unwrap().unclean.push(why);
                return;
            }
            Err(Stop::More) => {}
        }
        match stream.read(&mut piece) {
            Ok(read @ 1..) => input.extend_from_slice(&piece[..read]),
            _ => break,
        }
    }
    if !input.is_empty() {
        log.lock().unwrap().begun.push(input);
    }
}

/// What of a request is not to be passed on.
fn odd(message: &Message) -> Option<String> {
    let fields = message.fields.iter().chain(&message.trailers);
    let mut names = fields.map(|(name, _)| name.as_str());
    let never = names.find(|name| NEVER.contains(name));
    let te = message.all("te");
    let upgrades = message.field("upgrade").is_some();
    let connections = message.all("connection");
    let hops = message.all("x-forwarded-for").join(",");
    let announced = hops.ends_with("127.0.0.1") && !message.all("via").is_empty();
    let wrong = if !message.start.ends_with(" HTTP/1.1") {
        "not of HTTP/1.1"
    } else if message.extended {
        "chunk extensions"
    } else if never.is_some() {
        "a field of one connection"
    } else if !te.is_empty() && te != ["trailers"] {
        "TE"
    } else if upgrades != (connections == ["upgrade"]) || (!upgrades && !connections.is_empty()) {
        "Connection"
    } else if !announced {
        "not announced"
    } else {
        return None;
    };
    Some(format!("{wrong}: {message:?}"))
}

/// Names the request that it answers.
fn reply(message: &Message) -> Vec<u8> {
    let deed = message.deed().escape_default().to_string();
    let deed = &deed[..deed.len().min(4096)];
    let head = format!("HTTP/1.1 200 OK\r\nx-saw: {deed}\r\n");
    let body = if message.start.starts_with("HEAD ") {
        ""
    } else {
        deed
    };
    format!("{head}content-length: {}\r\n\r\n{body}", deed.len()).into()
}
