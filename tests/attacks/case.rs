//! Sends a case and a marker behind it, whole and cut in pieces, and looks at both sides.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::common::{Gateway, MAX_WAIT, write};
use crate::recorder::Recorder;
use crate::strict::{self, Message, Stop};
use tollgate::base::clock::Clock;

pub const ALL: (&str, &str) = ("all", "match: /**\nupstream: up\n");

/// Comes behind every case. Its answer shows that answers belong to their requests.
pub const MARKER: &str = "GET /marker HTTP/1.1\r\nhost: t\r\n\r\n";

/// Longest case that is sent byte by byte.
const SHORT: usize = 2048;

/// How the bytes of a case are cut.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    Whole,
    Bytes,
    /// At places that this number chooses.
    Places(u64),
}

pub const CUTS: [Cut; 4] = [Cut::Whole, Cut::Bytes, Cut::Places(1), Cut::Places(2)];

impl Cut {
    /// Writes the bytes in pieces, as far as the other side takes them.
    pub fn send(self, stream: &mut TcpStream, bytes: &[u8]) {
        let mut random = Random(match self {
            Cut::Places(seed) => seed
                .wrapping_mul(0x9e37_79b9)
                .wrapping_add(bytes.len() as u64),
            Cut::Whole | Cut::Bytes => 0,
        });
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = match self {
                Cut::Bytes if bytes.len() <= SHORT => 1,
                Cut::Places(_) => 1 + random.below(bytes.len() / 3 + 1),
                Cut::Whole | Cut::Bytes => rest.len(),
            };
            let (piece, after) = rest.split_at(length.min(rest.len()));
            // The gateway may have seen enough.
            if stream.write_all(piece).is_err() {
                return;
            }
            rest = after;
            std::thread::yield_now();
        }
    }
}

/// Numbers that are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 33) as usize % end
    }
}

/// A client that reads strictly.
pub struct Asker {
    pub stream: TcpStream,
    pub input: Vec<u8>,
    pub closed: bool,
}

impl Asker {
    pub fn connect(address: SocketAddr) -> Asker {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        stream.set_write_timeout(Some(MAX_WAIT)).unwrap();
        Asker {
            stream,
            input: Vec::new(),
            closed: false,
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        Cut::Whole.send(&mut self.stream, bytes.as_ref());
    }

    /// The next answer but for interim ones; nothing at the end of the connection.
    pub fn answer(&mut self, head_only: bool) -> Option<Message> {
        loop {
            match strict::answer(&self.input, head_only, self.closed) {
                Ok(message) => {
                    self.input.drain(..message.length);
                    if message.status() >= 200 {
                        return Some(message);
                    }
                }
                Err(Stop::More) if self.closed => {
                    assert_eq!(self.input, b"", "an answer that breaks off");
                    return None;
                }
                Err(Stop::More) => self.read(),
                Err(Stop::Unclean(why)) => panic!("to the client: {why}"),
            }
        }
    }

    /// What comes up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while !self.closed {
            self.read();
        }
        std::mem::take(&mut self.input)
    }

    /// Reads more.
    pub fn read(&mut self) {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => self.closed = true,
            Ok(read) => self.input.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.closed = true,
            Err(error) => panic!("the gateway says nothing: {error}"),
        }
    }
}

/// A gateway before a recorder.
pub struct Site {
    pub gateway: Gateway,
    pub recorder: Recorder,
}

impl Site {
    /// One worker, so that all cases share the connections to the upstream.
    pub fn start(gateway: &str, policies: &[(&str, &str)]) -> Site {
        Site::with_files(&format!("workers: 1\n{gateway}"), policies, &[])
    }

    pub fn with_files(gateway: &str, policies: &[(&str, &str)], files: &[(&str, &str)]) -> Site {
        let recorder = Recorder::start();
        let folder = tempfile::tempdir().unwrap();
        write(&folder, recorder.address, gateway, policies);
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Site {
            gateway: Gateway::start_in(folder, Clock::system()),
            recorder,
        }
    }

    pub fn connect(&self) -> Asker {
        Asker::connect(self.gateway.address)
    }

    /// Sends a case in all ways; see [`Site::check_cut`].
    #[track_caller]
    pub fn check(&self, rule: &str, bytes: &[u8], statuses: &[u16]) {
        for cut in CUTS {
            self.check_cut(rule, bytes, statuses, cut);
        }
    }

    /// Sends a case and the marker. The client gets answers with these statuses and no others: what is
    /// answered 200 the upstream has seen as the strict reader reads it, and nothing else; the answers
    /// are those of their requests; after 400, 414, 431, 501 or 505 the connection is over.
    #[track_caller]
    fn check_cut(&self, rule: &str, bytes: &[u8], statuses: &[u16], cut: Cut) {
        let name = format!("{rule} {cut:?} {:?}", text(bytes));
        let sent = [bytes, MARKER.as_bytes()].concat();
        let (read, _) = strict::requests(&sent);
        let mut asker = self.connect();
        cut.send(&mut asker.stream, &sent);
        let mut passed = Vec::new();
        let mut over = false;
        for (number, status) in statuses.iter().enumerate() {
            let head_only = read
                .get(number)
                .is_some_and(|m| m.start.starts_with("HEAD "));
            let answer = asker.answer(head_only);
            let answer = answer.unwrap_or_else(|| panic!("no answer {number}: {name}"));
            assert_eq!(answer.status(), *status, "{name}\n{answer:?}");
            over = answer.field("connection") == Some("close");
            if *status == 200 {
                let deed = read.get(number).map(Message::deed);
                let deed = deed.unwrap_or_else(|| panic!("nobody asked for {answer:?}: {name}"));
                assert_eq!(
                    answer.field("x-saw"),
                    Some(&*deed.escape_default().to_string()),
                    "{name}"
                );
                passed.push(deed);
            } else if matches!(status, 400 | 414 | 431 | 505) {
                assert!(over, "the connection goes on: {name}");
            }
        }
        if !over {
            let _ = asker.stream.shutdown(Shutdown::Write);
        }
        assert_eq!(text(&asker.rest()), "", "more than was asked for: {name}");
        let log = self.recorder.take();
        assert_eq!(log.unclean, Vec::<String>::new(), "{name}");
        let seen: Vec<String> = log.requests.iter().map(Message::deed).collect();
        assert_eq!(seen, passed, "{name}");
        let begun: Vec<_> = log.begun.iter().map(|bytes| text(bytes)).collect();
        let own = |begun: &String| begun.contains("/smuggled") || begun.contains("/marker");
        assert!(!begun.iter().any(own), "{begun:?} began: {name}");
    }
}

/// Bytes as they read in a message.
pub fn text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(300)];
    shown.escape_ascii().to_string()
}

/// Writes all of it, whatever happens on the other side.
pub fn pour(mut stream: &TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// Checks all cases side by side, for those that wait.
pub fn each<T: Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| check(case));
        }
    });
}
