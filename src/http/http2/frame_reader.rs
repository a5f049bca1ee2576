//! Parses the frames that a client sends, and enforces the rules that need no knowledge of streams: RFC 9113 sections
//! 3.4, 4 and 6.
//!
//! It joins the frames of a block of fields. DATA frames pass on as they arrive, so that no part of a body waits for the
//! rest of its frame. `hpack` decompresses blocks, and `serve/http2` knows streams and flow control.

use super::frame::{FRAME_HEAD_BYTES, flag, kind};
use super::{ConnectionError, MAX_FRAME_PAYLOAD, Reason};
use crate::http::http1::MAX_HEAD_BYTES;

/// The bytes that a client's connection begins with: RFC 9113 section 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of one setting: an identifier of two and a value of four.
const SETTING_BYTES: usize = 6;

/// Bytes of a priority, in a PRIORITY or HEADERS frame: RFC 7540 section 6.3.
const PRIORITY_BYTES: usize = 5;

/// Maximum bytes of a compressed block of fields; a longer block ends the connection. It is more than a head may have:
/// a head that is merely too large ends only its stream. Its block must still be decoded, because it changes the table
/// of the whole connection.
const MAX_BLOCK_BYTES: usize = 4 * MAX_HEAD_BYTES;

/// A parsed frame. The frames of a block of fields are parsed as one. A DATA frame that has not arrived whole is parsed as
/// several.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A piece of a body.
    Data {
        /// The identifier of the stream.
        stream_id: u32,
        /// The content, without padding.
        data: &'a [u8],
        /// Bytes that count for flow control: the content and its padding.
        flow_bytes: u32,
        /// Whether the request ends with this piece.
        ends_stream: bool,
    },
    /// A whole block of fields.
    Headers {
        /// The identifier of the stream.
        stream_id: u32,
        /// The compressed fields, joined from all frames.
        block: &'a [u8],
        /// Whether the request ends with these fields.
        ends_stream: bool,
        /// Whether the stream is declared to depend on itself, which is an error: RFC 7540 section 5.3.1.
        depends_on_itself: bool,
    },
    /// A fragment of a block of fields, which is kept until the block is whole.
    PartialBlock,
    /// RST_STREAM: the client gives up a request.
    Reset {
        /// The identifier of the stream.
        stream_id: u32,
    },
    /// PRIORITY of a stream that is declared to depend on itself, which is an error of that stream.
    SelfDependency {
        /// The identifier of the stream.
        stream_id: u32,
    },
    /// SETTINGS of the client, which must be acknowledged.
    Settings(SettingsPayload<'a>),
    /// The acknowledgement of the gateway's settings.
    SettingsAck,
    /// PING, which must be acknowledged with the same bytes.
    Ping([u8; 8]),
    /// The acknowledgement of a ping.
    PingAck,
    /// WINDOW_UPDATE: the gateway may send more.
    WindowUpdate {
        /// The identifier of the stream; 0 for the connection.
        stream_id: u32,
        /// The number of bytes by which the window grows.
        bytes: u32,
    },
    /// The preface, or a frame that the gateway ignores: GOAWAY, other PRIORITY frames, and types that it does not
    /// support.
    Other,
}

/// The payload of a SETTINGS frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsPayload<'a>(&'a [u8]);

impl SettingsPayload<'_> {
    /// Pairs of an identifier and a value, in the order in which they must be applied.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u32)> {
        let (settings, _) = self.0.as_chunks::<SETTING_BYTES>();
        settings.iter().map(|setting| {
            let [id_0, id_1, value @ ..] = *setting;
            (u16::from_be_bytes([id_0, id_1]), u32::from_be_bytes(value))
        })
    }
}

/// Parses the frames of one connection.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// What the next bytes must be.
    stage: ReaderStage,
    /// The fragments of an incomplete block of fields, or the last block of several frames; at most
    /// [`MAX_BLOCK_BYTES`].
    block: Vec<u8>,
}

/// What the next frame may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReaderStage {
    /// The preface must come first.
    #[default]
    Preface,
    /// The rest of a DATA frame.
    Data(DataRest),
    /// The first frame must be SETTINGS.
    FirstSettings,
    /// Any frame may come.
    Frames,
    /// A block of fields is incomplete, so a CONTINUATION must come. The fields are those of [`Frame::Headers`].
    Block {
        stream_id: u32,
        ends_stream: bool,
        depends_on_itself: bool,
    },
}

