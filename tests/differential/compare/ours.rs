//! The gateway's upstream codec over a connection of the loopback interface, through what the proxy itself
//! calls: a pool, an exchange, a body.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http_body::Body;
use http_body_util::Empty;
use socket2::SockRef;
use tokio::runtime::{Builder, Runtime};
use tollgate::base::clock::{Clock, Nanos};
use tollgate::base::telemetry::{Metric, Registry, WorkerCounter};
use tollgate::http::head::{Head, ResponseHead};
use tollgate::http::http1::MessageError;
use tollgate::net::FlushQueue;
use tollgate::net::proxy_protocol::ConnectionAddresses;
use tollgate::upstream::head_reader::{HeadReader, LastHead, ParsedHead};
use tollgate::upstream::upstream_pool::PoolCounters;
use tollgate::upstream::{
    BalanceMethod, Bounds, CheckedOutConnection, ClientContext, Exchange, ExchangeError, Location,
    ReceivedHead, Server, Servers, Settings, UpstreamBody, UpstreamPool,
};

use super::{Asks, Case, End, Start, Verdict, lines, lines_of};

/// How long an answer that hyper has to its end may take; only a difference takes that long.
const PATIENCE: Duration = Duration::from_secs(2);

/// From piece to piece when the kernel may have been late.
const PAUSE: Duration = Duration::from_millis(20);

/// A pool and the server that it asks.
pub struct Ours {
    runtime: Runtime,
    pool: Rc<UpstreamPool>,
    flushes: Rc<FlushQueue>,
    listener: TcpListener,
    /// Counts the connections made.
    registry: Registry,
    /// A new connection, from both ends.
    spare: Option<(TcpStream, CheckedOutConnection)>,
}

impl Ours {
    pub fn start() -> Ours {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let clock = Clock::manual(Nanos::from_secs(100));
        let settings = settings(listener.local_addr().unwrap());
        let servers = Servers::new(settings, None, clock.now());
        let registry = Registry::default();
        let counters = PoolCounters {
            connections_made: registry.worker_counter(0, Metric::UpstreamConnects, &[]),
            retries: WorkerCounter::default(),
        };
        let flushes = Rc::new(FlushQueue::default());
        Ours {
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            pool: UpstreamPool::new(servers, clock, counters, 0, flushes.clone()),
            flushes,
            listener,
            registry,
            spare: None,
        }
    }

    /// What the codec makes of a case; `waits` when it may want the connection's end.
    pub fn read(&mut self, case: &Case, waits: bool, slowly: bool) -> Verdict {
        if self.spare.is_none() {
            self.check_out();
        }
        let (mut server, connection) = self.spare.take().unwrap();
        let mut client = Client::new(case.asks, connection, self.flushes.clone());
        let end = self.runtime.block_on(async {
            client.turn(slowly).await;
            for piece in &case.pieces {
                // It may have closed.
                let _ = server.write_all(piece);
                client.turn(slowly).await;
            }
            if !waits && !client.is_over() {
                let over = poll_fn(|cx| client.poll(cx));
                let patience = if slowly { PATIENCE } else { PAUSE };
                let _ = tokio::time::timeout(patience, over).await;
            }
            if client.is_over() {
                return None;
            }
            let _ = server.shutdown(Shutdown::Write);
            let over = poll_fn(|cx| client.poll(cx));
            let over = tokio::time::timeout(PATIENCE, over).await;
            assert!(
                over.is_ok(),
                "ours waits for a server that is gone: {case:?}"
            );
            Some(End::Closed)
        });
        let mut verdict = client.verdict;
        if !matches!(verdict.end, End::Refused(_)) {
            verdict.end = match end {
                // The pool sees that the server has closed; the head must have said so before.
                Some(closed) => {
                    if says_keep(case) {
                        End::Kept
                    } else {
                        closed
                    }
                }
                None => {
                    if self.check_out() {
                        End::Kept
                    } else {
                        End::Spent
                    }
                }
            };
        }
        drop(client.stage);
        drop(server);
        verdict
    }

    /// Whether there was a connection that had been kept. A new one is for the next case.
    fn check_out(&mut self) -> bool {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let ends = ConnectionAddresses {
            client: any,
            local: any,
        };
        let connected = || self.registry.total(Metric::UpstreamConnects, &[]);
        let before = connected();
        let client = ClientContext {
            balance_key: None,
            addresses: ends,
        };
        let connection = self.runtime.block_on(self.pool.checkout(client)).unwrap();
        if connected() == before {
            return true;
        }
        let (server, _) = self.listener.accept().unwrap();
        server.set_nodelay(true).unwrap();
        // No port waits for bytes that are late: there are not enough ports for that.
        SockRef::from(&server)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        self.spare = Some((server, connection));
        false
    }
}

