//! The frames of WebSockets (RFC 6455 section 5.2): where each begins and how long it is. Also makes close frames.
//! Payloads are neither read nor kept, so a compressed message (RFC 7692) is treated like any other.
//! `serve/stack/message_gate.rs` decides which messages pass.

use smallvec::SmallVec;

/// The longest header of a frame, in bytes: two, a length of eight, and a mask of four.
const MAX_HEADER_BYTES: usize = 14;

/// The highest bit of the first byte: the frame is the last one of its message.
const FINAL_BIT: u8 = 0x80;

/// The highest bit of the second byte: the payload is masked.
const MASK_BIT: u8 = 0x80;

/// The length of the key with which a payload is masked, in bytes.
const MASK_BYTES: usize = 4;

/// The opcode of a frame that continues a message.
pub const CONTINUATION: u8 = 0;
/// The opcode of a frame that closes the connection.
pub const CLOSE: u8 = 8;

/// The header of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind of the frame, from 0 to 15. Opcodes from 8 on are those of control frames.
    pub opcode: u8,
    /// Whether this is the last frame of its message.
    pub is_final: bool,
    /// Whether the payload is masked, as the frames of clients must be.
    pub is_masked: bool,
    /// The length of this header in bytes.
    pub header_bytes: usize,
    /// The length of the payload in bytes.
    pub payload_bytes: u64,
}

/// Why a header cannot be read: the length of its payload has the highest bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidLength;

/// Parses the header at the beginning of `bytes`; `None` if more bytes are needed. Reserved bits and opcodes, and
/// lengths that are longer than needed, are accepted.
///
/// # Errors
///
/// The length of the payload has the highest bit set.
pub fn parse_header(bytes: &[u8]) -> Result<Option<FrameHeader>, InvalidLength> {
    let &[first, second, ref later_bytes @ ..] = bytes else {
        return Ok(None);
    };
    let is_masked = second & MASK_BIT != 0;
    let short_length = second & !MASK_BIT;
    // The two largest values say that a longer length follows.
    let length_bytes = match short_length {
        127 => 8,
        126 => 2,
        _ => 0,
    };
    let header_bytes = 2 + length_bytes + MASK_BYTES * usize::from(is_masked);
    if bytes.len() < header_bytes {
        return Ok(None);
    }
    let append = |length: u64, byte: &u8| length << 8 | u64::from(*byte);
    let payload_bytes = match length_bytes {
        0 => u64::from(short_length),
        _ => later_bytes[..length_bytes].iter().fold(0, append),
    };
    if payload_bytes >> 63 != 0 {
        return Err(InvalidLength);
    }
    Ok(Some(FrameHeader {
        opcode: first & 0x0f,
        is_final: first & FINAL_BIT != 0,
        is_masked,
        header_bytes,
        payload_bytes,
    }))
}

/// A position in the frames that one side sends.
#[derive(Debug, Default)]
pub struct FrameCursor {
    /// The bytes of a header that is not complete yet; at most [`MAX_HEADER_BYTES`].
    header: SmallVec<[u8; MAX_HEADER_BYTES]>,
    /// Bytes of the payload that are still to come.
    remaining_payload_bytes: u64,
    /// Whether a close frame has begun, so that no further frame may follow.
    pub has_closed: bool,
    /// Whether the length of a frame was invalid, so that the start of the next frame cannot be determined.
    has_invalid_length: bool,
}

impl FrameCursor {
    /// Whether the next byte begins a frame.
    pub fn is_between_frames(&self) -> bool {
        self.remaining_payload_bytes == 0 && self.header.is_empty()
    }

