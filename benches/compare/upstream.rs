//! The server behind the proxies: one thread that responds to every request with the same bytes. It does no more than
//! that, so that the proxy is what limits the rate.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tollgate::base::clock::Nanos;

use crate::message::Message;
use crate::poll::{Events, Poll};

/// The poll's token of the listener; connections have their index.
const LISTENER: u64 = u64::MAX;

/// The running server; it stops when this is dropped.
pub struct Upstream {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Listens on a free port and sends `response` for each request. The thread stays on the caller's core.
    pub fn start(response: Vec<u8>) -> io::Result<Upstream> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let poll = Poll::new()?;
        poll.add(&listener, LISTENER)?;
        let mut server = Server {
            listener,
            stop: Arc::clone(&stop),
            poll,
            connections: Vec::new(),
            response,
            buffer: vec![0; 64 * 1024],
        };
        let thread = std::thread::spawn(move || {
            if let Err(failure) = server.run() {
                eprintln!("compare: the upstream failed: {failure}");
            }
        });
        Ok(Upstream {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Server {
    listener: TcpListener,
    stop: Arc<AtomicBool>,
    poll: Poll,
    connections: Vec<Option<Connection>>,
    response: Vec<u8>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    request: Message,
}

impl Server {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::new();
        while !self.stop.load(Ordering::Relaxed) {
            self.poll.wait(&mut events, Nanos::from_millis(100))?;
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    index => {
                        let slot = &mut self.connections[index as usize];
                        let is_open = slot
                            .as_mut()
                            .is_some_and(|c| c.serve(&mut self.buffer, &self.response));
                        if !is_open {
                            // Closing the socket takes it out of the poll too.
                            *slot = None;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            self.poll.add(&stream, self.connections.len() as u64)?;
            self.connections.push(Some(Connection {
                stream,
                request: Message::default(),
            }));
        }
    }
}

impl Connection {
    /// Reads the bytes that have arrived, and responds to a complete request. Returns false when the connection has
    /// ended.
    fn serve(&mut self, buffer: &mut [u8], response: &[u8]) -> bool {
        let length = match self.stream.read(buffer) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(e) => return e.kind() == ErrorKind::WouldBlock,
        };
        match self.request.push(&buffer[..length]) {
            Ok(true) => self.stream.write_all(response).is_ok(),
            Ok(false) => true,
            Err(failure) => {
                eprintln!("compare: the upstream was asked what it does not understand: {failure}");
                false
            }
        }
    }
}