fn settings(server: SocketAddr) -> Settings {
    Settings {
        name: "up".into(),
        servers: vec![Server {
            location: Location::Host(server.ip().to_string(), server.port()),
            tls: None,
            weight: 1,
        }],
        host: None,
        uses_http2: false,
        proxy_protocol: None,
        balance_method: BalanceMethod::default(),
        health_check: None,
        ejection: None,
        slow_start: None,
        bounds: Bounds::default(),
        load_metric: None,
        pressure: None,
        connect_timeout: PATIENCE,
        first_byte_timeout: PATIENCE,
        idle_timeout: PATIENCE,
        total_timeout: None,
    }
}

/// Whether the final head says that another answer may follow.
fn says_keep(case: &Case) -> bool {
    let mut reader = HeadReader {
        has_no_body: case.asks == Asks::Head,
        may_switch_protocols: case.asks == Asks::Upgrade,
        interim_count: 0,
        has_received: false,
    };
    let mut input = BytesMut::from(&case.bytes()[..]);
    loop {
        match reader.next_head(&mut input, &mut LastHead::default()) {
            Ok(Some(ParsedHead::Interim(_))) => {}
            Ok(Some(ParsedHead::Final(head))) => return head.keeps_alive,
            Ok(None) | Err(_) => return false,
        }
    }
}

type Nothing = Empty<Bytes>;

// There is one of it.
#[allow(clippy::large_enum_variant)]
enum Stage {
    Head(Exchange<Nothing>),
    Body(UpstreamBody<Nothing>),
    Over,
}

struct Client {
    stage: Stage,
    verdict: Verdict,
    flushes: Rc<FlushQueue>,
}

impl Client {
    fn new(asks: Asks, connection: CheckedOutConnection, flushes: Rc<FlushQueue>) -> Client {
        let mut head = Head {
            method: asks.method(),
            version: Version::HTTP_11,
            upgrade: (asks == Asks::Upgrade).then_some(Bytes::from_static(b"other")),
            ..Head::default()
        };
        head.fields.add("host", b"t");
        Client {
            stage: Stage::Head(Exchange::new(connection, &head, Empty::new())),
            verdict: Verdict::new(),
            flushes,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Takes what there is.
    async fn turn(&mut self, slowly: bool) {
        if slowly {
            tokio::time::sleep(PAUSE).await;
        }
        // The first has the kernel asked; a body tells of its mistake only when it is asked again.
        for _ in 0..2 {
            tokio::task::yield_now().await;
            let turn = |cx: &mut Context<'_>| {
                let polled = self.poll(cx);
                self.flushes.flush_all(cx);
                Poll::Ready(polled)
            };
            let _ = poll_fn(turn).await;
        }
    }

    /// Ready when it is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::Head(exchange) => match exchange.poll_head(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(ReceivedHead::Interim(head))) => {
                        self.verdict.interim.push(start(&head, false));
                    }
                    Poll::Ready(Ok(ReceivedHead::Final(head))) => self.begin(&head),
                    Poll::Ready(Err(failure)) => self.end(refused(&failure)),
                },
                Stage::Body(body) => match Pin::new(body).poll_frame(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => self.end(End::Spent),
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => self.verdict.body.extend_from_slice(&data),
                        Err(frame) => self.verdict.trailers = frame.trailers_ref().map(lines_of),
                    },
                    Poll::Ready(Some(Err(failure))) => self.end(refused(&failure)),
                },
                Stage::Over => return Poll::Ready(()),
            }
        }
    }

    fn begin(&mut self, head: &ResponseHead) {
        self.verdict.head = Some(start(head, true));
        let Stage::Head(exchange) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return;
        };
        self.stage = Stage::Body(exchange.into_body(Nanos::from_secs(100)));
    }

    fn end(&mut self, end: End) {
        self.verdict.end = end;
        self.stage = Stage::Over;
    }
}

fn start(head: &ResponseHead, is_final: bool) -> Start {
    let usual = head.status.canonical_reason().unwrap_or_default();
    let reason = head.reason.as_deref().unwrap_or(usual.as_bytes());
    let reason = if is_final { reason } else { b"" };
    Start {
        status: head.status,
        reason: String::from_utf8_lossy(reason).into_owned(),
        fields: lines(head.fields.iter()),
    }
}

fn refused(failure: &ExchangeError<Infallible>) -> End {
    End::Refused(match failure {
        ExchangeError::Request(_) => "the request broke off".into(),
        ExchangeError::Server(MessageError::Malformed(malformed)) => malformed.0.into(),
        ExchangeError::Server(cause) => cause.to_string(),
    })
}
