//! A server of HTTP/2 that does what a test wants.

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Request, Response};
use tokio::net::TcpListener;

use crate::common::{Gateway, MAX_WAIT};

/// A request on its stream.
pub struct Asked {
    /// Which connection of the server it came over.
    pub connection: usize,
    pub request: Request<RecvStream>,
    pub respond: SendResponse<Bytes>,
    pub report: Sender<String>,
}

impl Asked {
    /// The whole body and the trailers.
    pub async fn body(&mut self) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
        let stream = self.request.body_mut();
        let mut body = Vec::new();
        while let Some(data) = stream.data().await.transpose()? {
            stream.flow_control().release_capacity(data.len())?;
            body.extend_from_slice(&data);
        }
        Ok((body, stream.trailers().await?))
    }

    pub fn path(&self) -> &str {
        self.request.uri().path()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let value = self.request.headers().get(name);
        value.map(|value| value.to_str().unwrap())
    }

    pub fn tell(&self, what: impl Into<String>) {
        let _ = self.report.send(what.into());
    }

    /// Answers 200 with a body.
    pub fn ok(mut self, body: &str) {
        let mut out = self
            .respond
            .send_response(Response::new(()), false)
            .unwrap();
        out.send_data(body.to_owned().into(), true).unwrap();
    }
}

/// The server and what its requests reported.
pub struct Server {
    pub address: SocketAddr,
    pub reports: Receiver<String>,
}

impl Server {
    /// Answers each request by `script`.
    pub fn start<F: Future<Output = ()> + 'static>(
        script: impl Fn(Asked) -> F + Send + 'static,
    ) -> Server {
        Server::with(|_| {}, script)
    }

    /// The same with settings of its own.
    pub fn with<F: Future<Output = ()> + 'static>(
        settings: impl Fn(&mut Builder) + Send + 'static,
        script: impl Fn(Asked) -> F + Send + 'static,
    ) -> Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (report, reports) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, async move {
                let listener = TcpListener::from_std(listener).unwrap();
                let script = Rc::new(script);
                for number in 0.. {
                    let (stream, _) = listener.accept().await.unwrap();
                    let mut builder = Builder::new();
                    settings(&mut builder);
                    let (script, report) = (script.clone(), report.clone());
                    tokio::task::spawn_local(async move {
                        let Ok(mut connection) = builder.handshake(stream).await else {
                            return;
                        };
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            let asked = Asked {
                                connection: number,
                                request,
                                respond,
                                report: report.clone(),
                            };
                            let leaves = asked.path() == "/goaway";
                            tokio::task::spawn_local(script(asked));
                            if leaves {
                                connection.graceful_shutdown();
                            }
                        }
                    });
                }
            });
        });
        Server { address, reports }
    }

    pub fn next(&self) -> String {
        self.reports.recv_timeout(MAX_WAIT).expect("a report")
    }

    /// A gateway in front of it.
    pub fn gateway(&self) -> Gateway {
        self.gateway_with("")
    }

    /// The same with more settings.
    pub fn gateway_with(&self, more: &str) -> Gateway {
        let upstreams = "upstreams: { up: { servers: [\"http://{upstream}\"], protocol: h2 } }\n";
        let gateway = format!("workers: 1\n{upstreams}{more}");
        let policy = "match: /**\nupstream: up\n";
        Gateway::start(self.address, &gateway, &[("all", policy)])
    }
}
