//! The client of the comparison: at most 64 requests at a time, one on each connection. Every response is read to its
//! end, and its status is checked.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use tollgate::base::clock::{Clock, Nanos};

use crate::Failure;
use crate::case::{Case, Requests};
use crate::message::Message;
use crate::poll::{Events, Poll};
use crate::shape::Shape;

/// The most requests that wait for a response at a time.
const MAX_PENDING: usize = 64;

/// The longest time without a response. It is long because a proxy under callgrind is slow.
const RESPONSE_TIMEOUT: Nanos = Nanos::from_secs(10);

/// When a run ends. Responses that are missing then are waited for.
#[derive(Clone, Copy)]
pub enum Until {
    /// After this time.
    Passed(Nanos),
    /// After this many requests were sent.
    Sent(u64),
}

/// The responses of one run.
#[derive(Default)]
pub struct Tally {
    /// The complete responses.
    pub responses: u64,
    /// The responses whose status was not the expected one.
    pub strays: u64,
}

/// A client and its connections. Between two runs no request waits for a response.
pub struct Client {
    poll: Poll,
    proxy: SocketAddr,
    case: Case,
    requests: Requests,
    connections: Vec<Connection>,
    /// The connections without a pending request, the longest idle one first.
    idle: VecDeque<usize>,
    buffer: Vec<u8>,
}

/// A connection, which is opened with its first request.
#[derive(Default)]
struct Connection {
    stream: Option<TcpStream>,
    response: Message,
}

impl Client {
    /// Makes a client for one proxy and case, without opening connections.
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

    /// Loads the proxy: a new request follows each response, until the run ends.
    pub fn run(&mut self, clock: &Clock, until: Until) -> Result<Tally, Failure> {
        let begin = clock.now();
        let mut events = Events::new();
        let mut tally = Tally::default();
        let mut sent = 0;
        while sent < MAX_PENDING.min(self.connections.len()) as u64 {
            self.send()?;
            sent += 1;
        }
        while tally.responses < sent {
            if !self.poll.wait(&mut events, RESPONSE_TIMEOUT)? {
                return Err("no answer in time".into());
            }
            let sends_more = match until {
                Until::Passed(span) => clock.now().since(begin) < span,
                Until::Sent(requests) => sent < requests,
            };
            for event in &events {
                let index = event.data.u64() as usize;
                let Some(status) = self.receive(index)? else {
                    continue;
                };
                tally.responses += 1;
                tally.strays += u64::from(status != self.case.status());
                self.idle.push_back(index);
                if sends_more {
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

    /// Reads the bytes that have arrived. Returns the status once the response is complete.
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
        if !connection.response.push(&self.buffer[..length])? {
            return Ok(None);
        }
        if self.case == Case::Short {
            connection.stream = None;
        }
        Ok(Some(connection.response.status()))
    }
}
