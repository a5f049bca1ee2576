//! The cases of the comparison: what the client sends, what the upstream responds, and which status the client must
//! see.

use std::fmt::Write as _;

/// The length of a long body.
const LARGE_BODY_BYTES: usize = 10 * 1024;

/// The length of a short body.
const SMALL_BODY_BYTES: usize = 128;

/// One kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Limits apply and admit: every request reaches the upstream.
    Proxied,
    /// As `Proxied`, with responses of 10 KB.
    Large,
    /// The limit is used up: every request is refused.
    Refused,
    /// Every request has a body of 10 KB.
    Bodies,
    /// Every response has a body of 10 KB in chunks.
    Chunked,
    /// Requests of many clients, whose addresses a proxy in front forwards.
    Addresses,
    /// A new connection for every request.
    Short,
}

impl Case {
    /// In the order of the report.
    pub const ALL: [Case; 7] = [
        Case::Proxied,
        Case::Large,
        Case::Refused,
        Case::Bodies,
        Case::Chunked,
        Case::Addresses,
        Case::Short,
    ];

    /// The word on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Case::Proxied => "proxied",
            Case::Large => "large",
            Case::Refused => "refused",
            Case::Bodies => "bodies",
            Case::Chunked => "chunked",
            Case::Addresses => "addresses",
            Case::Short => "short",
        }
    }

    /// The expected status of every response.
    pub fn status(self) -> u16 {
        match self {
            Case::Refused => 429,
            _ => 200,
        }
    }

    /// The most responses within so many seconds that may have another status: the slowest limits of nginx and Envoy
    /// admit one request a minute.
    pub fn max_strays(self, seconds: u64) -> u64 {
        match self {
            Case::Refused => 1 + seconds / 60,
            _ => 0,
        }
    }

    /// The requests of the client, with 5 header fields, one of them a credential. Only the case of many addresses has
    /// requests that differ.
    pub fn requests(self, addresses: u64) -> Requests {
        let method = match self {
            Case::Bodies => "POST",
            _ => "GET",
        };
        let mut text = format!(
            "{method} /api/items/42 HTTP/1.1\r\n\
             host: bench.example\r\n\
             user-agent: compare/1\r\n\
             accept: application/json\r\n\
             accept-encoding: gzip\r\n\
             authorization: Bearer 5d41402abc4b2a76b9719d911017c592\r\n"
        );
        let mut address = None;
        match self {
            Case::Bodies => {
                let _ = write!(
                    text,
                    "content-type: application/json\r\ncontent-length: {LARGE_BODY_BYTES}\r\n"
                );
            }
            Case::Addresses => {
                text.push_str("x-forwarded-for: ");
                address = Some(text.len());
                text.push_str("10.100.100.100\r\n");
            }
            Case::Short => text.push_str("connection: close\r\n"),
            _ => {}
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        if self == Case::Bodies {
            bytes.resize(bytes.len() + LARGE_BODY_BYTES, b'x');
        }
        Requests {
            bytes,
            address,
            last: 0,
            addresses,
        }
    }

    /// The response of the upstream, with 7 header fields.
    pub fn response(self) -> Vec<u8> {
        const HEAD: &str = "HTTP/1.1 200 OK\r\n\
            server: canned\r\n\
            date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
            content-type: application/json\r\n\
            cache-control: no-store\r\n\
            etag: \"5f3b7c9a\"\r\n\
            x-request-id: 0123456789abcdef\r\n";
        let length = match self {
            Case::Large | Case::Chunked => LARGE_BODY_BYTES,
            _ => SMALL_BODY_BYTES,
        };
        let body = "x".repeat(length);
        if self != Case::Chunked {
            return format!("{HEAD}content-length: {length}\r\n\r\n{body}").into_bytes();
        }
        let mut text = format!("{HEAD}transfer-encoding: chunked\r\n\r\n");
        for chunk in body.as_bytes().chunks(1024) {
            let _ = write!(
                text,
                "{:x}\r\n{}\r\n",
                chunk.len(),
                String::from_utf8_lossy(chunk)
            );
        }
        text.push_str("0\r\n\r\n");
        text.into_bytes()
    }
}

/// An endless sequence of requests, as bytes.
pub struct Requests {
    bytes: Vec<u8>,
    /// The offset of the client's address in the bytes.
    address: Option<usize>,
    last: u64,
    addresses: u64,
}

impl Requests {
    /// The next request. All addresses come before one comes again, and neighbours never follow each other.
    pub fn next(&mut self) -> &[u8] {
        // The stride has no factor in common with a power of ten.
        const STRIDE: u64 = 7_654_321;
        if let Some(at) = self.address {
            self.last = (self.last + STRIDE) % self.addresses;
            write_address(self.last, &mut self.bytes[at..]);
        }
        &self.bytes
    }
}

/// Writes the decimal digits of a number below ten million into `10.100.100.100`, the last digit last. The text has the
/// same length for every number.
fn write_address(mut number: u64, text: &mut [u8]) {
    for index in [13, 12, 9, 8, 5, 4, 1] {
        text[index] = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
