//! Certificates, policies and processes change again and again under clients of every kind, and none of them
//! notices: no request fails, no stream is cut off before the drain deadline.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use common::certificate::{Certificate, roots};
use common::child::{self, Server, line_with};
use common::http2::{get, whole};
use common::{Client, MAX_WAIT, Served, Upstream, ok, read_body, read_head, wait_until, write};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};

const TIMES: usize = 50;
const NAME: &str = "localhost";

/// Answers, and says everything back after a change of protocol.
fn upstream() -> Upstream {
    Upstream::scripted(|mut served: Served, _| {
        while let Ok(request) = served.request() {
            if request.field("upgrade").is_none() {
                served.send(ok("fine"));
                continue;
            }
            served.send("HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
            let mut piece = [0; 64];
            while let Ok(read @ 1..) = served.reader.read(&mut piece) {
                served.send(&piece[..read]);
            }
            return;
        }
    })
}

fn policy(number: usize) -> String {
    format!("match: /**\nupstream: up\nlimits: {{ n{number}: {{ key: ip, rate: 1000000/s }} }}\n")
}

struct Site {
    folder: TempDir,
    /// What the service manager hears.
    manager: UnixDatagram,
    certificates: Vec<Certificate>,
}

impl Site {
    fn new(upstream: &Upstream) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let gateway = "workers: 2\nadmin: off\n";
        write(&folder, upstream.address, gateway, &[("all", &policy(0))]);
        let file = folder.path().join("tollgate.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // Sockets are found again by their addresses, so these are not to be any.
        let (plain, secure) = (free(), free());
        let listen = format!(
            "listen:\n  - {}\n  - {{ address: {}, tls: {{ cert: own.pem, key: own.key }} }}\n",
            plain.local_addr().unwrap(),
            secure.local_addr().unwrap()
        );
        std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", &listen)).unwrap();
        let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        manager.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let certificates = (0..=TIMES)
            .map(|_| Certificate::of(&[NAME, "test"]))
            .collect();
        let site = Site {
            folder,
            manager,
            certificates,
        };
        site.show(0);
        site
    }

    /// Puts a certificate in place, the key first: what is read in between does not fit together and is refused.
    fn show(&self, number: usize) {
        let certificate = &self.certificates[number];
        replace(&self.folder.path().join("own.key"), &certificate.key);
        replace(&self.folder.path().join("own.pem"), &certificate.pem);
    }

    fn hears(&self) -> String {
        let mut text = [0; 256];
        let length = self.manager.recv(&mut text).expect("the manager is told");
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    }

    /// What clients of TLS bring.
    fn trust(&self, protocol: &[u8]) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let all: Vec<&Certificate> = self.certificates.iter().collect();
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(&all))
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// A process that is in the place of another.
struct Running(Pid);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// What the clients have done, and whether they are to go on.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    done: [AtomicUsize; KINDS],
}

const KINDS: usize = 5;

impl Load {
    fn done(&self, kind: usize) {
        self.done[kind].fetch_add(1, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn all(&self) -> [usize; KINDS] {
        self.done
            .each_ref()
            .map(|done| done.load(Ordering::Relaxed))
    }
}

#[test]
fn nobody_notices() {
    let upstream = upstream();
    let site = Site::new(&upstream);
    let mut command = child::command(site.folder.path(), &["run", "--config", "tollgate.yaml"]);
    command.env("NOTIFY_SOCKET", site.folder.path().join("notify"));
    let mut server = Server::of(&mut command, false);
    let line = line_with(&server.err, "listening on https://");
    let secure: SocketAddr = line.rsplit('/').next().unwrap().parse().unwrap();
    assert_eq!(site.hears(), "READY=1");
    let load = Arc::new(Load::default());
    let clients = clients(&site, &load, server.address, secure);
    let mut running: Option<Running> = None;
    for number in 1..=TIMES {
        let before = load.all();
        site.show(number);
        wait_until("the new certificate is shown", || {
            shown(&site, secure) == site.certificates[number].der
        });
        let file = site.folder.path().join("policies/all.yaml");
        replace(&file, &policy(number));
        let name = format!("\"n{number}\"");
        wait_until("the new policy holds", || {
            let answer = Client::connect(server.address).get("/");
            answer.field("ratelimit").unwrap().contains(&name)
        });
        let told = match &running {
            None => {
                server.signal(Signal::USR2);
                [site.hears(), site.hears()]
            }
            Some(Running(process)) => {
                kill_process(*process, Signal::USR2).unwrap();
                [site.hears(), site.hears()]
            }
        };
        assert_eq!(told[0], "READY=1");
        let process = told[1].strip_prefix("MAINPID=").expect(&told[1]).parse();
        let process = Pid::from_raw(process.unwrap()).unwrap();
        // The one before ends by itself.
        std::mem::forget(running.replace(Running(process)));
        wait_until("clients of every kind go on", || {
            let now = load.all();
            now.iter().zip(before).all(|(now, before)| *now > before)
        });
        assert!(
            clients.iter().all(|client| !client.is_finished()),
            "a client failed"
        );
    }
    load.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("a client failed");
    }
    println!(
        "{TIMES} times; done by each kind of client: {:?}",
        load.all()
    );
    assert_eq!(server.ended(), Some(0));
}

/// The certificate that a new connection is shown.
fn shown(site: &Site, address: SocketAddr) -> CertificateDer<'static> {
    let mut tls = tls(&site.trust(b"http/1.1"), address);
    tls.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(tls);
    read_head(&mut reader).unwrap();
    reader.get_ref().conn.peer_certificates().unwrap()[0].clone()
}

