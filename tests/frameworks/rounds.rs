//! Rounds: a client uses up its limit by plain requests; then none of its other requests may get through
//! as its own, however they are written.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::apps::{App, SECRET};
use crate::common::child::Server;
use crate::common::{Client, Message, read_body, write};
use crate::dimension::{Dimension, LIMIT, Victim};
use crate::mutate::mutate;
use crate::random::Random;

/// Changed requests of a round. Plain ones are [`LIMIT`] and one more.
const CHANGED: u64 = 17;
pub const ROUND: u64 = CHANGED + LIMIT as u64 + 1;

/// What stands between clients and the framework.
pub struct Front {
    pub address: SocketAddr,
    _gateway: Option<(Server, TempDir)>,
}

impl Front {
    /// A gateway that limits this.
    pub fn gateway(app: &App, dimension: Dimension) -> Front {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), SECRET).unwrap();
        let policies = dimension.policies(app);
        let policies: Vec<_> = policies
            .iter()
            .map(|(name, text)| (*name, &**text))
            .collect();
        let file = format!(
            "workers: 1\nrecord: off\nadmin: off\n{}",
            dimension.identity()
        );
        write(&folder, app.address, &file, &policies);
        let server = Server::start(folder.path(), false);
        Front {
            address: server.address,
            _gateway: Some((server, folder)),
        }
    }

    /// Something else that listens here.
    pub fn at(address: SocketAddr) -> Front {
        Front {
            address,
            _gateway: None,
        }
    }
}

/// A request that passed although its client's limit was used up.
pub struct Passed {
    pub dimension: Dimension,
    pub kinds: Vec<&'static str>,
    pub text: String,
}

/// What many rounds found.
pub struct Run<'a> {
    app: &'a App,
    pub passed: Vec<Passed>,
    /// Changed requests, and how many of them were understood: sent on, or refused as their client's.
    understood: BTreeMap<Dimension, (usize, usize)>,
    replayed: bool,
}

impl<'a> Run<'a> {
    pub fn new(app: &'a App) -> Run<'a> {
        Run {
            app,
            passed: Vec::new(),
            understood: BTreeMap::new(),
            replayed: false,
        }
    }

    /// Rounds of all dimensions in turn, so many requests in all.
    pub fn all(&mut self, fronts: &[(Dimension, Front)], requests: u64) {
        for seed in 0..requests.div_ceil(ROUND) {
            self.round(fronts, seed);
        }
    }

    /// One round again.
    pub fn replay(&mut self, fronts: &[(Dimension, Front)], seed: u64) {
        self.replayed = true;
        self.round(fronts, seed);
    }

    pub fn round(&mut self, fronts: &[(Dimension, Front)], seed: u64) {
        let (dimension, front) = &fronts[seed as usize % fronts.len()];
        let random = &mut Random::new(seed);
        let victim = Victim::new(self.app, *dimension, seed / fronts.len() as u64, random);
        let [.., high, low] = seed.to_be_bytes();
        // Signatures that do not verify are bounded for each address.
        let own = match dimension {
            Dimension::User | Dimension::OwnClaim => [127, 1, high, low],
            _ => [127, 0, 0, 1],
        };
        let mut client = Connection::new(own, front.address);
        for sent in 0..=LIMIT {
            let mut draft = victim.plain(random);
            draft.render();
            let reply = client.exchange(&draft.bytes());
            let text = String::from_utf8_lossy(&draft.bytes()).into_owned();
            let reply = reply.unwrap_or_else(|| panic!("SEED={seed} {text}\nno response"));
            let own = read(&reply).is_some_and(|read| {
                let mut all = dimension.identities(&read).into_iter();
                all.any(|(_, identity)| victim.is(&identity))
            });
            assert_eq!(
                own,
                sent < LIMIT,
                "SEED={seed} {} {dimension:?}: plain request {sent} of {}:\n{text}\n{}",
                self.app.name,
                victim.name,
                reply.start
            );
        }
        for _ in 0..CHANGED {
            let draft = mutate(&victim, random);
            let bytes = draft.bytes();
            let reply = client.exchange(&bytes);
            let (sent, understood) = self.understood.entry(*dimension).or_default();
            *sent += 1;
            let read = reply.as_ref().and_then(read);
            let limited = reply.is_some_and(|reply| reply.status() == 429);
            *understood += usize::from(limited || read.is_some());
            let Some(read) = read else {
                continue;
            };
            let own = dimension.identities(&read).into_iter();
            let own: Vec<_> = own.filter(|(_, identity)| victim.is(identity)).collect();
            if own.is_empty() {
                continue;
            }
            let by: Vec<_> = own.iter().map(|(how, _)| how.as_str()).collect();
            self.passed.push(Passed {
                dimension: *dimension,
                text: format!(
                    "SEED={seed} {} {dimension:?} {:?}: {} read {} in\n    {}",
                    self.app.name,
                    draft.kinds,
                    by.join(", "),
                    victim.name,
                    bytes.escape_ascii()
                ),
                kinds: draft.kinds,
            });
        }
    }

    /// Fails when anything passed that may not, or too little that may.
    pub fn judge(self) {
        println!(
            "{}: changed requests, and those that were understood: {:?}",
            self.app.name, self.understood
        );
        let mut bad = BTreeMap::<_, Vec<&str>>::new();
        for passed in &self.passed {
            let key = (passed.dimension, &passed.kinds);
            bad.entry(key).or_default().push(&passed.text);
        }
        let texts: Vec<_> = bad.values().map(|texts| texts[0]).collect();
        let shown = texts.len().min(400);
        assert!(
            bad.is_empty(),
            "{} passed in {} ways:\n{}",
            self.passed.len(),
            bad.len(),
            texts[..shown].join("\n")
        );
        for (dimension, (sent, understood)) in &self.understood {
            assert!(
                self.replayed || understood * 20 > *sent,
                "{}, {dimension:?}: {understood} of {sent} changed requests were understood: this tests nothing",
                self.app.name
            );
        }
    }
}

/// What the framework says that it read.
fn read(reply: &Message) -> Option<Value> {
    let text = BASE64.decode(reply.field("x-read")?).expect("base64");
    Some(serde_json::from_slice(&text).expect("JSON"))
}

/// A connection that is made anew when the other side has closed it.
pub struct Connection {
    own: SocketAddr,
    address: SocketAddr,
    open: Option<Client>,
}

impl Connection {
    pub fn new(own: [u8; 4], address: SocketAddr) -> Connection {
        Connection {
            own: SocketAddr::from((own, 0)),
            address,
            open: None,
        }
    }

    fn connect(&self) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&self.own.into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        socket.into()
    }

    /// The response, if one comes.
    pub fn exchange(&mut self, bytes: &[u8]) -> Option<Message> {
        let mut client = self
            .open
            .take()
            .unwrap_or_else(|| Client::over(self.connect()));
        client.stream.write_all(bytes).ok()?;
        let mut reply = match client.head() {
            Ok(head) => head,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("nothing is said to {}", bytes.escape_ascii())
            }
            Err(_) => return None,
        };
        if !bytes.starts_with(b"HEAD ") {
            read_body(&mut client.reader, &mut reply).ok()?;
        }
        if !reply
            .field("connection")
            .is_some_and(|value| value.contains("close"))
        {
            self.open = Some(client);
        }
        Some(reply)
    }
}