/// What is still to come of a DATA frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DataRest {
    stream_id: u32,
    /// Bytes of content that are to come.
    content_bytes: usize,
    /// Bytes of padding that are to come behind the content.
    padding_bytes: usize,
    ends_stream: bool,
}

impl FrameReader {
    /// Whether the rest of a request's head must come now, or the preface is not complete yet. `unread` are the bytes
    /// that were received and not parsed.
    pub fn is_in_head(&self, unread: &[u8]) -> bool {
        // The fourth byte of a frame is its type: section 4.1.
        let has_begun = matches!(unread.get(3), Some(&(kind::HEADERS | kind::CONTINUATION)));
        has_begun || matches!(self.stage, ReaderStage::Preface | ReaderStage::Block { .. })
    }

    /// Parses the preface or the frame at the front of `input`, or the part of a DATA frame that has arrived. Returns its
    /// length in bytes and the frame; `None` if it is incomplete. The caller must remove that many bytes before the next
    /// call.
    ///
    /// # Errors
    ///
    /// The preface is wrong. The frame is malformed or must not come now, or it or its block of fields is too long.
    pub fn next_frame<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> Result<Option<(usize, Frame<'a>)>, ConnectionError> {
        match self.stage {
            ReaderStage::Preface => return self.read_preface(input),
            ReaderStage::Data(rest) => return Ok(self.read_data(rest, input)),
            _ => {}
        }
        let Some((head, after_head)) = input.split_first_chunk::<FRAME_HEAD_BYTES>() else {
            return Ok(None);
        };
        let [
            length_high,
            length_middle,
            length_low,
            kind,
            flags,
            id_0,
            id_1,
            id_2,
            id_3,
        ] = *head;
        let length = u32::from_be_bytes([0, length_high, length_middle, length_low]) as usize;
        // The highest bit is reserved and ignored: section 4.1.
        let stream_id = u32::from_be_bytes([id_0 & 0x7f, id_1, id_2, id_3]);
        self.check_order(kind, flags, stream_id)?;
        if length > MAX_FRAME_PAYLOAD || !is_valid_length(kind, flags, length) {
            return Err(ConnectionError(Reason::FRAME_SIZE_ERROR));
        }
        let Some(payload) = after_head.get(..length) else {
            return match kind {
                kind::DATA => self.begin_data(flags, stream_id, length, after_head),
                _ => Ok(None),
            };
        };
        let frame = self.parse_payload(kind, flags, stream_id, payload)?;
        Ok(Some((FRAME_HEAD_BYTES + length, frame)))
    }

    /// Parses as much of the preface as has arrived. Fails if it is another text.
    fn read_preface(
        &mut self,
        input: &[u8],
    ) -> Result<Option<(usize, Frame<'static>)>, ConnectionError> {
        let length = input.len().min(PREFACE.len());
        if input[..length] != PREFACE[..length] {
            return Err(ConnectionError(Reason::PROTOCOL_ERROR));
        }
        if length < PREFACE.len() {
            return Ok(None);
        }
        self.stage = ReaderStage::FirstSettings;
        Ok(Some((PREFACE.len(), Frame::Other)))
    }

