//! The parts of gRPC over HTTP/2 that a unary call needs: its head, its message, its deadline and its status. Nothing here
//! waits or decides. Source: `PROTOCOL-HTTP2.md` of gRPC.

use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::message_memory::MessageCharge;
use crate::http::head::Head;
use crate::throttle::reject::is_grpc;

/// Maximum bytes of a request's message.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Bytes before a message: a flag and the length.
pub const PREFIX_BYTES: usize = 5;

/// The longest deadline that is obeyed; longer ones are shortened to it.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
/// Most digits of a `grpc-timeout`.
const MAX_TIMEOUT_DIGITS: usize = 8;

/// Why a call has no response message, by the code of gRPC, with a sentence for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code of gRPC.
    pub code: u16,
    /// The sentence, in plain ASCII without `%`.
    pub detail: &'static str,
}

impl Failure {
    /// The message cannot be read, or asks for something that is not offered.
    pub const INVALID_ARGUMENT: u16 = 3;
    /// The deadline has passed.
    pub const DEADLINE_EXCEEDED: u16 = 4;
    /// The named service is not here.
    pub const NOT_FOUND: u16 = 5;
    /// The message is too large, or too many are. Callers get a refusal in its place: see `call.rs`.
    pub const RESOURCE_EXHAUSTED: u16 = 8;
    /// The method or the compression is not offered.
    pub const UNIMPLEMENTED: u16 = 12;
    /// The call breaks a rule of the protocol.
    pub const INTERNAL: u16 = 13;

    /// A failure with this code.
    pub const fn new(code: u16, detail: &'static str) -> Failure {
        Failure { code, detail }
    }
}

/// The message is longer than [`MAX_MESSAGE_BYTES`].
pub const TOO_LARGE: Failure = Failure::new(
    Failure::RESOURCE_EXHAUSTED,
    "the message is larger than 65536 bytes",
);
/// There is no memory left for the message, beside those of other calls that are not decided yet.
pub const CROWDED: Failure = Failure::new(
    Failure::RESOURCE_EXHAUSTED,
    "large messages of other calls fill the memory for messages",
);
/// The caller has set a deadline, and it has passed.
pub const LATE: Failure = Failure::new(Failure::DEADLINE_EXCEEDED, "the deadline has passed");
/// The caller has not sent its message in time, or has closed the stream.
pub const INCOMPLETE: Failure = Failure::new(Failure::INTERNAL, "the message is incomplete");
const COMPRESSED: Failure = Failure::new(
    Failure::UNIMPLEMENTED,
    "the message is compressed: use the encoding identity",
);
const SECOND_MESSAGE: Failure =
    Failure::new(Failure::INTERNAL, "the call has more than one message");

/// The status by which a request that is no call of gRPC is refused; `None` for a call.
pub fn find_objection(head: &Head) -> Option<http::StatusCode> {
    if head.method != Method::POST {
        return Some(http::StatusCode::METHOD_NOT_ALLOWED);
    }
    (!is_grpc(&head.fields)).then_some(http::StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

/// The time that the caller waits, by `grpc-timeout`. `None` without the field, and for a value that is none.
pub fn find_timeout(head: &Head) -> Option<Duration> {
    let text = head.fields.text("grpc-timeout")?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number = !digits.is_empty()
        && digits.len() <= MAX_TIMEOUT_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    let timeout = match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    };
    Some(timeout.min(MAX_TIMEOUT))
}

/// Collects the one message of a call from the pieces of its body.
#[derive(Debug, Default)]
pub struct MessageReader {
    bytes: Vec<u8>,
    charge: MessageCharge,
}

/// The message of a call, without its prefix. Its memory is charged until it is dropped.
#[derive(Debug)]
pub struct Message {
    framed: Vec<u8>,
    _charge: MessageCharge,
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.framed.get(PREFIX_BYTES..).unwrap_or_default()
    }
}

impl MessageReader {
    /// A reader of a message whose memory is charged there.
    pub fn new(charge: MessageCharge) -> MessageReader {
        MessageReader {
            bytes: Vec::new(),
            charge,
        }
    }

