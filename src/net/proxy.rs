//! The PROXY protocol, versions 1 and 2: where a connection comes from, as the proxy before this one says
//! it. <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>

use std::io;
use std::net::{IpAddr, SocketAddr};

use proxy_header::{Error, ParseConfig, ProxiedAddress, ProxyHeader};
use tokio::io::AsyncReadExt;

use super::Stream;

/// Longest header: the addresses of version 2 and what else a proxy may add to them.
const MAX_HEADER: usize = 4096;

/// Reads the header that a connection must begin with, and not a byte more. Nothing when the connection
/// is the proxy's own, such as a health check.
pub async fn read(stream: &mut Stream) -> io::Result<Option<Ends>> {
    let mut header = Vec::new();
    loop {
        let before = header.len();
        header.resize(MAX_HEADER, 0);
        let seen = stream.peek(&mut header[before..]).await?;
        header.truncate(before + seen);
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (ends, rest) = match parse(&header)? {
            Some((ends, end)) => (Some(ends), end - before),
            None => (None, seen),
        };
        // As long as it is not whole, all of it is the header.
        header.truncate(before + rest);
        stream.read_exact(&mut header[before..]).await?;
        if let Some(ends) = ends {
            return Ok(ends);
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
pub fn parse(bytes: &[u8]) -> io::Result<Option<(Option<Ends>, usize)>> {
    let config = ParseConfig {
        include_tlvs: false,
        ..ParseConfig::default()
    };
    match ProxyHeader::parse(bytes, config) {
        Ok((header, end)) => {
            let ends = header.proxied_address().map(|address| Ends {
                client: address.source,
                local: address.destination,
            });
            Ok(Some((ends, end)))
        }
        Err(Error::BufferTooShort) => Ok(None),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// Both ends of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The client's.
    pub client: SocketAddr,
    /// The one that it connected to.
    pub local: SocketAddr,
}

/// How a header is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// As a line of text.
    One,
    /// As bytes.
    Two,
}

/// What a connection to a server begins with, so that the server knows where the client is.
///
/// # Errors
///
/// It cannot be written; no addresses are known of which that is so.
pub fn header(version: Version, ends: Ends) -> io::Result<Vec<u8>> {
    let (client, local) = match (folded(ends.client), folded(ends.local)) {
        same
        @ ((SocketAddr::V4(_), SocketAddr::V4(_)) | (SocketAddr::V6(_), SocketAddr::V6(_))) => same,
        (client, local) => (unfolded(client), unfolded(local)),
    };
    let header = ProxyHeader::with_address(ProxiedAddress::stream(client, local));
    let mut bytes = Vec::new();
    match version {
        Version::One => header.encode_v1(&mut bytes),
        Version::Two => header.encode_v2(&mut bytes),
    }
    .map_err(io::Error::other)?;
    Ok(bytes)
}

fn folded(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A header has addresses of one family.
fn unfolded(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let ends = |client: &str, local: &str| Ends {
            client: client.parse().unwrap(),
            local: local.parse().unwrap(),
        };
        for (ends, source) in [
            (ends("192.0.2.1:5", "10.0.0.1:80"), "192.0.2.1:5"),
            (ends("[::ffff:192.0.2.1]:5", "10.0.0.1:80"), "192.0.2.1:5"),
            (ends("[2001:db8::1]:5", "[::1]:80"), "[2001:db8::1]:5"),
            (ends("192.0.2.1:5", "[::1]:80"), "[::ffff:192.0.2.1]:5"),
        ] {
            for version in [Version::One, Version::Two] {
                let header = header(version, ends).unwrap();
                let (read, length) = parse(&header).unwrap().unwrap();
                assert_eq!(read.unwrap().client, source.parse().unwrap());
                assert_eq!(length, header.len());
            }
        }
    }

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
            let (ends, length) = parse(&more).unwrap().unwrap();
            assert_eq!((ends.map(|ends| ends.client), length), (source, text.len()));
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
