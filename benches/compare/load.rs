//! The client: as many requests as 64 kept connections can carry, one at a time on each. Every
//! answer is read to its end and its status is checked.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::{Timespec, epoll};
use tollgate::clock::{Clock, Nanos};

use crate::Failure;

/// Connections of the client.
pub const CONNECTIONS: usize = 64;

/// A GET with 5 header fields, a credential among them.
const REQUEST: &[u8] = b"GET /api/items/42 HTTP/1.1\r\n\
    host: bench.example\r\n\
    user-agent: compare/1\r\n\
    accept: application/json\r\n\
    accept-encoding: gzip\r\n\
    authorization: Bearer 5d41402abc4b2a76b9719d911017c592\r\n\r\n";

/// Longest answer that is understood, in bytes.
const ANSWER_MAX: usize = 8 * 1024;

/// What came back.
#[derive(Default)]
pub struct Tally {
    /// Complete answers.
    pub answers: u64,
    /// Those among them whose status was not the expected one.
    pub strays: u64,
}

/// The open connections; none has a request on its way between two calls.
pub struct Client {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    status: u16,
}

struct Connection {
    stream: TcpStream,
    buffer: Box<[u8; ANSWER_MAX]>,
    filled: usize,
}

impl Client {
    /// Opens all connections.
    pub fn connect(proxy: SocketAddr, status: u16) -> io::Result<Client> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for index in 0..CONNECTIONS {
            let stream = TcpStream::connect(proxy)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let token = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &stream, token, epoll::EventFlags::IN)?;
            connections.push(Connection {
                stream,
                buffer: Box::new([0; ANSWER_MAX]),
                filled: 0,
            });
        }
        Ok(Client {
            epoll,
            connections,
            status,
        })
    }

    /// Keeps every connection busy for `span`, then waits for the answers that are still missing.
    pub fn run(&mut self, clock: &Clock, span: Nanos) -> Result<Tally, Failure> {
        let patience = Timespec {
            tv_sec: 2,
            tv_nsec: 0,
        };
        let end = clock.now().after(span);
        let mut events = Vec::with_capacity(CONNECTIONS);
        let mut tally = Tally::default();
        let mut waiting = 0;
        for connection in &mut self.connections {
            connection.stream.write_all(REQUEST)?;
            waiting += 1;
        }
        while waiting > 0 {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, Some(&patience)) {
                Ok(0) => return Err("no answer within 2 s".into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(failure) => return Err(failure.into()),
            }
            let more = clock.now() < end;
            for event in &events {
                let connection = &mut self.connections[event.data.u64() as usize];
                let Some(status) = connection.answer()? else {
                    continue;
                };
                tally.answers += 1;
                tally.strays += u64::from(status != self.status);
                if more {
                    connection.stream.write_all(REQUEST)?;
                } else {
                    waiting -= 1;
                }
            }
        }
        Ok(tally)
    }
}

impl Connection {
    /// Reads what has arrived; the status once the answer is complete.
    fn answer(&mut self) -> Result<Option<u16>, Failure> {
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => return Err("the proxy closed a connection, or its answer is too long".into()),
            Ok(length) => self.filled += length,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        let Some(answer) = Answer::read(&self.buffer[..self.filled])? else {
            return Ok(None);
        };
        if self.filled < answer.length {
            return Ok(None);
        }
        if self.filled > answer.length {
            return Err("the proxy sent more than one answer to a request".into());
        }
        self.filled = 0;
        Ok(Some(answer.status))
    }
}

/// The head of an answer.
struct Answer {
    status: u16,
    /// Bytes of head and body.
    length: usize,
}

impl Answer {
    /// Nothing while the head is incomplete.
    fn read(bytes: &[u8]) -> Result<Option<Answer>, Failure> {
        let mut status = None;
        let mut body = None;
        let mut at = 0;
        while let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n') {
            let line = bytes[at..at + length].trim_ascii_end();
            at += length + 1;
            if status.is_none() {
                status = Some(number(line.get(9..12).unwrap_or_default())?);
            } else if line.is_empty() {
                let body: u64 = body.ok_or("an answer has no content-length")?;
                let status = status.unwrap_or(0) as u16;
                return Ok(Some(Answer {
                    status,
                    length: at + body as usize,
                }));
            } else if let Some(value) = field(line, b"content-length:") {
                body = Some(number(value)?);
            }
        }
        Ok(None)
    }
}

/// The value of a header line, if it is the line of that field.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start
        .eq_ignore_ascii_case(name)
        .then(|| value.trim_ascii_start())
}

/// Decimal digits.
fn number(digits: &[u8]) -> Result<u64, Failure> {
    let text = std::str::from_utf8(digits)?;
    text.parse()
        .map_err(|_| format!("`{text}` in an answer is not a number").into())
}
