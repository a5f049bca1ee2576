//! Requests over either version of HTTP, so that one test runs over both.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio::runtime::Runtime;

use crate::Site;
use crate::common::{Client, Message, http2};

#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];
}

/// Runs a test over both versions, each with a site of its own.
pub fn over_both(start: impl Fn() -> Site, test: impl Fn(&Site)) {
    for protocol in Protocol::BOTH {
        println!("over {protocol:?}");
        test(&Site {
            protocol,
            ..start()
        });
    }
}

/// A request without the fields that say where it is for and how long its body is.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    pub method: &'r str,
    pub path: &'r str,
    /// Each ended by CRLF.
    pub fields: &'r str,
    pub body: Option<&'r str>,
}

impl<'r> Request<'r> {
    pub fn get(path: &'r str, fields: &'r str) -> Request<'r> {
        Request {
            method: "GET",
            path,
            fields,
            body: None,
        }
    }
}

/// A connection that serves one request after another.
pub enum Connection {
    Http1(Client),
    Http2(Runtime, http2::Client),
}

impl Connection {
    pub fn open(address: SocketAddr, protocol: Protocol) -> Connection {
        match protocol {
            Protocol::Http1 => Connection::Http1(Client::connect(address)),
            Protocol::Http2 => {
                let runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = { runtime }.enable_all().build().unwrap();
                let client = runtime.block_on(http2::Client::connect(address));
                Connection::Http2(runtime, client)
            }
        }
    }

    pub fn exchange(&mut self, request: Request<'_>) -> Message {
        match self {
            Connection::Http1(client) => {
                client.send(in_http1(request));
                client.answer()
            }
            Connection::Http2(runtime, client) => runtime.block_on(exchange(client, request)),
        }
    }
}

fn in_http1(request: Request<'_>) -> String {
    let Request {
        method,
        path,
        fields,
        body,
    } = request;
    let length = body.map(|body| format!("content-length: {}\r\n", body.len()));
    let (length, body) = (length.unwrap_or_default(), body.unwrap_or_default());
    format!("{method} {path} HTTP/1.1\r\nhost: t\r\n{fields}{length}\r\n{body}")
}

async fn exchange(client: &mut http2::Client, request: Request<'_>) -> Message {
    let mut head = http2::request(request.method, request.path);
    for line in request.fields.split_terminator("\r\n") {
        let (name, value) = line.split_once(':').unwrap();
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        head = head.header(
            name,
            HeaderValue::from_bytes(value.trim().as_bytes()).unwrap(),
        );
    }
    let (response, mut stream) = client.begin(head.body(()).unwrap(), request.body.is_none());
    if let Some(body) = request.body {
        stream
            .send_data(Bytes::copy_from_slice(body.as_bytes()), true)
            .unwrap();
    }
    let response = http2::whole(response.await.unwrap()).await.unwrap();
    let fields = response.fields.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        (name.as_str().to_owned(), value.into_owned())
    });
    Message {
        start: format!("HTTP/2 {}", response.status),
        fields: fields.collect(),
        body: response.body.to_vec(),
        trailers: Vec::new(),
    }
}