fn tls(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
) -> StreamOwned<ClientConnection, TcpStream> {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    StreamOwned::new(ClientConnection::new(config.clone(), name).unwrap(), socket)
}

/// What one kind of client does, again and again.
type Kind = Box<dyn Fn(&Load) + Send>;

fn clients(
    site: &Site,
    load: &Arc<Load>,
    plain: SocketAddr,
    secure: SocketAddr,
) -> Vec<thread::JoinHandle<()>> {
    let (one, two) = (site.trust(b"http/1.1"), site.trust(b"h2"));
    let kinds: [Kind; KINDS] = [
        Box::new(move |load| http1(load, 0, TcpStream::connect(plain).unwrap())),
        Box::new(move |load| http1(load, 1, tls(&one, secure))),
        Box::new(move |load| tunnel(load, 2, plain)),
        Box::new(move |load| {
            http2(load, 3, async {
                tokio::net::TcpStream::connect(plain).await.unwrap()
            })
        }),
        Box::new(move |load| {
            http2(load, 4, async {
                let stream = tokio::net::TcpStream::connect(secure).await.unwrap();
                let name = ServerName::try_from(NAME).unwrap();
                let connector = tokio_rustls::TlsConnector::from(two.clone());
                connector.connect(name, stream).await.unwrap()
            })
        }),
    ];
    let threads = kinds.into_iter().map(|kind| {
        let load = load.clone();
        thread::spawn(move || {
            while load.goes_on() {
                kind(&load);
            }
        })
    });
    threads.collect()
}

/// Requests over one connection of HTTP/1.1, until the gateway says that it ends.
fn http1(load: &Load, kind: usize, stream: impl Read + Write) {
    let mut stream = BufReader::new(stream);
    while load.goes_on() {
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.get_mut().write_all(request).unwrap();
        let mut answer = read_head(&mut stream).expect("an answer");
        read_body(&mut stream, &mut answer).expect("a whole answer");
        assert_eq!(answer.status(), 200);
        load.done(kind);
        if answer.field("connection") == Some("close") {
            return;
        }
    }
}

/// A stream of another protocol that takes a while.
fn tunnel(load: &Load, kind: usize, address: SocketAddr) {
    let mut client = Client::connect(address);
    client
        .send("GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 101);
    for number in 0..20_u32 {
        client.send(number.to_be_bytes());
        let mut back = [0; 4];
        client
            .reader
            .read_exact(&mut back)
            .expect("the tunnel goes on");
        assert_eq!(u32::from_be_bytes(back), number);
        thread::sleep(std::time::Duration::from_millis(5));
    }
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"");
    load.done(kind);
}

/// Requests over one connection of HTTP/2, until the gateway says that it ends. A request that comes after its
/// GOAWAY is one that nobody has looked at.
fn http2<S>(load: &Load, kind: usize, connect: impl Future<Output = S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    common::http2::run_for(MAX_WAIT * 10, async {
        let stream = connect.await;
        let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
        let ends = tokio::spawn(connection);
        while load.goes_on() && !ends.is_finished() {
            if std::future::poll_fn(|cx| send.poll_ready(cx))
                .await
                .is_err()
            {
                break;
            }
            let Ok((answer, _)) = send.send_request(get("/"), true) else {
                break;
            };
            match answer.await {
                Ok(answer) => {
                    let answer = whole(answer).await.expect("a whole answer");
                    assert_eq!((answer.status, &answer.body[..]), (200, &b"fine"[..]));
                    load.done(kind);
                }
                Err(error) => {
                    assert!(error.is_go_away() && error.is_remote(), "{error}");
                    break;
                }
            }
        }
        drop(send);
        ends.await
            .unwrap()
            .expect("the connection ends as it should");
    });
}
