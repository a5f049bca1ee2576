//! Frames to be sent: RFC 9113 sections 4.1 and 6.

use super::Reason;

/// Bytes before a frame's payload.
pub const HEAD: usize = 9;

/// What kind of frame it is.
pub mod kind {
    #![allow(missing_docs)]
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
}

/// What a frame's flags say.
pub mod flag {
    #![allow(missing_docs)]
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// What settings are about: RFC 9113 section 6.5.2, RFC 8441 section 3.
pub mod setting {
    #![allow(missing_docs)]
    pub const HEADER_TABLE_SIZE: u16 = 0x1;
    pub const ENABLE_PUSH: u16 = 0x2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
}

/// The head of a frame whose payload has so many bytes, fewer than 2^24.
pub fn head(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEAD] {
    let [.., a, b, c] = length.to_be_bytes();
    let [s, t, u, v] = stream.to_be_bytes();
    [a, b, c, kind, flags, s, t, u, v]
}

/// A frame as a whole.
fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&head(payload.len(), kind, flags, stream));
    out.extend_from_slice(payload);
}

/// A block of compressed fields, as `compress` appends it, in one frame or as many as it needs.
pub fn headers(out: &mut Vec<u8>, stream: u32, end: bool, compress: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD]);
    compress(out);
    let end_stream = if end { flag::END_STREAM } else { 0 };
    let length = out.len() - start - HEAD;
    if length <= super::MAX_FRAME {
        let head = head(
            length,
            kind::HEADERS,
            end_stream | flag::END_HEADERS,
            stream,
        );
        out[start..start + HEAD].copy_from_slice(&head);
        return;
    }
    let block = out.split_off(start + HEAD);
    out.truncate(start);
    let mut pieces = block.chunks(super::MAX_FRAME).peekable();
    let (mut kind, mut flags) = (kind::HEADERS, end_stream);
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= flag::END_HEADERS;
        }
        write(out, kind, flags, stream, piece);
        (kind, flags) = (kind::CONTINUATION, 0);
    }
}

/// The end of a body without more content.
pub fn end(out: &mut Vec<u8>, stream: u32) {
    write(out, kind::DATA, flag::END_STREAM, stream, &[]);
}

/// What this side wants of the other.
pub fn settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let said = settings.iter().flat_map(|(about, value)| {
        let [a, b] = about.to_be_bytes();
        let [c, d, e, f] = value.to_be_bytes();
        [a, b, c, d, e, f]
    });
    let payload: Vec<u8> = said.collect();
    write(out, kind::SETTINGS, 0, 0, &payload);
}

/// The other side's settings hold from here on.
pub fn settings_taken(out: &mut Vec<u8>) {
    write(out, kind::SETTINGS, flag::ACK, 0, &[]);
}

/// A question that asks for nothing but an answer.
pub fn ping(out: &mut Vec<u8>, payload: [u8; 8]) {
    write(out, kind::PING, 0, 0, &payload);
}

/// The answer to a ping.
pub fn pong(out: &mut Vec<u8>, payload: [u8; 8]) {
    write(out, kind::PING, flag::ACK, 0, &payload);
}

/// A stream ends here.
pub fn reset(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    write(out, kind::RST_STREAM, 0, stream, &reason.0.to_be_bytes());
}

/// The connection ends after the streams up to `last`.
pub fn go_away(out: &mut Vec<u8>, last: u32, reason: Reason) {
    let payload = [last.to_be_bytes(), reason.0.to_be_bytes()];
    write(out, kind::GOAWAY, 0, 0, payload.as_flattened());
}

/// The other side may send so many bytes more, on a stream or, where that is 0, on the connection.
pub fn window_update(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    write(out, kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}
