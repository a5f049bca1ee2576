//! Clients that do not wait for each other: each request goes when it is due, over a connection of a pool
//! that grows as needed, and its time counts from then on.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tollgate::base::clock::{Clock, Nanos};

use crate::record::Span;
use crate::traffic::{Kind, Request};

/// How long clients wait for an answer before they close the connection.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// From ping to ping, and how long one takes at most where nothing else has the processors: a request of the
/// upstream takes as long.
const PING: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(20);

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Seconds from the beginning to when it was due.
    pub at: f64,
    pub kind: Kind,
    pub user: usize,
    /// Nothing where the client has given up.
    pub status: Option<u16>,
    /// Milliseconds.
    pub took: f64,
}

/// All of them, on one thread.
pub struct Clients {
    address: SocketAddr,
    clock: Clock,
    begin: Nanos,
    idle: RefCell<Vec<TcpStream>>,
    asking: Cell<usize>,
    samples: RefCell<Vec<Sample>>,
}

impl Clients {
    pub fn new(address: SocketAddr) -> Rc<Clients> {
        let clock = Clock::system();
        Rc::new(Clients {
            address,
            begin: clock.now(),
            clock,
            idle: RefCell::default(),
            asking: Cell::new(0),
            samples: RefCell::default(),
        })
    }

    /// Seconds since the beginning.
    pub fn now(&self) -> f64 {
        self.seconds(self.clock.now())
    }

    fn seconds(&self, at: Nanos) -> f64 {
        Duration::from(at.since(self.begin)).as_secs_f64()
    }

    /// Sends each request when it is due, until `stop`, for at most so many seconds.
    pub async fn ask(self: &Rc<Self>, requests: &[Request], most: f64, stop: impl Fn() -> bool) {
        let begin = self.clock.now();
        for request in requests {
            let due = begin.after(request.at.into());
            self.sleep_until(due).await;
            if stop() {
                return;
            }
            self.asking.set(self.asking.get() + 1);
            spawn_local(self.clone().one(*request, due));
        }
        self.sleep_until(begin.after(Duration::from_secs_f64(most).into()))
            .await;
    }

    async fn sleep_until(&self, due: Nanos) {
        let left = due.since(self.clock.now());
        if left > Nanos::ZERO {
            tokio::time::sleep(left.into()).await;
        }
    }

    /// Asks again and again what the gateway answers by itself. When and for how many seconds that took so
    /// long that the machine stood still for some of the three threads. The connection is kept, because clients of a
    /// gateway without limits may have used up the process' file descriptors.
    pub async fn pauses(&self, found: &RefCell<Vec<(f64, f64)>>) {
        let mut stream = self.connect().await.unwrap();
        loop {
            let due = self.clock.now().after(PING.into());
            self.sleep_until(due).await;
            // No route is for it.
            let ping = exchange_on(&mut stream, "GET /ping HTTP/1.1\r\nhost: test\r\n\r\n");
            assert_eq!(ping.await.unwrap(), 404);
            let took = self.clock.now().since(due);
            if took > PAUSE.into() {
                found
                    .borrow_mut()
                    .push((self.seconds(due), Duration::from(took).as_secs_f64()));
            }
        }
    }

    /// Requests of an elastic limit's user that were due in the span and are served by now.
    pub fn served(&self, user: usize, span: Span) -> f64 {
        let samples = self.samples.borrow();
        let theirs = |sample: &&Sample| sample.kind == Kind::Elastic && sample.user == user;
        let served = samples.iter().filter(theirs);
        let served = served.filter(|sample| sample.status == Some(200) && span.has(sample.at));
        served.count() as f64
    }

    /// Waits until nobody asks any more. What became of all requests.
    pub async fn finish(&self) -> Vec<Sample> {
        while self.asking.get() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.samples.take()
    }

    async fn one(self: Rc<Self>, request: Request, due: Nanos) {
        let late = Duration::from(self.clock.now().since(due));
        let asking = self.exchange(request.text());
        let answer = tokio::time::timeout(PATIENCE.saturating_sub(late), asking).await;
        let took = Duration::from(self.clock.now().since(due));
        self.samples.borrow_mut().push(Sample {
            at: self.seconds(due),
            kind: request.kind,
            user: request.user,
            status: answer.ok().and_then(Result::ok),
            took: took.as_secs_f64() * 1_000.0,
        });
        self.asking.set(self.asking.get() - 1);
    }

    async fn exchange(&self, text: String) -> io::Result<u16> {
        let idle = self.idle.borrow_mut().pop();
        let mut stream = match idle {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        let status = exchange_on(&mut stream, &text).await?;
        self.idle.borrow_mut().push(stream);
        Ok(status)
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Sends a request, and returns the status of its response.
async fn exchange_on(stream: &mut TcpStream, text: &str) -> io::Result<u16> {
    stream.write_all(text.as_bytes()).await?;
    answer(stream).await
}

/// Reads an answer, and says its status.
async fn answer(stream: &mut TcpStream) -> io::Result<u16> {
    let mut heard = Vec::with_capacity(1_024);
    let head = loop {
        if stream.read_buf(&mut heard).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = heard.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&heard[..head]).to_ascii_lowercase();
    assert!(!text.contains("connection: close"), "{text}");
    let status = text.get(9..12).and_then(|code| code.parse().ok());
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let whole = head + length.unwrap_or(0);
    while heard.len() < whole {
        if stream.read_buf(&mut heard).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    status.ok_or_else(|| io::Error::other(text))
}
