//! The JA4 fingerprint of a client's TLS handshake, by the part "TLS client" of FoxIO's specification:
//! <https://github.com/FoxIO-LLC/ja4/blob/main/technical_details/JA4.md>. Clients of one program usually have one
//! fingerprint, but a client can imitate another one.
//!
//! The bytes of the hello are recorded while rustls reads them, because rustls does not expose all that JA4 needs.

use std::fmt::Write as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use aws_lc_rs::digest::{SHA256, digest};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of recorded bytes. The longest hello that rustls accepts has 64 KiB; the heads of its records come on
/// top.
const MAX_RECORDED_BYTES: usize = 96 * 1024;

/// The content type of a handshake record: RFC 8446 section 5.1.
const HANDSHAKE_RECORD: u8 = 22;
/// The type of a client's hello: RFC 8446 section 4.
const CLIENT_HELLO: u8 = 1;

// The numbers of the extensions whose content a fingerprint depends on: RFC 6066, 8446 and 7301.
const SERVER_NAME: u16 = 0x0000;
const SIGNATURE_ALGORITHMS: u16 = 0x000d;
const ALPN: u16 = 0x0010;
const SUPPORTED_VERSIONS: u16 = 0x002b;

/// What stands in place of the hash of an empty list.
const EMPTY_LIST_HASH: &str = "000000000000";

/// Bytes of a SHA-256 hash that a fingerprint has, as twice as many hexadecimal digits.
const SHORT_HASH_BYTES: usize = 6;

/// The largest number that is written for a count, which has two digits.
const MAX_COUNT: usize = 99;

/// Computes the fingerprint of a client that has sent these bytes; `None` unless they begin with a whole hello. The first
/// hello counts, also if the server asks for a second one.
pub fn fingerprint(received: &[u8]) -> Option<String> {
    HelloParts::parse(&join_hello_fragments(received)?).map(|hello| hello.fingerprint())
}

/// The body of the client's hello, whose fragments may be in several records. `None` unless the bytes begin with a whole
/// hello.
fn join_hello_fragments(received: &[u8]) -> Option<Vec<u8>> {
    let mut records = MessageBytes(received);
    let mut message = Vec::new();
    loop {
        let record_type = records.take_u8()?;
        let _version = records.take_u16()?;
        let fragment = records.take_list_16()?;
        if record_type != HANDSHAKE_RECORD {
            return None;
        }
        message.extend_from_slice(fragment.0);
        let mut header = MessageBytes(&message);
        if let (Some(message_type), Some(length_high), Some(length_low)) =
            (header.take_u8(), header.take_u8(), header.take_u16())
        {
            let length = usize::from(length_high) << 16 | usize::from(length_low);
            if message_type != CLIENT_HELLO {
                return None;
            }
            if let Some(body) = header.take_bytes(length) {
                return Some(body.to_vec());
            }
        }
    }
}

/// The parts of a client's hello that a fingerprint has, without GREASE values (RFC 8701).
#[derive(Debug, Default)]
struct HelloParts {
    /// The highest version of TLS that the client supports.
    version: u16,
    has_server_name: bool,
    /// The numbers of the cipher suites, in the order sent.
    ciphers: Vec<u16>,
    /// The numbers of the extensions, in the order sent.
    extensions: Vec<u16>,
    /// The numbers of the signature algorithms, in the order sent.
    signature_algorithms: Vec<u16>,
    /// The first protocol of ALPN; empty if there is none.
    protocol: Vec<u8>,
}

impl HelloParts {
    /// Parses the body of the message: RFC 8446 section 4.1.2. `None` if a part is longer than the bytes that are left.
    fn parse(body: &[u8]) -> Option<HelloParts> {
        let mut body = MessageBytes(body);
        let mut hello = HelloParts {
            version: body.take_u16()?,
            ..HelloParts::default()
        };
        let _random = body.take_bytes(32)?;
        let _session = body.take_list_8()?;
        hello.ciphers = body.take_list_16()?.into_numbers();
        let _compression = body.take_list_8()?;
        // A hello of TLS 1.2 need not have extensions.
        let mut extensions = body.take_list_16().unwrap_or_default();
        while !extensions.0.is_empty() {
            let number = extensions.take_u16()?;
            let content = extensions.take_list_16()?;
            if !is_grease(number) {
                hello.extensions.push(number);
                hello.read_extension(number, content);
            }
        }
        Some(hello)
    }

