//! The heads of frames and streams, and the settings: RFC 9114 sections 6.2 and 7, with the integers of RFC 9000 section 16.

use super::Code;
use crate::http::http1::MAX_HEAD_BYTES;

/// Maximum bytes of the head of a frame: two integers.
pub const MAX_FRAME_HEAD_BYTES: usize = 16;

/// The types of frames: RFC 9114 section 7.2. All others are skipped.
pub mod frame_type {
    /// A piece of a body.
    pub const DATA: u64 = 0x0;
    /// A head, or trailers.
    pub const HEADERS: u64 = 0x1;
    /// What a client gives up of what a server pushes.
    pub const CANCEL_PUSH: u64 = 0x3;
    /// The settings, at the begin of the control stream.
    pub const SETTINGS: u64 = 0x4;
    /// The head of a request that a server pushes.
    pub const PUSH_PROMISE: u64 = 0x5;
    /// The end of the connection is near.
    pub const GOAWAY: u64 = 0x7;
    /// How much a server may push.
    pub const MAX_PUSH_ID: u64 = 0xd;
}

/// The types of streams in one direction: RFC 9114 section 6.2, RFC 9204 section 4.2. All others are not read.
pub mod stream_type {
    /// Frames about the connection.
    pub const CONTROL: u64 = 0x0;
    /// What a server pushes.
    pub const PUSH: u64 = 0x1;
    /// Changes of the receiver's table of fields.
    pub const QPACK_ENCODER: u64 = 0x2;
    /// Reports about the sender's table of fields.
    pub const QPACK_DECODER: u64 = 0x3;
}

/// The number of the setting that bounds heads: RFC 9114 section 7.2.4.1.
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// What the frame is, as in [`frame_type`].
    pub frame_type: u64,
    /// Bytes that follow the head.
    pub length: u64,
}

impl FrameHead {
    /// Takes the head of a frame off the front of `bytes`. `None` if it is incomplete; then nothing is taken.
    pub fn read(bytes: &mut &[u8]) -> Option<FrameHead> {
        let mut remaining = *bytes;
        let frame_type = read_integer(&mut remaining)?;
        let length = read_integer(&mut remaining)?;
        *bytes = remaining;
        Some(FrameHead { frame_type, length })
    }

    /// Whether the type is one of HTTP/2 that HTTP/3 forbids: RFC 9114 section 7.2.8.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.frame_type, 0x2 | 0x6 | 0x8 | 0x9)
    }

    /// Whether the type is one of the control stream, or of pushes, which no client makes: RFC 9114 section 7.2. The stream
    /// of a request has no such frame.
    pub fn is_about_connection(&self) -> bool {
        matches!(
            self.frame_type,
            frame_type::CANCEL_PUSH
                | frame_type::SETTINGS
                | frame_type::PUSH_PROMISE
                | frame_type::GOAWAY
                | frame_type::MAX_PUSH_ID
        )
    }

    /// Appends the head.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_integer(out, self.frame_type);
        write_integer(out, self.length);
    }
}

/// Takes an integer off the front of `bytes`. `None` if it is incomplete; then nothing is taken.
pub fn read_integer(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    // The two highest bits are the logarithm of the length.
    let (coded, remaining) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = coded[1..]
        .iter()
        .fold(u64::from(first & 0x3f), |value, byte| {
            value << 8 | u64::from(*byte)
        });
    *bytes = remaining;
    Some(value)
}

/// Appends an integer below 2^62 in its shortest form.
pub fn write_integer(out: &mut Vec<u8>, value: u64) {
    let (length, length_bits) = match value {
        0..0x40 => (1, 0x00),
        0x40..0x4000 => (2, 0x40),
        0x4000..0x4000_0000 => (4, 0x80),
        _ => (8, 0xc0),
    };
    let start = out.len();
    out.extend_from_slice(&value.to_be_bytes()[8 - length..]);
    out[start] |= length_bits;
}

/// Appends the first bytes of the gateway's control stream: its type, and the settings. The gateway keeps no table of
/// fields, so the settings of QPACK keep their defaults, which are 0.
pub fn write_control_start(out: &mut Vec<u8>) {
    let mut settings = Vec::new();
    write_integer(&mut settings, MAX_FIELD_SECTION_SIZE);
    write_integer(&mut settings, MAX_HEAD_BYTES as u64);
    write_integer(out, stream_type::CONTROL);
    let head = FrameHead {
        frame_type: frame_type::SETTINGS,
        length: settings.len() as u64,
    };
    head.write(out);
    out.extend_from_slice(&settings);
}

/// Appends a GOAWAY. Requests of the stream with this identifier, and of later ones, are not processed.
pub fn write_go_away(out: &mut Vec<u8>, first_rejected_id: u64) {
    let mut payload = Vec::new();
    write_integer(&mut payload, first_rejected_id);
    let head = FrameHead {
        frame_type: frame_type::GOAWAY,
        length: payload.len() as u64,
    };
    head.write(out);
    out.extend_from_slice(&payload);
}

/// Checks the settings of a client, none of which changes what the gateway does.
///
/// # Errors
///
/// They are incomplete, or have a setting of HTTP/2 that HTTP/3 forbids.
pub fn check_settings(mut payload: &[u8]) -> Result<(), Code> {
    while !payload.is_empty() {
        let number = read_integer(&mut payload).ok_or(Code::FRAME_ERROR)?;
        read_integer(&mut payload).ok_or(Code::FRAME_ERROR)?;
        if matches!(number, 0x2..=0x5) {
            return Err(Code::SETTINGS_ERROR);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 9000 appendix A.1.
    #[test]
    fn integers_have_four_lengths() {
        let examples: [(&[u8], u64); 4] = [
            (&[0x25], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
        ];
        for (coded, value) in examples {
            let mut out = Vec::new();
            write_integer(&mut out, value);
            assert_eq!(out, coded);
            assert_eq!(read_integer(&mut &*out), Some(value));
            assert_eq!(read_integer(&mut &out[..out.len() - 1]), None);
        }
        // A longer form than necessary is allowed.
        assert_eq!(read_integer(&mut &[0x40, 0x25][..]), Some(37));
    }

    #[test]
    fn settings_of_http2_are_an_error() {
        assert_eq!(check_settings(&[0x6, 0x40, 0x64, 0x21, 0x1]), Ok(()));
        assert_eq!(check_settings(&[0x3, 0x1]), Err(Code::SETTINGS_ERROR));
        assert_eq!(check_settings(&[0x6]), Err(Code::FRAME_ERROR));
    }
}
