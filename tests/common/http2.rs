//! A client of HTTP/2 that keeps to the rules. `raw.rs` sends what breaks them.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{MAX_WAIT, Upstream};

/// Runs a test on one thread. Panics if it takes longer than the longest wait.
pub fn run<F: Future>(test: F) -> F::Output {
    run_for(MAX_WAIT, test)
}

/// Runs a test on one thread. Panics if it takes longer than `time`.
pub fn run_for<F: Future>(time: Duration, test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let limited = async { tokio::time::timeout(time, test).await };
    runtime.block_on(limited).expect("it takes too long")
}

/// One connection.
pub struct Client {
    pub send: SendRequest<Bytes>,
    /// The task that drives the connection. It ends with the connection, with the error if there was one.
    pub ends: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

/// A complete response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client::over(stream).await
    }

    /// Makes a client of a connection that is open.
    pub async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Client {
        let (send, connection) = h2::client::Builder::new()
            .initial_window_size(1 << 20)
            .initial_connection_window_size(1 << 20)
            .initial_max_send_streams(1000)
            .handshake(stream)
            .await
            .unwrap();
        let ends = tokio::spawn(connection);
        Client { send, ends }
    }

    /// Sends the head of a request. With `end` the request has no body.
    pub fn begin(
        &mut self,
        request: Request<()>,
        end: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        self.send.send_request(request, end).unwrap()
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        let (answer, _) = self.begin(get(path), true);
        whole(answer.await.unwrap()).await.unwrap()
    }
}

/// Waits until a request has come to an upstream, while other tasks of this thread go on.
pub async fn reached(upstream: &Upstream) {
    while upstream.drain().is_empty() {
        tokio::task::yield_now().await;
    }
}

/// A GET without a body.
pub fn get(path: &str) -> Request<()> {
    request("GET", path).body(()).unwrap()
}

pub fn request(method: &str, path: &str) -> http::request::Builder {
    let uri = format!("http://test{path}");
    Request::builder().method(method).uri(uri)
}

/// Reads the body and the trailers of a response.
pub async fn whole(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (parts, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await.transpose()? {
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(Answer {
        status: parts.status.as_u16(),
        fields: parts.headers,
        body: body.into(),
        trailers: stream.trailers().await?,
    })
}