    /// Records what the fingerprint needs of an extension's content. A malformed list counts as empty.
    fn read_extension(&mut self, number: u16, mut content: MessageBytes<'_>) {
        match number {
            SERVER_NAME => self.has_server_name = true,
            SIGNATURE_ALGORITHMS => {
                let algorithms = content.take_list_16().unwrap_or_default();
                self.signature_algorithms = algorithms.into_numbers();
            }
            ALPN => {
                let mut protocols = content.take_list_16().unwrap_or_default();
                let first_protocol = protocols.take_list_8().unwrap_or_default();
                self.protocol = first_protocol.0.to_vec();
            }
            SUPPORTED_VERSIONS => {
                let versions = content.take_list_8().unwrap_or_default().into_numbers();
                self.version = versions.into_iter().max().unwrap_or(self.version);
            }
            _ => {}
        }
    }

    /// The three parts of JA4:
    ///
    /// - transport, version, whether there is a server name, the counts of ciphers and extensions, and the protocol;
    /// - the hash of the sorted ciphers;
    /// - the hash of the sorted extensions and of the signature algorithms in the order sent.
    fn fingerprint(&self) -> String {
        // The version numbers of TLS 1.3 to 1.0, SSL 3.0 and SSL 2.0.
        let version = match self.version {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            0x0002 => "s2",
            _ => "00",
        };
        // Whether the client connects to a domain or to an IP address.
        let destination = if self.has_server_name { 'd' } else { 'i' };
        let count = |numbers: &[u16]| numbers.len().min(MAX_COUNT);
        let mut ciphers = self.ciphers.clone();
        ciphers.sort_unstable();
        format!(
            "t{version}{destination}{:02}{:02}{}_{}_{}",
            count(&self.ciphers),
            count(&self.extensions),
            describe_protocol(&self.protocol),
            short_hash(&list_in_hex(&ciphers)),
            short_hash(&self.extensions_in_hex()),
        )
    }

    /// The extensions in order of their numbers, and the signature algorithms behind them. The server name and ALPN are
    /// left out, because the first part of JA4 has them. Empty without other extensions.
    fn extensions_in_hex(&self) -> String {
        let numbers = self.extensions.iter().copied();
        let mut numbers: Vec<u16> = numbers
            .filter(|number| ![SERVER_NAME, ALPN].contains(number))
            .collect();
        numbers.sort_unstable();
        let mut text = list_in_hex(&numbers);
        if !text.is_empty() && !self.signature_algorithms.is_empty() {
            text.push('_');
            text.push_str(&list_in_hex(&self.signature_algorithms));
        }
        text
    }
}

/// The first and the last character of the protocol, or of its hexadecimal digits if one of the two is no letter or
/// digit. `00` without a protocol.
fn describe_protocol(protocol: &[u8]) -> String {
    let (Some(first), Some(last)) = (protocol.first(), protocol.last()) else {
        return "00".into();
    };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [char::from(*first), char::from(*last)].iter().collect();
    }
    format!("{:x}{:x}", first >> 4, last & 0xf)
}

/// The numbers in four hexadecimal digits each, with commas between them.
fn list_in_hex(numbers: &[u16]) -> String {
    let mut text = String::new();
    for number in numbers {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{number:04x}");
    }
    text
}