    /// Parses the begin of a DATA frame of `length` bytes, of which `arrived` are there, fewer than all. `None` if these are
    /// too few. Fails if the padding does not fit into the frame.
    fn begin_data<'a>(
        &mut self,
        flags: u8,
        stream_id: u32,
        length: usize,
        arrived: &'a [u8],
    ) -> Result<Option<(usize, Frame<'a>)>, ConnectionError> {
        let is_padded = flags & flag::PADDED != 0;
        let (padding_bytes, arrived) = match arrived.split_first() {
            Some((padding_length, arrived)) if is_padded => (usize::from(*padding_length), arrived),
            _ => (0, arrived),
        };
        if arrived.is_empty() {
            return Ok(None);
        }
        let head_bytes = usize::from(is_padded);
        let content_bytes = length.checked_sub(head_bytes + padding_bytes);
        let rest = DataRest {
            stream_id,
            content_bytes: content_bytes.ok_or(ConnectionError(Reason::PROTOCOL_ERROR))?,
            padding_bytes,
            ends_stream: flags & flag::END_STREAM != 0,
        };
        let mut piece = self.read_data(rest, arrived);
        if let Some((piece_bytes, Frame::Data { flow_bytes, .. })) = &mut piece {
            *piece_bytes += FRAME_HEAD_BYTES + head_bytes;
            *flow_bytes += head_bytes as u32;
        }
        Ok(piece)
    }

    /// Parses what has arrived of the rest of a DATA frame; `None` if that is nothing.
    fn read_data<'a>(
        &mut self,
        mut rest: DataRest,
        arrived: &'a [u8],
    ) -> Option<(usize, Frame<'a>)> {
        let (data, behind) = arrived.split_at(rest.content_bytes.min(arrived.len()));
        let padding_bytes = rest.padding_bytes.min(behind.len());
        let piece_bytes = data.len() + padding_bytes;
        if piece_bytes == 0 {
            return None;
        }
        rest.content_bytes -= data.len();
        rest.padding_bytes -= padding_bytes;
        let is_whole = rest.content_bytes + rest.padding_bytes == 0;
        self.stage = match is_whole {
            true => ReaderStage::Frames,
            false => ReaderStage::Data(rest),
        };
        let frame = Frame::Data {
            stream_id: rest.stream_id,
            data,
            flow_bytes: piece_bytes as u32,
            ends_stream: is_whole && rest.ends_stream,
        };
        Some((piece_bytes, frame))
    }

    /// Checks that a frame of this type may come now, and that it is on a stream or on the connection as its type
    /// needs.
    fn check_order(&self, kind: u8, flags: u8, stream_id: u32) -> Result<(), ConnectionError> {
        // `None` for types that may be on either.
        let is_for_connection = match kind {
            kind::SETTINGS | kind::PING | kind::GOAWAY => Some(true),
            kind::DATA
            | kind::HEADERS
            | kind::PRIORITY
            | kind::RST_STREAM
            | kind::PUSH_PROMISE
            | kind::CONTINUATION => Some(false),
            _ => None,
        };
        let is_expected = match self.stage {
            ReaderStage::Preface | ReaderStage::FirstSettings => {
                kind == kind::SETTINGS && flags & flag::ACK == 0
            }
            ReaderStage::Frames | ReaderStage::Data(_) => {
                !matches!(kind, kind::CONTINUATION | kind::PUSH_PROMISE)
            }
            ReaderStage::Block {
                stream_id: block_stream_id,
                ..
            } => kind == kind::CONTINUATION && stream_id == block_stream_id,
        };
        let is_misplaced =
            is_for_connection.is_some_and(|for_connection| for_connection != (stream_id == 0));
        if !is_expected || is_misplaced {
            return Err(ConnectionError(Reason::PROTOCOL_ERROR));
        }
        Ok(())
    }

    /// Parses a whole frame whose order and length were checked.
    fn parse_payload<'a>(
        &'a mut self,
        kind: u8,
        flags: u8,
        stream_id: u32,
        payload: &'a [u8],
    ) -> Result<Frame<'a>, ConnectionError> {
        let ends_stream = flags & flag::END_STREAM != 0;
        let is_ack = flags & flag::ACK != 0;
        Ok(match kind {
            kind::DATA => Frame::Data {
                stream_id,
                data: without_padding(payload, flags)?,
                flow_bytes: payload.len() as u32,
                ends_stream,
            },
            kind::HEADERS => return self.parse_headers(flags, stream_id, payload),
            kind::CONTINUATION => return self.append_block(payload, flags),
            kind::PRIORITY => match payload.first_chunk() {
                Some(priority) if parse_dependency(priority) == stream_id => {
                    Frame::SelfDependency { stream_id }
                }
                _ => Frame::Other,
            },
            kind::RST_STREAM => Frame::Reset { stream_id },
            kind::SETTINGS if is_ack => Frame::SettingsAck,
            kind::SETTINGS => {
                if self.stage == ReaderStage::FirstSettings {
                    self.stage = ReaderStage::Frames;
                }
                Frame::Settings(SettingsPayload(payload))
            }
            kind::PING if is_ack => Frame::PingAck,
            kind::PING => Frame::Ping(payload.try_into().unwrap_or_default()),
            kind::WINDOW_UPDATE => {
                let bytes = payload.try_into().map(u32::from_be_bytes);
                let bytes = bytes.unwrap_or_default() & super::MAX_WINDOW;
                Frame::WindowUpdate { stream_id, bytes }
            }
            _ => Frame::Other,
        })
    }

    /// Parses a HEADERS frame, which is a whole block of fields or begins one.
    fn parse_headers<'a>(
        &'a mut self,
        flags: u8,
        stream_id: u32,
        payload: &'a [u8],
    ) -> Result<Frame<'a>, ConnectionError> {
        let ends_stream = flags & flag::END_STREAM != 0;
        let mut block = without_padding(payload, flags)?;
        let mut depends_on_itself = false;
        if flags & flag::PRIORITY != 0 {
            // Everything else about priorities is ignored: section 5.3.2.
            let (priority, after_priority) = block
                .split_first_chunk::<PRIORITY_BYTES>()
                .ok_or(ConnectionError(Reason::FRAME_SIZE_ERROR))?;
            depends_on_itself = parse_dependency(priority) == stream_id;
            block = after_priority;
        }
        if flags & flag::END_HEADERS != 0 {
            return Ok(Frame::Headers {
                stream_id,
                block,
                ends_stream,
                depends_on_itself,
            });
        }
        self.block.clear();
        self.stage = ReaderStage::Block {
            stream_id,
            ends_stream,
            depends_on_itself,
        };
        self.append_block(block, flags)
    }

    /// Adds a fragment to the incomplete block of fields. The block is whole if `flags` has END_HEADERS. Fails if the
    /// block becomes longer than [`MAX_BLOCK_BYTES`].
    fn append_block(&mut self, fragment: &[u8], flags: u8) -> Result<Frame<'_>, ConnectionError> {
        if self.block.len() + fragment.len() > MAX_BLOCK_BYTES {
            return Err(ConnectionError(Reason::ENHANCE_YOUR_CALM));
        }
        self.block.extend_from_slice(fragment);
        let ReaderStage::Block {
            stream_id,
            ends_stream,
            depends_on_itself,
        } = self.stage
        else {
            return Err(ConnectionError(Reason::PROTOCOL_ERROR));
        };
        if flags & flag::END_HEADERS == 0 {
            return Ok(Frame::PartialBlock);
        }
        self.stage = ReaderStage::Frames;
        Ok(Frame::Headers {
            stream_id,
            block: &self.block,
            ends_stream,
            depends_on_itself,
        })
    }

    /// Frees the buffer of the last block of fields, unless a block is incomplete.
    pub fn free_buffer(&mut self) {
        if !matches!(self.stage, ReaderStage::Block { .. }) {
            self.block = Vec::new();
        }
    }
}

