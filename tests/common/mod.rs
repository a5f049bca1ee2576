//! The helpers that tests share: a gateway in this process, upstreams that follow a script, and a client that sees
//! every byte. Nothing here uses a fixed port or a host outside.
#![allow(dead_code)]

pub mod backend;
pub mod browser;
pub mod certificate;
pub mod child;
pub mod http2;
pub mod manager;
pub mod mangling;
pub mod raw;
pub mod redis;
pub mod system;
pub mod tls;
pub mod topology;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use tollgate::app;
use tollgate::base::clock::{Clock, Nanos};

/// The longest wait for anything that should happen at once.
pub const MAX_WAIT: Duration = Duration::from_secs(20);

/// Waits until a condition holds. Panics if it does not hold in time.
#[track_caller]
pub fn wait_until(what: &str, mut happens: impl FnMut() -> bool) {
    let step = Duration::from_millis(5);
    for _ in 0..MAX_WAIT.as_millis() / step.as_millis() {
        if happens() {
            return;
        }
        thread::park_timeout(step);
    }
    panic!("not so: {what}");
}

/// Waits until a condition holds, and checks that this took at most a second.
#[track_caller]
pub fn within_a_second(what: &str, happens: impl FnMut() -> bool) {
    let clock = Clock::system();
    let begin = clock.now();
    wait_until(what, happens);
    let took = clock.now().since(begin);
    println!("{what}: {took:?}");
    assert!(took <= Nanos::from_secs(1), "{what}: {took:?}");
}

