//! The client: at most 64 requests at a time, one on each connection. Every answer is read to its end
//! and its status is checked.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use tollgate::base::clock::{Clock, Nanos};

use crate::Failure;
use crate::case::{Case, Requests};
use crate::message::Message;
use crate::poll::{Events, Poll};
use crate::shape::Shape;

/// Requests that are on their way at a time.
const ASKED: usize = 64;

/// How long an answer may take. A proxy that callgrind runs is slow.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// When a run ends; answers that are still missing then are waited for.
#[derive(Clone, Copy)]
pub enum Until {
    /// So much later.
    Passed(Nanos),
    /// When so many requests are sent.
    Sent(u64),
}

/// What came back.
#[derive(Default)]
pub struct Tally {
    /// Complete answers.
    pub answers: u64,
    /// Those among them whose status was not the expected one.
    pub strays: u64,
}

/// The connections; none has a request on its way between two runs.
pub struct Client {
    poll: Poll,
    proxy: SocketAddr,
    case: Case,
    requests: Requests,
    connections: Vec<Connection>,
    /// Those without a request on its way; each has its turn.
    idle: VecDeque<usize>,
    buffer: Vec<u8>,
}

/// One of the connections; it is opened with the first request.
#[derive(Default)]
struct Connection {
    stream: Option<TcpStream>,
    answer: Message,
}

impl Client {
    /// For one proxy and case.
    pub fn new(proxy: SocketAddr, case: Case, shape: &Shape) -> Result<Client, Failure> {
        Ok(Client {
            poll: Poll::new()?,
            proxy,
            case,
            requests: case.requests(shape.addresses),
            connections: (0..shape.connections)
                .map(|_| Connection::default())
                .collect(),
            idle: (0..shape.connections).collect(),
            buffer: vec![0; 64 * 1024],
        })
    }

    /// Keeps as many connections busy as may be.
    pub fn run(&mut self, clock: &Clock, until: Until) -> Result<Tally, Failure> {
        let begin = clock.now();
        let mut events = Events::new();
        let mut tally = Tally::default();
        let mut sent = 0;
        while sent < ASKED.min(self.connections.len()) as u64 {
            self.send()?;
            sent += 1;
        }
        while tally.answers < sent {
            if !self.poll.wait(&mut events, PATIENCE)? {
                return Err("no answer in time".into());
            }
            let more = match until {
                Until::Passed(span) => clock.now().since(begin) < span,
                Until::Sent(most) => sent < most,
            };
            for event in &events {
                let index = event.data.u64() as usize;
                let Some(status) = self.receive(index)? else {
                    continue;
                };
                tally.answers += 1;
                tally.strays += u64::from(status != self.case.status());
                self.idle.push_back(index);
                if more {
                    self.send()?;
                    sent += 1;
                }
            }
        }
        Ok(tally)
    }

    fn send(&mut self) -> Result<(), Failure> {
        let index = self.idle.pop_front().ok_or("every connection is busy")?;
        let connection = &mut self.connections[index];
        let stream = match &mut connection.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(self.proxy)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                self.poll.add(&stream, index as u64)?;
                none.insert(stream)
            }
        };
        Ok(stream.write_all(self.requests.next())?)
    }

    /// Reads what has arrived; the status once the answer is complete.
    fn receive(&mut self, index: usize) -> Result<Option<u16>, Failure> {
        let connection = &mut self.connections[index];
        let Some(stream) = &mut connection.stream else {
            return Ok(None);
        };
        let length = match stream.read(&mut self.buffer) {
            Ok(0) => return Err("the proxy closed a connection".into()),
            Ok(length) => length,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        if !connection.answer.push(&self.buffer[..length])? {
            return Ok(None);
        }
        if self.case == Case::Short {
            connection.stream = None;
        }
        Ok(Some(connection.answer.status()))
    }
}