/// Whether a frame of this type may have a payload of `length` bytes.
fn is_valid_length(kind: u8, flags: u8, length: usize) -> bool {
    match kind {
        kind::PRIORITY => length == PRIORITY_BYTES,
        kind::RST_STREAM | kind::WINDOW_UPDATE => length == 4,
        kind::SETTINGS if flags & flag::ACK != 0 => length == 0,
        kind::SETTINGS => length.is_multiple_of(SETTING_BYTES),
        kind::PING => length == 8,
        kind::GOAWAY => length >= 8,
        _ => true,
    }
}

/// The identifier of the stream that a priority depends on.
fn parse_dependency(priority: &[u8; PRIORITY_BYTES]) -> u32 {
    // The highest bit is a flag, and the last byte a weight: RFC 7540 section 6.3.
    let [first, second, third, fourth, _weight] = *priority;
    u32::from_be_bytes([first & 0x7f, second, third, fourth])
}

/// The payload of a DATA or HEADERS frame without its padding. Fails if the padding does not fit into the payload.
fn without_padding(payload: &[u8], flags: u8) -> Result<&[u8], ConnectionError> {
    if flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    let (padding_length, padded_content) = payload
        .split_first()
        .ok_or(ConnectionError(Reason::FRAME_SIZE_ERROR))?;
    let content_length = padded_content
        .len()
        .checked_sub(usize::from(*padding_length));
    let content_length = content_length.ok_or(ConnectionError(Reason::PROTOCOL_ERROR))?;
    Ok(&padded_content[..content_length])
}
