//! The PROXY protocol, versions 1 and 2: reads the header that a proxy in front of the gateway sends, and writes one
//! for servers.
//!
//! `serve/worker` decides whether a peer may send a header. Source:
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>

use std::io;
use std::net::{IpAddr, SocketAddr};

use proxy_header::{Error, ParseConfig, ProxiedAddress, ProxyHeader};
use tokio::io::AsyncReadExt;

use super::Stream;

/// Maximum bytes of a header: the addresses of version 2, and the fields that a proxy may add to them.
const MAX_HEADER_BYTES: usize = 4096;

/// Reads the header with which a connection must begin, and leaves all bytes behind it unread. Returns `None` if the
/// header names no client, as for a health check by the proxy itself. There is no timeout; the caller sets one.
///
/// # Errors
///
/// Fails if the connection breaks or ends before the header does, does not begin with a header, or has a header of more
/// than [`MAX_HEADER_BYTES`].
pub async fn read_header(stream: &mut Stream) -> io::Result<Option<ConnectionAddresses>> {
    let mut header = Vec::new();
    loop {
        let consumed_bytes = header.len();
        header.resize(MAX_HEADER_BYTES, 0);
        let peeked_bytes = stream.peek(&mut header[consumed_bytes..]).await?;
        header.truncate(consumed_bytes + peeked_bytes);
        if peeked_bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let parsed = parse_header(&header)?;
        let header_length = match &parsed {
            Some(parsed) => parsed.length,
            // All bytes belong to a header that is not complete yet.
            None => header.len(),
        };
        header.truncate(header_length);
        // Peeked bytes are consumed, because another peek would return them again without waiting.
        stream.read_exact(&mut header[consumed_bytes..]).await?;
        if let Some(parsed) = parsed {
            return Ok(parsed.addresses);
        }
        if header.len() >= MAX_HEADER_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// A header that was received from a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedHeader {
    /// The addresses of the proxied connection. `None` if the header has none, as for a connection of the proxy itself.
    pub addresses: Option<ConnectionAddresses>,
    /// The length of the header, in bytes.
    pub length: usize,
}

/// Parses the header at the front of `bytes`. Returns `None` if the header is incomplete.
///
/// # Errors
///
/// Fails if the bytes cannot become a header.
pub fn parse_header(bytes: &[u8]) -> io::Result<Option<ParsedHeader>> {
    let config = ParseConfig {
        include_tlvs: false,
        ..ParseConfig::default()
    };
    match ProxyHeader::parse(bytes, config) {
        Ok((header, length)) => {
            let addresses = header.proxied_address();
            let addresses = addresses.map(|addresses| ConnectionAddresses {
                client: addresses.source,
                local: addresses.destination,
            });
            Ok(Some(ParsedHeader { addresses, length }))
        }
        Err(Error::BufferTooShort) => Ok(None),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// The two addresses of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionAddresses {
    /// The address of the client.
    pub client: SocketAddr,
    /// The address to which the client connected.
    pub local: SocketAddr,
}

/// The version of the PROXY protocol that a server expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocolVersion {
    /// A line of text.
    One,
    /// A header in a binary form.
    Two,
}

/// Encodes the header with which a connection to a server begins. IPv4-mapped addresses become IPv4. If only one
/// address is of IPv6 then, the other one is mapped to IPv6.
///
/// # Errors
///
/// The encoder fails. It does not fail for two addresses of one family.
pub fn encode_header(
    version: ProxyProtocolVersion,
    addresses: ConnectionAddresses,
) -> io::Result<Vec<u8>> {
    // A header has two addresses of one family.
    let (client, local) = match (
        to_canonical(addresses.client),
        to_canonical(addresses.local),
    ) {
        same_family @ ((SocketAddr::V4(_), SocketAddr::V4(_))
        | (SocketAddr::V6(_), SocketAddr::V6(_))) => same_family,
        (client, local) => (to_ipv6(client), to_ipv6(local)),
    };
    let header = ProxyHeader::with_address(ProxiedAddress::stream(client, local));
    let mut bytes = Vec::new();
    match version {
        ProxyProtocolVersion::One => header.encode_v1(&mut bytes),
        ProxyProtocolVersion::Two => header.encode_v2(&mut bytes),
    }
    .map_err(io::Error::other)?;
    Ok(bytes)
}

/// Turns an IPv4-mapped IPv6 address into that of IPv4.
fn to_canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Turns an IPv4 address into an IPv4-mapped one of IPv6.
fn to_ipv6(address: SocketAddr) -> SocketAddr {
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
        let ends = |client: &str, local: &str| ConnectionAddresses {
            client: client.parse().unwrap(),
            local: local.parse().unwrap(),
        };
        for (ends, source) in [
            (ends("192.0.2.1:5", "10.0.0.1:80"), "192.0.2.1:5"),
            (ends("[::ffff:192.0.2.1]:5", "10.0.0.1:80"), "192.0.2.1:5"),
            (ends("[2001:db8::1]:5", "[::1]:80"), "[2001:db8::1]:5"),
            (ends("192.0.2.1:5", "[::1]:80"), "[::ffff:192.0.2.1]:5"),
        ] {
            for version in [ProxyProtocolVersion::One, ProxyProtocolVersion::Two] {
                let header = encode_header(version, ends).unwrap();
                let parsed = parse_header(&header).unwrap().unwrap();
                let client = parsed.addresses.unwrap().client;
                assert_eq!(client, source.parse().unwrap());
                assert_eq!(parsed.length, header.len());
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
                assert_eq!(
                    parse_header(&text[..end]).unwrap(),
                    None,
                    "{end} of {text:?}"
                );
            }
            let more = [text, b"GET / HTTP/1.1"].concat();
            let parsed = parse_header(&more).unwrap().unwrap();
            let client = parsed.addresses.map(|addresses| addresses.client);
            assert_eq!((client, parsed.length), (source, text.len()));
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
            assert!(parse_header(text).is_err(), "{text:?}");
        }
    }
}
