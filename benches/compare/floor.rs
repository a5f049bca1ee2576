//! The least that a proxy on kernel sockets can do: it waits for the end of a request's head, passes
//! the bytes on as they came, over a connection that is kept, and copies back what is answered.
//! Nothing is understood, changed or counted. It runs as a process of its own: the harness starts
//! itself with `floor` as the first word.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Socket, Type};
use tollgate::base::clock::Nanos;

use crate::Failure;
use crate::poll::{Events, Poll};

const LISTENER: u64 = u64::MAX;

const REFUSAL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";

/// What it is told on its command line.
#[derive(Clone, Copy)]
pub struct Task {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where requests go; without it each is refused at once.
    pub upstream: Option<SocketAddr>,
    /// Threads.
    pub workers: usize,
}

impl Task {
    /// The words that `read` understands.
    pub fn words(&self) -> Vec<String> {
        let upstream = self.upstream.map_or("-".to_owned(), |a| a.to_string());
        vec![self.listen.to_string(), upstream, self.workers.to_string()]
    }

    fn read(words: &[String]) -> Result<Task, Failure> {
        let [listen, upstream, workers] = words else {
            return Err("floor: LISTEN UPSTREAM WORKERS".into());
        };
        Ok(Task {
            listen: listen.parse()?,
            upstream: (upstream != "-").then(|| upstream.parse()).transpose()?,
            workers: workers.parse()?,
        })
    }
}

/// Copies until the process is ended.
pub fn run(words: &[String]) -> Result<(), Failure> {
    let task = Task::read(words)?;
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
    /// By token. A closed connection leaves its place free.
    ends: Vec<Option<End>>,
    free: Vec<usize>,
    /// Connections to the upstream that no client has.
    idle: Vec<usize>,
}

/// One side of what is copied.
struct End {
    stream: TcpStream,
    peer: Option<usize>,
    side: Side,
}

enum Side {
    Client {
        /// The beginning of a head whose end has not come.
        held: Vec<u8>,
        /// Whether a head has ended and nothing is answered yet: what comes then is a body.
        asked: bool,
    },
    Upstream,
}

impl Floor {
    fn new(task: Task) -> io::Result<Floor> {
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
            ends: Vec::new(),
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
                    let held = Vec::new();
                    let asked = false;
                    self.keep(stream, None, Side::Client { held, asked })?;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    fn keep(&mut self, stream: TcpStream, peer: Option<usize>, side: Side) -> io::Result<usize> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.ends.push(None);
            self.ends.len() - 1
        });
        self.poll.add(&stream, index as u64)?;
        self.ends[index] = Some(End { stream, peer, side });
        Ok(index)
    }

    /// Passes on what has arrived; false when the connection is over.
    fn serve(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(end) = &mut self.ends[index] else {
            return Ok(true);
        };
        let bytes = match end.stream.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(length) => &buffer[..length],
            Err(e) => return Ok(e.kind() == ErrorKind::WouldBlock),
        };
        let peer = end.peer;
        match &mut end.side {
            Side::Upstream => {
                let Some(client) = peer.and_then(|peer| self.ends[peer].as_mut()) else {
                    return Ok(false);
                };
                if let Side::Client { asked, .. } = &mut client.side {
                    *asked = false;
                }
                Ok(client.stream.write_all(bytes).is_ok())
            }
            Side::Client { held, asked } => {
                if !*asked {
                    held.extend_from_slice(bytes);
                    if memchr::memmem::find(held, b"\r\n\r\n").is_none() {
                        return Ok(true);
                    }
                    let request = std::mem::take(held);
                    let Some(upstream) = self.upstream else {
                        return Ok(end.stream.write_all(REFUSAL).is_ok());
                    };
                    *asked = true;
                    return self.ask(index, upstream, &request);
                }
                let upstream = peer.and_then(|peer| self.ends[peer].as_mut());
                Ok(upstream.is_some_and(|end| end.stream.write_all(bytes).is_ok()))
            }
        }
    }

    /// Sends a request of a client, over the connection that it has or gets now.
    fn ask(&mut self, client: usize, upstream: SocketAddr, request: &[u8]) -> io::Result<bool> {
        let known = self.ends[client].as_ref().and_then(|end| end.peer);
        let peer = match known.or_else(|| self.idle.pop()) {
            Some(peer) => peer,
            None => self.keep(TcpStream::connect(upstream)?, None, Side::Upstream)?,
        };
        if let Some(end) = &mut self.ends[client] {
            end.peer = Some(peer);
        }
        let Some(end) = &mut self.ends[peer] else {
            return Ok(false);
        };
        end.peer = Some(client);
        Ok(end.stream.write_all(request).is_ok())
    }

    /// Ends a connection. What a client leaves is kept for the next one.
    fn close(&mut self, index: usize) {
        let Some(end) = self.ends[index].take() else {
            return;
        };
        self.free.push(index);
        match (end.side, end.peer) {
            (Side::Client { .. }, Some(peer)) => {
                if let Some(upstream) = &mut self.ends[peer] {
                    upstream.peer = None;
                    self.idle.push(peer);
                }
            }
            (Side::Upstream, Some(client)) => {
                if let Some(client) = &mut self.ends[client] {
                    client.peer = None;
                }
                self.close(client);
            }
            (Side::Upstream, None) => self.idle.retain(|&idle| idle != index),
            (Side::Client { .. }, None) => {}
        }
    }
}