/// The first 12 hexadecimal digits of the text's SHA-256, or [`EMPTY_LIST_HASH`] for an empty text.
fn short_hash(text: &str) -> String {
    if text.is_empty() {
        return EMPTY_LIST_HASH.into();
    }
    let mut hash = String::new();
    for byte in digest(&SHA256, text.as_bytes())
        .as_ref()
        .iter()
        .take(SHORT_HASH_BYTES)
    {
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

/// Whether the number is a GREASE value (RFC 8701 section 2), which clients send so that servers keep ignoring unknown
/// values.
pub(super) fn is_grease(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0xf == 0xa
}

/// The bytes of a TLS structure that are still to be parsed. Its parts have their lengths before them. Each method that
/// takes a part returns `None` if too few bytes are left.
#[derive(Clone, Copy, Default)]
struct MessageBytes<'b>(&'b [u8]);

impl<'b> MessageBytes<'b> {
    fn take_bytes(&mut self, length: usize) -> Option<&'b [u8]> {
        let (bytes, remaining) = self.0.split_at_checked(length)?;
        self.0 = remaining;
        Some(bytes)
    }

    fn take_u8(&mut self) -> Option<u8> {
        self.take_bytes(1).map(|bytes| bytes[0])
    }

    fn take_u16(&mut self) -> Option<u16> {
        self.take_bytes(2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Takes a list whose length in bytes is in one byte before it.
    fn take_list_8(&mut self) -> Option<MessageBytes<'b>> {
        let length = self.take_u8()?;
        self.take_bytes(length.into()).map(MessageBytes)
    }

    /// Takes a list whose length in bytes is in two bytes before it.
    fn take_list_16(&mut self) -> Option<MessageBytes<'b>> {
        let length = self.take_u16()?;
        self.take_bytes(length.into()).map(MessageBytes)
    }

    /// The list as numbers of two bytes, without those of GREASE.
    fn into_numbers(self) -> Vec<u16> {
        let numbers = self.0.chunks_exact(2);
        let numbers = numbers.map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        numbers.filter(|number| !is_grease(*number)).collect()
    }
}

/// A stream that keeps a copy of the first [`MAX_RECORDED_BYTES`] that are read from it.
#[derive(Debug)]
pub struct RecordedStream<S> {
    /// The stream that is read.
    pub stream: S,
    /// The bytes that were read first; at most [`MAX_RECORDED_BYTES`].
    received: Vec<u8>,
}

impl<S> RecordedStream<S> {
    /// Records what is read from `stream` from now on.
    pub fn new(stream: S) -> RecordedStream<S> {
        RecordedStream {
            stream,
            received: Vec::new(),
        }
    }

    /// The bytes that were read first; at most [`MAX_RECORDED_BYTES`].
    pub fn received(&self) -> &[u8] {
        &self.received
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RecordedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length_before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let bytes = buf.filled().get(length_before..).unwrap_or_default();
        let free_bytes = MAX_RECORDED_BYTES.saturating_sub(self.received.len());
        let recorded_bytes = bytes.len().min(free_bytes);
        self.received.extend_from_slice(&bytes[..recorded_bytes]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RecordedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(text: &str) -> Vec<u16> {
        let numbers = text.split(',').filter(|number| !number.is_empty());
        numbers
            .map(|number| u16::from_str_radix(number, 16).unwrap())
            .collect()
    }

    fn bytes_of(numbers: &[u16]) -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_be_bytes())
            .collect()
    }

