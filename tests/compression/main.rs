//! Responses that the gateway compresses, decompressed by libraries and by real clients.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod clients;
mod load;
mod responses;
mod streams;

use std::io::{self, BufRead, Read};

use common::{Client, Message, read_head};

/// All responses of one upstream are compressed.
const ALL: &str = "match: /**\nupstream: up\n";

/// Text of so many lines, all of which differ. It is several times as long as its compressed form.
fn text(lines: usize) -> String {
    let line = |number: usize| {
        let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("{{\"number\":{number},\"hash\":\"{hash:x}\"}}\n")
    };
    (0..lines).map(line).collect()
}

/// A 200 with this body and these lines of fields.
fn ok(lines: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{lines}\r\n{body}")
}

/// A reader of what this coding has compressed.
fn decoder<'r>(coding: &str, compressed: impl Read + 'r) -> Box<dyn Read + 'r> {
    match coding {
        "zstd" => Box::new(zstd::stream::read::Decoder::new(compressed).unwrap()),
        "br" => Box::new(brotli_decompressor::Decompressor::new(compressed, 1)),
        "gzip" => Box::new(flate2::read::GzDecoder::new(compressed)),
        _ => panic!("unknown coding {coding}"),
    }
}

fn decompress(coding: &str, compressed: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    decoder(coding, compressed)
        .read_to_end(&mut content)
        .unwrap();
    content
}

/// Reads the content of chunks, and fails if they end without the last one.
struct Chunks<R> {
    reader: R,
    /// Bytes of the current chunk that are still to come.
    remaining: usize,
    has_ended: bool,
    /// The trailers, once the content has ended.
    trailers: Vec<String>,
}

impl<R: BufRead> Chunks<R> {
    fn new(reader: R) -> Chunks<R> {
        Chunks {
            reader,
            remaining: 0,
            has_ended: false,
            trailers: Vec::new(),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.has_ended {
            return Ok(0);
        }
        if self.remaining == 0 {
            let size = self.line()?;
            self.remaining = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
        }
        if self.remaining == 0 {
            self.has_ended = true;
            while let line = self.line()?
                && !line.is_empty()
            {
                self.trailers.push(line);
            }
            return Ok(0);
        }
        let room = out.len().min(self.remaining);
        let count = self.reader.read(&mut out[..room])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.remaining -= count;
        if self.remaining == 0 {
            assert_eq!(self.line()?, "");
        }
        Ok(count)
    }
}

/// Sends a request with these lines of fields, and reads the response, whatever its framing is.
fn exchange(client: &mut Client, request_line: &str, lines: &str) -> Message {
    client.send(format!("{request_line}\r\nhost: t\r\n{lines}\r\n"));
    let mut message = client.head().unwrap();
    if request_line.starts_with("HEAD") {
        return message;
    }
    match message.field("transfer-encoding") {
        Some("chunked") => {
            let mut chunks = Chunks::new(&mut client.reader);
            chunks.read_to_end(&mut message.body).unwrap();
        }
        _ => common::read_body(&mut client.reader, &mut message).unwrap(),
    }
    message
}

/// Sends a GET that accepts these codings.
fn get(client: &mut Client, path: &str, accepted: &str) -> Message {
    let line = format!("accept-encoding: {accepted}\r\n");
    exchange(client, &format!("GET {path} HTTP/1.1"), &line)
}

/// Sends the head of a GET that accepts this coding, and reads the head of the response, which must have it.
fn begin(client: &mut Client, path: &str, coding: &str) {
    client.send(format!(
        "GET {path} HTTP/1.1\r\nhost: t\r\naccept-encoding: {coding}\r\n\r\n"
    ));
    let head = read_head(&mut client.reader).unwrap();
    assert_eq!(head.field("content-encoding"), Some(coding));
}