/// Checks that a text contains all these parts.
#[track_caller]
pub fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` in:\n{text}");
    }
}

/// Raises this process's limit of descriptors as far as it may. Panics if that is less than `wanted`.
pub fn raise_descriptor_limit(wanted: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let enough = maximum.is_none_or(|maximum| maximum >= wanted);
    assert!(enough, "this test needs {wanted} descriptors: ulimit -Hn");
    let limits = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limits).unwrap();
}

/// A gate that an upstream waits at until the test opens it.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Opens the gate for good.
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Waits until the gate is open.
    pub fn pass(&self) {
        let shut = self.0.0.lock().unwrap();
        let waited = self.0.1.wait_timeout_while(shut, MAX_WAIT, |open| !*open);
        assert!(!waited.unwrap().1.timed_out(), "nobody opened the gate");
    }
}

/// A gateway in this process.
pub struct Gateway {
    pub app: app::Gateway,
    pub address: SocketAddr,
    pub folder: TempDir,
}

impl Gateway {
    /// Starts a gateway. `gateway` is the text of the gateway file without `version` and `listen`; each policy is a
    /// name and a text. `{upstream}` in these texts stands for the upstream's address.
    pub fn start(upstream: SocketAddr, gateway: &str, policies: &[(&str, &str)]) -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, upstream, gateway, policies);
        Gateway::start_in(folder, Clock::system())
    }

    /// Starts a gateway with the files of a folder and with this clock.
    pub fn start_in(folder: TempDir, clock: Clock) -> Gateway {
        let config = folder.path().join("tollgate.yaml");
        let (app, _) = app::Gateway::start(&config, clock).unwrap_or_else(|e| panic!("{e}"));
        let address = app.addresses()[0].tcp().unwrap();
        Gateway {
            app,
            address,
            folder,
        }
    }

    /// Opens a connection to the gateway.
    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Makes the gateway read its files again.
    pub fn reload(&self) -> Result<app::ReloadReport, app::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(self.app.reload())
    }
}

/// Writes a configuration into a folder. Texts are as in [`Gateway::start`].
pub fn write(folder: &TempDir, upstream: SocketAddr, gateway: &str, policies: &[(&str, &str)]) {
    let dir = folder.path().join("policies");
    std::fs::create_dir_all(&dir).unwrap();
    let mut text = String::from("version: 1\nlisten: 127.0.0.1:0\npolicies: policies\n");
    if !gateway.contains("workers:") {
        text.push_str("workers: 2\n");
    }
    if !gateway.contains("access_log:") {
        text.push_str("access_log: off\n");
    }
    if !gateway.contains("upstreams:") {
        text.push_str("upstreams: { up: [\"http://{upstream}\"] }\n");
    }
    text.push_str(gateway);
    let filled = |text: &str| text.replace("{upstream}", &upstream.to_string());
    std::fs::write(folder.path().join("tollgate.yaml"), filled(&text)).unwrap();
    for (name, text) in policies {
        let path = dir.join(format!("{name}.yaml"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, filled(text)).unwrap();
    }
}

/// A request or a response as it was on the wire. Names of fields are in lower case.
#[derive(Debug, Clone, Default)]
pub struct Message {
    pub start: String,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Message {
    pub fn status(&self) -> u16 {
        self.start
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0)
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Reads a start line and fields.
pub fn read_head(from: &mut impl BufRead) -> io::Result<Message> {
    let start = read_line(from)?;
    if start.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Message {
        start,
        fields: read_fields(from)?,
        ..Message::default()
    })
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let whole = line.strip_suffix("\r\n").map(str::to_owned);
    whole.ok_or_else(|| io::Error::other(format!("a line without its CRLF: {line:?}")))
}

fn read_fields(from: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            return Ok(fields);
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(io::Error::other(format!("no field: {line:?}")));
        };
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads a body as the fields of its head frame it.
pub fn read_body(from: &mut impl BufRead, message: &mut Message) -> io::Result<()> {
    if message.field("transfer-encoding").is_some() {
        loop {
            let size = usize::from_str_radix(read_line(from)?.trim(), 16);
            let size = size.map_err(|_| io::Error::other("bad chunk size"))?;
            if size == 0 {
                message.trailers = read_fields(from)?;
                return Ok(());
            }
            let mut chunk = vec![0; size];
            from.read_exact(&mut chunk)?;
            message.body.extend_from_slice(&chunk);
            read_line(from)?;
        }
    }
    let length = message
        .field("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    message.body = vec![0; length];
    from.read_exact(&mut message.body)
}

/// A client that sees every byte.
pub struct Client {
    pub reader: BufReader<TcpStream>,
    pub stream: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).unwrap())
    }

    /// Makes a client of a connection that is open.
    pub fn over(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        stream.set_write_timeout(Some(MAX_WAIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            reader: BufReader::new(stream.try_clone().unwrap()),
            stream,
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Reads the head of the next response, and skips interim responses.
    pub fn head(&mut self) -> io::Result<Message> {
        loop {
            let head = read_head(&mut self.reader)?;
            if head.status() != 100 {
                return Ok(head);
            }
        }
    }

    /// Reads the next response.
    pub fn answer(&mut self) -> Message {
        let mut message = self.head().expect("an answer");
        read_body(&mut self.reader, &mut message).expect("a whole body");
        message
    }

    /// Sends a GET, and reads the response.
    pub fn get(&mut self, path: &str) -> Message {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"));
        self.answer()
    }

    /// Reads until the other side closes the connection, and returns the bytes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => {
                panic!("the connection stays open: {error}")
            }
            _ => rest,
        }
    }
}

/// A connection of a client to an upstream, as the upstream sees it.
pub struct Served {
    pub reader: BufReader<TcpStream>,
    pub stream: TcpStream,
}

impl Served {
    /// Reads the next request with its body.
    pub fn request(&mut self) -> io::Result<Message> {
        let mut message = read_head(&mut self.reader)?;
        read_body(&mut self.reader, &mut message)?;
        Ok(message)
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }
}

/// An upstream that serves each connection by a script, on a thread of its own.
pub struct Upstream {
    pub address: SocketAddr,
    /// The requests that scripts report.
    pub seen: Receiver<Message>,
}

impl Upstream {
    /// Starts an upstream. The script gets each connection, and a function that reports a request to the test.
    pub fn scripted(
        script: impl Fn(Served, &dyn Fn(Message)) + Send + Sync + Clone + 'static,
    ) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (report, seen) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (script, report) = (script.clone(), report.clone());
                thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    let reader = BufReader::new(stream.try_clone().unwrap());
                    let report = move |message| {
                        let _ = report.send(message);
                    };
                    script(Served { reader, stream }, &report);
                });
            }
        });
        Upstream { address, seen }
    }

    /// Starts an upstream that sends what `answer` returns for each request.
    pub fn answering(
        answer: impl Fn(&Message) -> String + Send + Sync + Clone + 'static,
    ) -> Upstream {
        Upstream::scripted(move |mut served, report| {
            while let Ok(request) = served.request() {
                let text = answer(&request);
                report(request);
                served.send(text);
            }
        })
    }

    /// Starts an upstream that responds to every request with 200 and a short body.
    pub fn plain() -> Upstream {
        Upstream::answering(|_| ok("fine"))
    }

    /// Waits for the next request that a script reports.
    pub fn next(&self) -> Message {
        self.seen
            .recv_timeout(MAX_WAIT)
            .expect("a request at the upstream")
    }

    /// Takes all requests that scripts have reported so far.
    pub fn drain(&self) -> Vec<Message> {
        self.seen.try_iter().collect()
    }
}

/// The bytes of a 200 with this body.
pub fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The bytes of a response with this status and no body.
pub fn status(code: u16) -> String {
    format!("HTTP/1.1 {code} Status\r\ncontent-length: 0\r\n\r\n")
}