    fn with_length_8(content: &[u8]) -> Vec<u8> {
        [&[u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn with_length_16(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        [&length.to_be_bytes(), content].concat()
    }

    /// The parts of a hello, in hexadecimal numbers with commas between them.
    struct WrittenHello<'p> {
        version: u16,
        ciphers: &'p str,
        extensions: &'p str,
        algorithms: &'p str,
        versions: &'p str,
        protocol: &'p [u8],
    }

    /// The hello of Chrome in the specification, with GREASE.
    const CHROME: WrittenHello<'_> = WrittenHello {
        version: 0x0303,
        ciphers: "0a0a,1301,1302,1303,c02b,c02f,c02c,c030,cca9,cca8,c013,c014,009c,009d,002f,0035",
        extensions: "fafa,001b,0000,0033,0010,4469,0017,002d,000d,0005,0023,0012,002b,ff01,000b,000a,0015,8a8a",
        algorithms: "0403,0804,0401,0503,0805,0501,0806,0601",
        versions: "caca,0304,0303",
        protocol: b"h2",
    };

    impl WrittenHello<'_> {
        /// The message with its header.
        fn message(&self) -> Vec<u8> {
            let mut extensions = Vec::new();
            for number in numbers(self.extensions) {
                let content = match number {
                    SIGNATURE_ALGORITHMS => with_length_16(&bytes_of(&numbers(self.algorithms))),
                    SUPPORTED_VERSIONS => with_length_8(&bytes_of(&numbers(self.versions))),
                    ALPN => with_length_16(&with_length_8(self.protocol)),
                    _ => vec![7; 3],
                };
                extensions.extend(number.to_be_bytes());
                extensions.extend(with_length_16(&content));
            }
            let body = [
                &self.version.to_be_bytes()[..],
                &[1; 32],
                &with_length_8(&[2; 32]),
                &with_length_16(&bytes_of(&numbers(self.ciphers))),
                &with_length_8(&[0]),
                &with_length_16(&extensions),
            ]
            .concat();
            [&[CLIENT_HELLO, 0][..], &with_length_16(&body)].concat()
        }
    }

    /// The message in records whose fragments have at most `length` bytes.
    fn records(message: &[u8], length: usize) -> Vec<u8> {
        let records = message
            .chunks(length)
            .map(|fragment| [&[HANDSHAKE_RECORD, 3, 1][..], &with_length_16(fragment)].concat());
        records.collect::<Vec<_>>().concat()
    }

    #[track_caller]
    fn check(parts: &WrittenHello<'_>, expected: &str) {
        let received = records(&parts.message(), 16384);
        assert_eq!(fingerprint(&received).as_deref(), Some(expected));
    }

    #[test]
    fn examples_of_the_specification() {
        check(&CHROME, "t13d1516h2_8daaf6152771_e5627efa2ab1");
        let without_algorithms = WrittenHello {
            algorithms: "",
            ..CHROME
        };
        check(&without_algorithms, "t13d1516h2_8daaf6152771_6d807ffa2a79");
    }

    #[test]
    fn what_is_not_there() {
        let bare = WrittenHello {
            ciphers: "",
            extensions: "",
            ..CHROME
        };
        check(&bare, "t12i000000_000000000000_000000000000");
        let old = WrittenHello {
            version: 0x0302,
            extensions: "0000,0010",
            protocol: b"",
            ..bare
        };
        check(&old, "t11d000200_000000000000_000000000000");
    }

    #[test]
    fn protocols() {
        let check = |protocol: &[u8], expected: &str| {
            assert_eq!(describe_protocol(protocol), expected, "{protocol:x?}");
        };
        check(b"", "00");
        check(b"h2", "h2");
        check(b"http/1.1", "h1");
        check(b"a", "aa");
        check(&[0xab], "ab");
        check(&[0x20], "20");
        check(&[0xab, 0xcd], "ad");
        check(&[0x20, 0x61], "21");
        check(&[0x30, 0xab], "3b");
        check(&[0x61, 0x20], "60");
        check(&[0x30, 0x31, 0xab, 0xcd], "3d");
        check(&[0x30, 0xab, 0xcd, 0x31], "01");
    }

    #[test]
    fn a_hello_in_pieces_is_one_hello() {
        let message = CHROME.message();
        let whole = fingerprint(&records(&message, 16384));
        for length in 1..message.len() {
            let received = records(&message, length);
            assert_eq!(fingerprint(&received), whole, "fragments of {length}");
            assert_eq!(fingerprint(&received[..received.len() - 1]), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_fingerprint_or_none(
            changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8),
            length in 1usize..600,
        ) {
            let mut received = records(&CHROME.message(), length);
            for (at, byte) in changes {
                let at = at % received.len();
                received[at] = byte;
            }
            if let Some(fingerprint) = fingerprint(&received) {
                prop_assert_eq!(fingerprint.len(), "t13d1516h2_8daaf6152771_e5627efa2ab1".len());
            }
        }
    }
}
