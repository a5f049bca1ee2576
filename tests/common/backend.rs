//! A server that can be killed, started again at the same address, and made to hang.

use std::io::BufReader;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use super::{Message, Served, ok, status};

/// What a backend does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It responds with its name.
    Well,
    /// It responds with this status.
    Status(u16),
    /// It responds to checks for `/healthz` with 500, and to all other requests with its name.
    Ailing,
    /// It reads requests and does not respond until its mode changes.
    Hang,
    /// It responds to the first request of each connection. It reads a second one and closes the connection.
    OneEach,
}

struct Inner {
    name: String,
    address: SocketAddr,
    mode: Mutex<Mode>,
    changed: Condvar,
    stopped: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
    asked: AtomicUsize,
    checked: AtomicUsize,
}

/// A server that is killed when this value is dropped.
pub struct Backend {
    inner: Arc<Inner>,
    listening: Option<JoinHandle<()>>,
}

impl Backend {
    /// Starts so many backends that are well. Their names are `a`, `b` and so on.
    pub fn several(count: u8) -> Vec<Backend> {
        let names = (b'a'..).take(count.into());
        names
            .map(|name| Backend::start(&char::from(name).to_string()))
            .collect()
    }

    /// Starts a backend that is well.
    pub fn start(name: &str) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut backend = Backend {
            inner: Arc::new(Inner {
                name: name.into(),
                address: listener.local_addr().unwrap(),
                mode: Mutex::new(Mode::Well),
                changed: Condvar::new(),
                stopped: AtomicBool::new(false),
                open: Mutex::default(),
                asked: AtomicUsize::new(0),
                checked: AtomicUsize::new(0),
            }),
            listening: None,
        };
        backend.listen(listener);
        backend
    }

    fn listen(&mut self, listener: TcpListener) {
        let inner = self.inner.clone();
        inner.stopped.store(false, SeqCst);
        self.listening = Some(thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut open = inner.open.lock().unwrap();
                if inner.stopped.load(SeqCst) {
                    return;
                }
                open.push(stream.try_clone().unwrap());
                let inner = inner.clone();
                thread::spawn(move || serve(&inner, stream));
            }
        }));
    }

    /// Closes the listening socket and all connections at once.
    pub fn kill(&mut self) {
        let Some(listening) = self.listening.take() else {
            return;
        };
        self.inner.stopped.store(true, SeqCst);
        drop(TcpStream::connect(self.inner.address));
        listening.join().unwrap();
        for stream in self.inner.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.inner.changed.notify_all();
    }

    /// Listens again at the same address.
    pub fn revive(&mut self) {
        self.listen(TcpListener::bind(self.inner.address).unwrap());
    }

    /// Changes the mode, also for requests that hang.
    pub fn set(&self, mode: Mode) {
        *self.inner.mode.lock().unwrap() = mode;
        self.inner.changed.notify_all();
    }

    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The number of requests so far, without checks.
    pub fn asked(&self) -> usize {
        self.inner.asked.load(SeqCst)
    }

    /// The number of checks so far.
    pub fn checked(&self) -> usize {
        self.inner.checked.load(SeqCst)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(inner: &Inner, stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let reader = BufReader::new(stream.try_clone().unwrap());
    let mut served = Served { reader, stream };
    let mut first = true;
    while let Ok(request) = served.request() {
        let check = is_check(&request);
        let count = if check { &inner.checked } else { &inner.asked };
        count.fetch_add(1, SeqCst);
        let mode = inner.mode.lock().unwrap();
        let hangs = |mode: &mut Mode| *mode == Mode::Hang && !inner.stopped.load(SeqCst);
        let mode = inner.changed.wait_while(mode, hangs).unwrap();
        let answer = match *mode {
            Mode::Status(code) => status(code),
            Mode::Ailing if check => status(500),
            Mode::OneEach if !std::mem::take(&mut first) => break,
            _ => ok(&inner.name),
        };
        drop(mode);
        served.send(answer);
    }
    let _ = served.stream.shutdown(Shutdown::Both);
}

fn is_check(request: &Message) -> bool {
    request.start.starts_with("GET /healthz ")
}
