//! The server behind the proxies: one thread that answers every request with the same bytes. It
//! does no more than that, so that the proxy is what limits the rate.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{Timespec, epoll};

/// 7 header fields.
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\
    server: canned\r\n\
    date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
    content-type: application/json\r\n\
    content-length: 128\r\n\
    cache-control: no-store\r\n\
    etag: \"5f3b7c9a\"\r\n\
    x-request-id: 0123456789abcdef\r\n\r\n";

const BODY: &[u8] = b"\
    {\"items\":[{\"id\":1,\"name\":\"first\"},{\"id\":2,\"name\":\"second\"},{\"id\":3,\"name\":\"third\"}],\
    \"next\":\"/api/items?after=3\",\"total\":1234567}";

const _: () = assert!(BODY.len() == 128, "the head says so");

const LISTENER: u64 = u64::MAX;

/// The running server; it stops when this is dropped.
pub struct Upstream {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Listens on a free port; the thread stays on the caller's core.
    pub fn start() -> io::Result<Upstream> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut server = Server::new(listener, Arc::clone(&stop))?;
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

    /// Where it listens.
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
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    answer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    head: Head,
}

impl Server {
    fn new(listener: TcpListener, stop: Arc<AtomicBool>) -> io::Result<Server> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let token = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, token, epoll::EventFlags::IN)?;
        let answer = [HEAD, BODY].concat();
        Ok(Server {
            listener,
            stop,
            epoll,
            connections: Vec::new(),
            answer,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let mut events = Vec::with_capacity(256);
        while !self.stop.load(Ordering::Relaxed) {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&patience),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(failure) => return Err(failure.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    index => {
                        let place = &mut self.connections[index as usize];
                        // Closing the socket takes it out of the epoll set too.
                        if !place
                            .as_mut()
                            .is_some_and(|connection| connection.serve(&self.answer))
                        {
                            *place = None;
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
            let token = epoll::EventData::new_u64(self.connections.len() as u64);
            epoll::add(&self.epoll, &stream, token, epoll::EventFlags::IN)?;
            self.connections.push(Some(Connection {
                stream,
                head: Head::default(),
            }));
        }
    }
}

impl Connection {
    /// Answers what has arrived; false when the connection is over.
    fn serve(&mut self, answer: &[u8]) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(length) => (0..self.head.ends(&buffer[..length]))
                .all(|_| self.stream.write_all(answer).is_ok()),
            Err(e) => e.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// How much of the empty line that ends a request's head has been seen. Requests have no body.
#[derive(Default)]
struct Head {
    matched: usize,
}

impl Head {
    /// How many heads end in `bytes`.
    fn ends(&mut self, bytes: &[u8]) -> usize {
        const END: &[u8] = b"\r\n\r\n";
        let mut ends = 0;
        for &byte in bytes {
            self.matched = match byte {
                _ if byte == END[self.matched] => self.matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            if self.matched == END.len() {
                (self.matched, ends) = (0, ends + 1);
            }
        }
        ends
    }
}
