//! The PROXY protocol, versions 1 and 2: where a connection comes from, as the proxy before this one says
//! it. <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>

use std::io;
use std::net::SocketAddr;

use proxy_header::{Error, ParseConfig, ProxyHeader};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Longest header: the addresses of version 2 and what else a proxy may add to them.
const MAX_HEADER: usize = 4096;

/// Reads the header that a connection must begin with, and not a byte more. Nothing when the connection
/// is the proxy's own, such as a health check.
pub async fn read(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::new();
    loop {
        let before = header.len();
        header.resize(MAX_HEADER, 0);
        let seen = stream.peek(&mut header[before..]).await?;
        header.truncate(before + seen);
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (source, rest) = match parse(&header)? {
            Some((source, end)) => (Some(source), end - before),
            None => (None, seen),
        };
        // As long as it is not whole, all of it is the header.
        header.truncate(before + rest);
        stream.read_exact(&mut header[before..]).await?;
        if let Some(source) = source {
            return Ok(source);
        }
        if header.len() >= MAX_HEADER {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// What a header says and how long it is, when all of it is there.
///
/// # Errors
///
/// It is none.
pub fn parse(bytes: &[u8]) -> io::Result<Option<(Option<SocketAddr>, usize)>> {
    let config = ParseConfig {
        include_tlvs: false,
        ..ParseConfig::default()
    };
    match ProxyHeader::parse(bytes, config) {
        Ok((header, end)) => {
            let source = header.proxied_address().map(|address| address.source);
            Ok(Some((source, end)))
        }
        Err(Error::BufferTooShort) => Ok(None),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n";
    const V2: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb";

    #[test]
    fn headers() {
        let six = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n";
        let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
        let cases: [(&[u8], Option<&str>); 5] = [
            (V1, Some("192.0.2.1:56324")),
            (V2, Some("192.0.2.1:56324")),
            (six, Some("[2001:db8::1]:1")),
            (b"PROXY UNKNOWN\r\n", None),
            (local, None),
        ];
        for (text, source) in cases {
            let source = source.map(|text| text.parse().unwrap());
            for end in 0..text.len() {
                assert_eq!(parse(&text[..end]).unwrap(), None, "{end} of {text:?}");
            }
            let more = [text, b"GET / HTTP/1.1"].concat();
            assert_eq!(parse(&more).unwrap(), Some((source, text.len())));
        }
    }

    #[test]
    fn what_is_no_header() {
        let cases: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\n\r\n",
            b"PROXY TCP4 192.0.2.256 198.51.100.1 56324 443\r\n",
            b"PROXY TCP5 192.0.2.1 198.51.100.1 56324 443\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb",
            // A length too short for its addresses, however much follows.
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x02\xc0\0\x02\x01\xc6\x33\x64\x01\xdc\x04\x01\xbb",
        ];
        for text in cases {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
