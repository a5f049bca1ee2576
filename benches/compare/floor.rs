//! The floor: the least work that a proxy on kernel sockets can do. It waits for the end of a request's head, passes
//! the bytes on unchanged over a kept connection, and copies the response back. It never parses, changes or counts
//! anything.
//!
//! The floor runs as a process of its own: the harness starts itself with `floor` as the first word.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Socket, Type};
use tollgate::base::clock::Nanos;

use crate::Failure;
use crate::poll::{Events, Poll};

/// The poll's token of the listener; connections have their index.
const LISTENER: u64 = u64::MAX;

const REFUSAL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";

/// The task of the floor, as its command line states it.
#[derive(Clone, Copy)]
pub struct FloorTask {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Where requests go. Without it each request is refused at once.
    pub upstream: Option<SocketAddr>,
    /// The number of threads.
    pub workers: usize,
}

impl FloorTask {
    /// The task as the words that `parse` reads.
    pub fn words(&self) -> Vec<String> {
        let upstream = self.upstream.map_or("-".to_owned(), |a| a.to_string());
        vec![self.listen.to_string(), upstream, self.workers.to_string()]
    }

    fn parse(words: &[String]) -> Result<FloorTask, Failure> {
        let [listen, upstream, workers] = words else {
            return Err("floor: LISTEN UPSTREAM WORKERS".into());
        };
        Ok(FloorTask {
            listen: listen.parse()?,
            upstream: (upstream != "-").then(|| upstream.parse()).transpose()?,
            workers: workers.parse()?,
        })
    }
}

/// Copies until the process is killed.
pub fn run(words: &[String]) -> Result<(), Failure> {
    let task = FloorTask::parse(words)?;
    let mut threads = Vec::new();
    for _ in 0..task.workers {
        let mut floor = Floor::new(task)?;
        threads.push(std::thread::spawn(move || floor.run()));
    }
    for thread in threads {
        thread
            .join()
            .map_err(|_| "a thread of the floor panicked")??;
    }
    Ok(())
}

/// One thread with connections of its own.
struct Floor {
    listener: TcpListener,
    upstream: Option<SocketAddr>,
    poll: Poll,
    /// All connections by token. A closed one leaves its slot empty.
    endpoints: Vec<Option<Endpoint>>,
    free: Vec<usize>,
    /// Connections to the upstream that no client uses.
    idle: Vec<usize>,
}

/// One connection, and the other one that its bytes are copied to.
struct Endpoint {
    stream: TcpStream,
    peer: Option<usize>,
    side: Side,
}

enum Side {
    Client {
        /// The beginning of a head whose end has not arrived.
        partial_head: Vec<u8>,
        /// Whether a whole head was sent and no response has begun: bytes that arrive now are a body.
        is_waiting: bool,
    },
    Upstream,
}

impl Floor {
    fn new(task: FloorTask) -> io::Result<Floor> {
        let socket = Socket::new(Domain::for_address(task.listen), Type::STREAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&task.listen.into())?;
        socket.listen(1024)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let poll = Poll::new()?;
        poll.add(&listener, LISTENER)?;
        Ok(Floor {
            listener,
            upstream: task.upstream,
            poll,
            endpoints: Vec::new(),
            free: Vec::new(),
            idle: Vec::new(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            self.poll.wait(&mut events, Nanos::from_secs(60))?;
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    index => {
                        let index = index as usize;
                        if !self.serve(index, &mut buffer)? {
                            self.close(index);
                        }
                    }
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let partial_head = Vec::new();
                    let is_waiting = false;
                    self.add_endpoint(
                        stream,
                        None,
                        Side::Client {
                            partial_head,
                            is_waiting,
                        },
                    )?;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    fn add_endpoint(
        &mut self,
        stream: TcpStream,
        peer: Option<usize>,
        side: Side,
    ) -> io::Result<usize> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.endpoints.push(None);
            self.endpoints.len() - 1
        });
        self.poll.add(&stream, index as u64)?;
        self.endpoints[index] = Some(Endpoint { stream, peer, side });
        Ok(index)
    }

    /// Passes on the bytes that have arrived. Returns false when the connection has ended.
    fn serve(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(endpoint) = &mut self.endpoints[index] else {
            return Ok(true);
        };
        let bytes = match endpoint.stream.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(length) => &buffer[..length],
            Err(e) => return Ok(e.kind() == ErrorKind::WouldBlock),
        };
        let peer = endpoint.peer;
        match &mut endpoint.side {
            Side::Upstream => {
                let Some(client) = peer.and_then(|peer| self.endpoints[peer].as_mut()) else {
                    return Ok(false);
                };
                if let Side::Client { is_waiting, .. } = &mut client.side {
                    *is_waiting = false;
                }
                Ok(client.stream.write_all(bytes).is_ok())
            }
            Side::Client {
                partial_head,
                is_waiting,
            } => {
                if !*is_waiting {
                    partial_head.extend_from_slice(bytes);
                    if memchr::memmem::find(partial_head, b"\r\n\r\n").is_none() {
                        return Ok(true);
                    }
                    let request = std::mem::take(partial_head);
                    let Some(upstream) = self.upstream else {
                        return Ok(endpoint.stream.write_all(REFUSAL).is_ok());
                    };
                    *is_waiting = true;
                    return self.send_request(index, upstream, &request);
                }
                let upstream = peer.and_then(|peer| self.endpoints[peer].as_mut());
                Ok(upstream.is_some_and(|endpoint| endpoint.stream.write_all(bytes).is_ok()))
            }
        }
    }

    /// Sends a request of a client over its connection to the upstream, or over one that it gets now.
    fn send_request(
        &mut self,
        client: usize,
        upstream: SocketAddr,
        request: &[u8],
    ) -> io::Result<bool> {
        let existing = self.endpoints[client]
            .as_ref()
            .and_then(|endpoint| endpoint.peer);
        let peer = match existing.or_else(|| self.idle.pop()) {
            Some(peer) => peer,
            None => self.add_endpoint(TcpStream::connect(upstream)?, None, Side::Upstream)?,
        };
        if let Some(endpoint) = &mut self.endpoints[client] {
            endpoint.peer = Some(peer);
        }
        let Some(endpoint) = &mut self.endpoints[peer] else {
            return Ok(false);
        };
        endpoint.peer = Some(client);
        Ok(endpoint.stream.write_all(request).is_ok())
    }

    /// Closes a connection. The upstream connection of a client that has left is kept for another one.
    fn close(&mut self, index: usize) {
        let Some(endpoint) = self.endpoints[index].take() else {
            return;
        };
        self.free.push(index);
        match (endpoint.side, endpoint.peer) {
            (Side::Client { .. }, Some(peer)) => {
                if let Some(upstream) = &mut self.endpoints[peer] {
                    upstream.peer = None;
                    self.idle.push(peer);
                }
            }
            (Side::Upstream, Some(client)) => {
                if let Some(client) = &mut self.endpoints[client] {
                    client.peer = None;
                }
                self.close(client);
            }
            (Side::Upstream, None) => self.idle.retain(|&idle| idle != index),
            (Side::Client { .. }, None) => {}
        }
    }
}