    /// Moves over `data`, and returns how many bytes that were. If `stops_at_frame_end`, it stops at the end of the
    /// current frame, or at once between frames. Otherwise it moves over all of `data`.
    ///
    /// # Errors
    ///
    /// The length of a payload is invalid, now or in an earlier call, so that the end of its frame cannot be
    /// determined.
    pub fn advance(
        &mut self,
        data: &[u8],
        stops_at_frame_end: bool,
    ) -> Result<usize, InvalidLength> {
        if self.has_invalid_length {
            return Err(InvalidLength);
        }
        let mut position = 0;
        while position < data.len() && !(stops_at_frame_end && self.is_between_frames()) {
            if self.remaining_payload_bytes > 0 {
                let remaining = (data.len() - position) as u64;
                let skipped = self.remaining_payload_bytes.min(remaining);
                self.remaining_payload_bytes -= skipped;
                // The cast loses nothing: it is at most the length of `data`.
                position += skipped as usize;
                continue;
            }
            self.header.push(data[position]);
            position += 1;
            let parsed = parse_header(&self.header);
            self.has_invalid_length = parsed.is_err();
            if let Some(header) = parsed? {
                self.header.clear();
                self.remaining_payload_bytes = header.payload_bytes;
                self.has_closed |= header.opcode == CLOSE;
            }
        }
        Ok(position)
    }
}

/// The close frame of a server with this status code and reason. The reason must have at most 123 bytes, because a
/// control frame has at most 125: RFC 6455 section 5.5.
pub fn close_frame(code: u16, reason: &str) -> Vec<u8> {
    let reason = reason.as_bytes();
    let mut frame = vec![FINAL_BIT | CLOSE, (2 + reason.len()) as u8];
    frame.extend_from_slice(&code.to_be_bytes());
    frame.extend_from_slice(reason);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: Result<Option<FrameHeader>, InvalidLength>) {
        assert_eq!(parse_header(bytes), expected, "{bytes:x?}");
    }

    /// The header of the last frame of a message without a mask.
    fn header(opcode: u8, header_bytes: usize, payload_bytes: u64) -> FrameHeader {
        FrameHeader {
            opcode,
            is_final: true,
            is_masked: false,
            header_bytes,
            payload_bytes,
        }
    }

    #[test]
    fn headers() {
        let masked = |header: FrameHeader| FrameHeader {
            is_masked: true,
            ..header
        };
        let fragment = FrameHeader {
            is_final: false,
            ..header(2, 2, 0)
        };
        check(&[], Ok(None));
        check(&[0x81], Ok(None));
        check(&[0x81, 0x05], Ok(Some(header(1, 2, 5))));
        check(&[0x02, 0x00, 0xff], Ok(Some(fragment)));
        check(&[0xc1, 0x85, 1, 2, 3], Ok(None));
        check(&[0xc1, 0x85, 1, 2, 3, 4], Ok(Some(masked(header(1, 6, 5)))));
        check(&[0x80, 126, 1], Ok(None));
        check(&[0x80, 126, 1, 2], Ok(Some(header(0, 4, 258))));
        let ping = [0x89, 0xfe, 0, 1, 0, 0, 0, 0];
        check(&ping, Ok(Some(masked(header(9, 8, 1)))));
        let long = [0x82, 127, 0x7f, 255, 255, 255, 255, 255, 255, 255];
        check(&long, Ok(Some(header(2, 10, i64::MAX as u64))));
        let invalid = [0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0];
        check(&invalid, Err(InvalidLength));
        check(&invalid[..9], Ok(None));
    }

    #[test]
    fn a_cursor_finds_the_ends_of_frames_however_they_are_cut() {
        let mut frames = vec![0x01, 0x03, b'a', b'b', b'c', 0x89, 0x00, 0x82, 126, 1, 0];
        frames.extend([7; 256]);
        let ends = [5, 7, 7 + 4 + 256];
        for cut in 1..frames.len() {
            let mut cursor = FrameCursor::default();
            assert_eq!(cursor.advance(&frames[..cut], false), Ok(cut));
            assert_eq!(cursor.is_between_frames(), ends.contains(&cut), "{cut}");
            let next_end = *ends.iter().find(|end| **end >= cut).unwrap();
            let rest = cursor.advance(&frames[cut..], true);
            assert_eq!(rest, Ok(next_end - cut), "{cut}");
            assert!(cursor.is_between_frames() && !cursor.has_closed);
        }
        let mut cursor = FrameCursor::default();
        let close = close_frame(1013, "later");
        assert_eq!(close, b"\x88\x07\x03\xf5later");
        assert_eq!(cursor.advance(&close, false), Ok(close.len()));
        assert!(cursor.is_between_frames() && cursor.has_closed);
    }
}
