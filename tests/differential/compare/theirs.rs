//! hyper's client over a connection in memory, polled by hand.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::ext::ReasonPhrase;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::upgrade::{OnUpgrade, Upgraded};

use super::{Asks, Case, End, Start, Verdict, lines_of, passed_on};

/// Rounds without progress after which there will be none.
const STILL: usize = 4;

/// What the server does; both ends share it.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    /// What it will say, the last piece first.
    pieces: Vec<Vec<u8>>,
    /// It has been asked.
    asked: bool,
    closed: bool,
}

impl Read for Server {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut script = self.0.lock().unwrap();
        match script.pieces.pop() {
            Some(piece) if script.asked => {
                let (here, later) = piece.split_at(piece.len().min(buf.remaining()));
                buf.put_slice(here);
                if !later.is_empty() {
                    script.pieces.push(later.to_vec());
                }
            }
            Some(piece) => {
                script.pieces.push(piece);
                return Poll::Pending;
            }
            None if script.closed => {}
            None => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Server {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

type Answer = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>>>>;
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>>>>;

/// What is waited for.
enum Stage {
    Head(Answer),
    Body(Incoming),
    /// The other protocol.
    Switch(OnUpgrade),
    Tunnel(Upgraded),
    Over,
}

struct Client {
    sender: SendRequest<Empty<Bytes>>,
    driver: Option<Driver>,
    stage: Stage,
    verdict: Verdict,
}

/// What hyper makes of a case.
pub fn read(case: &Case) -> Verdict {
    let server = Server::default();
    server.0.lock().unwrap().pieces = case.pieces.iter().rev().cloned().collect();
    let interim = Arc::new(Mutex::new(Vec::new()));
    let mut client = Client::new(server.clone(), request(case.asks, interim.clone()));
    client.run();
    if client.is_over() {
        if !matches!(client.verdict.end, End::Refused(_)) {
            let mut cx = Context::from_waker(Waker::noop());
            client.verdict.end = match client.sender.poll_ready(&mut cx) {
                Poll::Ready(Ok(())) => End::Kept,
                _ => End::Spent,
            };
        }
    } else {
        server.0.lock().unwrap().closed = true;
        client.run();
        assert!(
            client.is_over(),
            "hyper waits for a server that is gone: {case:?}"
        );
    }
    let mut verdict = client.verdict;
    verdict.interim = std::mem::take(&mut *interim.lock().unwrap());
    verdict
}

fn request(asks: Asks, interim: Arc<Mutex<Vec<Start>>>) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.method_mut() = asks.method();
    let fields = request.headers_mut();
    fields.insert("host", http::HeaderValue::from_static("t"));
    if asks == Asks::Upgrade {
        fields.insert("connection", http::HeaderValue::from_static("upgrade"));
        fields.insert("upgrade", http::HeaderValue::from_static("other"));
    }
    hyper::ext::on_informational(&mut request, move |answer| {
        interim.lock().unwrap().push(Start {
            status: answer.status(),
            reason: String::new(),
            fields: passed_on(answer.status(), answer.headers()),
        });
    });
    request
}

impl Client {
    fn new(server: Server, request: Request<Empty<Bytes>>) -> Client {
        let mut cx = Context::from_waker(Waker::noop());
        let shaken = pin!(Builder::new().handshake(server)).poll(&mut cx);
        let Poll::Ready(Ok((mut sender, connection))) = shaken else {
            panic!("hyper does not begin");
        };
        let connection: Connection<Server, Empty<Bytes>> = connection;
        Client {
            stage: Stage::Head(Box::pin(sender.send_request(request))),
            sender,
            driver: Some(Box::pin(connection.with_upgrades())),
            verdict: Verdict::new(),
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Until nothing moves.
    fn run(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut still = 0;
        while still < STILL {
            still += 1;
            if let Some(driver) = &mut self.driver
                && driver.as_mut().poll(&mut cx).is_ready()
            {
                self.driver = None;
                still = 0;
            }
            while self.step(&mut cx) {
                still = 0;
            }
        }
    }

    /// Whether the answer went on.
    fn step(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.stage {
            Stage::Head(answer) => match answer.as_mut().poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(answer)) => self.begin(answer),
                Poll::Ready(Err(error)) => self.end(End::Refused(format!("{error:?}"))),
            },
            Stage::Body(body) => match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return false,
                // The end of the connection is the server's doing when it comes to that.
                Poll::Ready(None) => self.end(End::Closed),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.verdict.body.extend_from_slice(&data),
                    Err(frame) => self.verdict.trailers = frame.trailers_ref().map(lines_of),
                },
                Poll::Ready(Some(Err(error))) => self.end(End::Refused(format!("{error:?}"))),
            },
            Stage::Switch(upgrade) => match Pin::new(upgrade).poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(upgraded)) => self.stage = Stage::Tunnel(upgraded),
                Poll::Ready(Err(error)) => self.end(End::Refused(format!("{error:?}"))),
            },
            Stage::Tunnel(tunnel) => {
                let mut room = [0; 4096];
                let mut buf = hyper::rt::ReadBuf::new(&mut room);
                match Pin::new(tunnel).poll_read(cx, buf.unfilled()) {
                    Poll::Pending => return false,
                    Poll::Ready(Ok(())) if buf.filled().is_empty() => self.end(End::Closed),
                    Poll::Ready(Ok(())) => self.verdict.body.extend_from_slice(buf.filled()),
                    Poll::Ready(Err(error)) => self.end(End::Refused(error.to_string())),
                }
            }
            Stage::Over => return false,
        }
        true
    }

    fn begin(&mut self, mut answer: Response<Incoming>) {
        let usual = answer.status().canonical_reason().unwrap_or_default();
        let reason = answer.extensions().get::<ReasonPhrase>();
        let reason = reason.map_or(usual.as_bytes(), ReasonPhrase::as_bytes);
        self.verdict.head = Some(Start {
            status: answer.status(),
            reason: String::from_utf8_lossy(reason).into_owned(),
            fields: passed_on(answer.status(), answer.headers()),
        });
        self.stage = if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            Stage::Switch(hyper::upgrade::on(&mut answer))
        } else {
            Stage::Body(answer.into_body())
        };
    }

    fn end(&mut self, end: End) {
        self.verdict.end = end;
        self.stage = Stage::Over;
    }
}
