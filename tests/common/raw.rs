//! Frames of HTTP/2 as bytes, for what no well-behaved client sends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::MAX_WAIT;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A frame's bytes: RFC 9113 section 4.1.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A header block, every field a literal without index: RFC 7541 section 6.2.2.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

/// A string, its length with a prefix of seven bits: RFC 7541 sections 5.1 and 5.2.
fn text(block: &mut Vec<u8>, text: &str) {
    if text.len() < 127 {
        block.push(text.len() as u8);
    } else {
        block.push(127);
        let mut left = text.len() - 127;
        while left >= 128 {
            block.push((left % 128) as u8 | 128);
            left /= 128;
        }
        block.push(left as u8);
    }
    block.extend_from_slice(text.as_bytes());
}

/// The header block of a GET with more fields.
pub fn get(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let usual = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "test"),
        (":path", path),
    ];
    block(&[&usual, more].concat())
}

/// Opens a connection with timeouts.
pub fn socket(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    stream.set_write_timeout(Some(MAX_WAIT)).unwrap();
    stream
}

/// A connection that sends any bytes.
pub struct Raw<S = TcpStream> {
    pub stream: S,
}

impl Raw {
    /// Opens a connection, and sends the preface and these settings.
    pub fn connect(address: SocketAddr, settings: &[(u16, u32)]) -> Raw {
        Raw::over(socket(address), settings)
    }
}

impl<S: Read + Write> Raw<S> {
    /// Sends the preface and these settings over an open connection.
    pub fn over(stream: S, settings: &[(u16, u32)]) -> Raw<S> {
        let mut raw = Raw { stream };
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        raw.send(&frame(SETTINGS, 0, 0, &payload));
        raw
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends bytes so many times, or until the other side has closed. Returns whether all of them could be sent.
    pub fn flood(&mut self, bytes: &[u8], times: usize) -> bool {
        (0..times).all(|_| self.stream.write_all(bytes).is_ok())
    }

    /// Reads the next frame. None at the end of the connection.
    pub fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        match self.stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the gateway says nothing")
            }
            Err(_) => return None,
        }
        let [a, b, c, kind, flags, s @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some(Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(s),
            payload,
        })
    }

    /// Reads frames up to the next one of this kind. None if the connection ends first.
    pub fn next(&mut self, kind: u8) -> Option<Frame> {
        loop {
            match self.frame() {
                Some(frame) if frame.kind == kind => return Some(frame),
                Some(_) => {}
                None => return None,
            }
        }
    }

    /// All frames up to the end.
    pub fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.frame()).collect()
    }
}

/// The error code of a RST_STREAM or GOAWAY frame: RFC 9113 section 7.
pub fn code(frame: &Frame) -> u32 {
    let at = if frame.kind == GOAWAY { 4 } else { 0 };
    u32::from_be_bytes(frame.payload[at..at + 4].try_into().unwrap())
}
