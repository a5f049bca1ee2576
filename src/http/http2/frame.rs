//! Writes frames of HTTP/2, by RFC 9113 sections 4.1 and 6.
//!
//! It also has the numbers of frame types, flags and settings. It keeps no state: callers must make sure that a frame
//! may be sent now.

use super::Reason;

/// Bytes of a frame's head, which stands before its payload: RFC 9113 section 4.1.
pub const FRAME_HEAD_BYTES: usize = 9;

/// Frame types: RFC 9113 section 6.
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

/// Flags of frames. Their meaning depends on the frame type.
pub mod flag {
    #![allow(missing_docs)]
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings: RFC 9113 section 6.5.2 and RFC 8441 section 3.
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

/// The head of a frame whose payload has `length` bytes, fewer than 2^24. A `stream_id` of 0 is the connection.
pub fn frame_head(length: usize, kind: u8, flags: u8, stream_id: u32) -> [u8; FRAME_HEAD_BYTES] {
    let [.., length_high, length_middle, length_low] = length.to_be_bytes();
    let [id_0, id_1, id_2, id_3] = stream_id.to_be_bytes();
    [
        length_high,
        length_middle,
        length_low,
        kind,
        flags,
        id_0,
        id_1,
        id_2,
        id_3,
    ]
}

/// Appends a frame with this payload, which must have fewer than 2^24 bytes.
fn write_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream_id: u32, payload: &[u8]) {
    out.extend_from_slice(&frame_head(payload.len(), kind, flags, stream_id));
    out.extend_from_slice(payload);
}

/// Appends a HEADERS frame with the block of fields that `write_block` appends. A block that is too long for one frame
/// continues in CONTINUATION frames.
pub fn write_headers(
    out: &mut Vec<u8>,
    stream_id: u32,
    ends_stream: bool,
    write_block: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEAD_BYTES]);
    // The block is written behind an empty head, which is filled in afterwards.
    write_block(out);
    let end_stream_flag = if ends_stream { flag::END_STREAM } else { 0 };
    let length = out.len() - start - FRAME_HEAD_BYTES;
    if length <= super::MAX_FRAME_PAYLOAD {
        let head = frame_head(
            length,
            kind::HEADERS,
            end_stream_flag | flag::END_HEADERS,
            stream_id,
        );
        out[start..start + FRAME_HEAD_BYTES].copy_from_slice(&head);
        return;
    }
    let block = out.split_off(start + FRAME_HEAD_BYTES);
    out.truncate(start);
    let mut pieces = block.chunks(super::MAX_FRAME_PAYLOAD).peekable();
    let (mut kind, mut flags) = (kind::HEADERS, end_stream_flag);
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= flag::END_HEADERS;
        }
        write_frame(out, kind, flags, stream_id, piece);
        (kind, flags) = (kind::CONTINUATION, 0);
    }
}

/// Appends an empty DATA frame that ends the stream.
pub fn write_end(out: &mut Vec<u8>, stream_id: u32) {
    write_frame(out, kind::DATA, flag::END_STREAM, stream_id, &[]);
}

/// Appends a SETTINGS frame with pairs of an identifier and a value. The identifiers are in [`setting`].
pub fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let bytes = settings.iter().flat_map(|(identifier, value)| {
        let [identifier_0, identifier_1] = identifier.to_be_bytes();
        let [value_0, value_1, value_2, value_3] = value.to_be_bytes();
        [
            identifier_0,
            identifier_1,
            value_0,
            value_1,
            value_2,
            value_3,
        ]
    });
    let payload: Vec<u8> = bytes.collect();
    write_frame(out, kind::SETTINGS, 0, 0, &payload);
}

/// Appends the acknowledgement of the peer's settings.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    write_frame(out, kind::SETTINGS, flag::ACK, 0, &[]);
}

/// Appends a PING frame, which the peer must acknowledge.
pub fn write_ping(out: &mut Vec<u8>, payload: [u8; 8]) {
    write_frame(out, kind::PING, 0, 0, &payload);
}

/// Appends the acknowledgement of a PING frame with this payload.
pub fn write_ping_ack(out: &mut Vec<u8>, payload: [u8; 8]) {
    write_frame(out, kind::PING, flag::ACK, 0, &payload);
}

/// Appends a RST_STREAM frame.
pub fn write_reset(out: &mut Vec<u8>, stream_id: u32, reason: Reason) {
    write_frame(out, kind::RST_STREAM, 0, stream_id, &reason.0.to_be_bytes());
}

/// Appends a GOAWAY frame: no stream with an identifier above `last_stream_id` will be processed.
pub fn write_go_away(out: &mut Vec<u8>, last_stream_id: u32, reason: Reason) {
    let payload = [last_stream_id.to_be_bytes(), reason.0.to_be_bytes()];
    write_frame(out, kind::GOAWAY, 0, 0, payload.as_flattened());
}

/// Appends a WINDOW_UPDATE frame, which allows the peer to send `bytes` more, from 1 to
/// [`MAX_WINDOW`](super::MAX_WINDOW). Stream 0 is the connection.
pub fn write_window_update(out: &mut Vec<u8>, stream_id: u32, bytes: u32) {
    write_frame(out, kind::WINDOW_UPDATE, 0, stream_id, &bytes.to_be_bytes());
}