    /// Adds a piece of the body.
    ///
    /// # Errors
    ///
    /// The message is compressed or too large, there is no memory left for it, or a second one follows.
    pub fn add(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let length = self.bytes.len() + piece.len();
        if length > PREFIX_BYTES + MAX_MESSAGE_BYTES {
            // A short message with others behind it is no large one.
            return Err(match self.message_length() {
                Some(length) if length <= MAX_MESSAGE_BYTES => SECOND_MESSAGE,
                _ => TOO_LARGE,
            });
        }
        if length > self.bytes.capacity() {
            let capacity = length.next_power_of_two();
            let capacity = capacity.min(PREFIX_BYTES + MAX_MESSAGE_BYTES);
            if !self.charge.grow_to(capacity) {
                return Err(CROWDED);
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        match self.bytes.first() {
            Some(0) | None => {}
            Some(_) => return Err(COMPRESSED),
        }
        match self.message_length() {
            Some(length) if length > MAX_MESSAGE_BYTES => Err(TOO_LARGE),
            Some(length) if self.bytes.len() > PREFIX_BYTES + length => Err(SECOND_MESSAGE),
            _ => Ok(()),
        }
    }

    /// The message, at the end of the body.
    ///
    /// # Errors
    ///
    /// The body has ended before the message.
    pub fn finish(self) -> Result<Message, Failure> {
        match self.message_length() {
            Some(length) if self.bytes.len() == PREFIX_BYTES + length => Ok(Message {
                framed: self.bytes,
                _charge: self.charge,
            }),
            _ => Err(INCOMPLETE),
        }
    }

    /// The length that the prefix states; `None` before it is whole.
    fn message_length(&self) -> Option<usize> {
        let length: [u8; 4] = self.bytes.get(1..PREFIX_BYTES)?.try_into().ok()?;
        usize::try_from(u32::from_be_bytes(length)).ok()
    }
}

/// A message with its prefix, as a body has it.
pub fn frame_message(message: &[u8]) -> Bytes {
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    framed.push(0);
    // The gateway's messages are far below 4 GiB.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    framed.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<Vec<u8>, Failure> {
        let mut reader = MessageReader::default();
        for piece in pieces {
            reader.add(piece)?;
        }
        reader.finish().map(|message| message.to_vec())
    }

    #[test]
    fn one_message_is_read_in_any_pieces() {
        let framed = frame_message(b"hello");
        for split in 0..framed.len() {
            let (first, second) = framed.split_at(split);
            assert_eq!(read(&[first, second]).as_deref(), Ok(&b"hello"[..]));
        }
        assert_eq!(read(&[&frame_message(b"")]).as_deref(), Ok(&b""[..]));
        let largest = vec![7; MAX_MESSAGE_BYTES];
        assert_eq!(read(&[&frame_message(&largest)]).unwrap(), largest);
    }

    #[test]
    fn other_bodies_are_errors() {
        assert_eq!(read(&[]), Err(INCOMPLETE));
        assert_eq!(read(&[&[0, 0, 0, 0, 2, 1]]), Err(INCOMPLETE));
        assert_eq!(read(&[&[1, 0, 0, 0, 0]]), Err(COMPRESSED));
        assert_eq!(read(&[&[0, 0, 0, 0, 0, 0]]), Err(SECOND_MESSAGE));
        assert_eq!(read(&[&[0, 255, 255, 255, 255]]), Err(TOO_LARGE));
        let large = frame_message(&vec![7; MAX_MESSAGE_BYTES + 1]);
        assert_eq!(read(&[&large]), Err(TOO_LARGE));
        let two = [frame_message(b"a"), frame_message(&[7; MAX_MESSAGE_BYTES])].concat();
        assert_eq!(read(&[&two[..9], &two[9..]]), Err(SECOND_MESSAGE));
    }

    #[test]
    fn timeouts() {
        let check = |text: &str, expected: Option<Duration>| {
            let mut head = Head::default();
            head.fields.add("grpc-timeout", text.as_bytes());
            assert_eq!(find_timeout(&head), expected, "{text}");
        };
        check("20m", Some(Duration::from_millis(20)));
        check("1S", Some(Duration::from_secs(1)));
        check("99999999H", Some(MAX_TIMEOUT));
        check("100u", Some(Duration::from_micros(100)));
        for text in ["", "m", "1", "1x", "-1S", "123456789S", "1ü"] {
            check(text, None);
        }
    }
}
