//! Frames that come in, held to the rules that need no stream to be known: RFC 9113 sections 3.4, 4 and 6.

use super::frame::{HEAD, flag, kind};
use super::{Fatal, MAX_FRAME, Reason};
use crate::http::http1::MAX_HEAD;

/// What a client begins with: RFC 9113 section 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a block of compressed fields. One that is too large for a head is read nevertheless, for what it teaches holds
/// for all streams: only its own ends then.
const MAX_BLOCK: usize = 4 * MAX_HEAD;

/// A frame, or what became whole with it.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A piece of a body.
    Data {
        /// Its stream.
        stream: u32,
        /// The content.
        data: &'a [u8],
        /// What it takes of the windows, padding included.
        weight: u32,
        /// It is the last piece.
        end: bool,
    },
    /// A whole block of compressed fields.
    Headers {
        /// Its stream.
        stream: u32,
        /// The fields.
        block: &'a [u8],
        /// Nothing comes after them.
        end: bool,
        /// The stream is said to depend on itself: RFC 7540 section 5.3.1.
        circular: bool,
    },
    /// A block that goes on with the next frame.
    Begun,
    /// A stream that the other side takes back.
    Reset {
        /// The identifier of the stream.
        stream: u32,
    },
    /// A stream is said to depend on itself.
    Circular {
        /// The identifier of the stream.
        stream: u32,
    },
    /// What the other side wants.
    Settings(Settings<'a>),
    /// The other side keeps to what it was told.
    SettingsTaken,
    /// To be answered with the same bytes.
    Ping([u8; 8]),
    /// The answer to one.
    Pong,
    /// So many bytes more may be sent.
    Window {
        /// On which stream; 0 is the connection.
        stream: u32,
        /// How many.
        bytes: u32,
    },
    /// Nothing that changes anything here.
    Other,
}

/// Pairs of what a setting is about and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings<'a>(&'a [u8]);

impl Settings<'_> {
    /// Each, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u32)> {
        self.0.as_chunks().0.iter().map(|[a, b, c, d, e, f]| {
            (
                u16::from_be_bytes([*a, *b]),
                u32::from_be_bytes([*c, *d, *e, *f]),
            )
        })
    }
}

/// Where a reader is.
#[derive(Debug, Default)]
pub struct Reader {
    stage: Stage,
    /// The block that is under way.
    block: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Preface,
    /// The first frame is one of settings.
    First,
    Frames,
    /// In a block of fields.
    Block {
        stream: u32,
        end: bool,
        circular: bool,
    },
}

impl Reader {
    /// The beginning of a request is there and its end is not; `left` is what was not read of the input.
    pub fn is_in_head(&self, left: &[u8]) -> bool {
        let begun = matches!(left.get(3), Some(&(kind::HEADERS | kind::CONTINUATION)));
        begun || matches!(self.stage, Stage::Preface | Stage::Block { .. })
    }

    /// The next frame of `input` and how many bytes to go on after; nothing when more must come.
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> Result<Option<(usize, Frame<'a>)>, Fatal> {
        if self.stage == Stage::Preface {
            let known = input.len().min(PREFACE.len());
            if input[..known] != PREFACE[..known] {
                return Err(Fatal(Reason::PROTOCOL_ERROR));
            }
            if known < PREFACE.len() {
                return Ok(None);
            }
            self.stage = Stage::First;
            return Ok(Some((PREFACE.len(), Frame::Other)));
        }
        let Some((head, rest)) = input.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [a, b, c, kind, flags, s, t, u, v] = *head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes([s & 0x7f, t, u, v]);
        self.expects(kind, flags, stream)?;
        if length > MAX_FRAME || !fits(kind, flags, length) {
            return Err(Fatal(Reason::FRAME_SIZE_ERROR));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = self.frame(kind, flags, stream, payload)?;
        Ok(Some((HEAD + length, frame)))
    }

    /// Whether such a frame may come now.
    fn expects(&mut self, kind: u8, flags: u8, stream: u32) -> Result<(), Fatal> {
        let of_connection = match kind {
            kind::SETTINGS | kind::PING | kind::GOAWAY => Some(true),
            kind::DATA
            | kind::HEADERS
            | kind::PRIORITY
            | kind::RST_STREAM
            | kind::PUSH_PROMISE
            | kind::CONTINUATION => Some(false),
            _ => None,
        };
        let expected = match self.stage {
            Stage::Preface | Stage::First => kind == kind::SETTINGS && flags & flag::ACK == 0,
            Stage::Frames => !matches!(kind, kind::CONTINUATION | kind::PUSH_PROMISE),
            Stage::Block { stream: of, .. } => kind == kind::CONTINUATION && stream == of,
        };
        if !expected || of_connection.is_some_and(|of| of != (stream == 0)) {
            return Err(Fatal(Reason::PROTOCOL_ERROR));
        }
        Ok(())
    }

    fn frame<'a>(
        &'a mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &'a [u8],
    ) -> Result<Frame<'a>, Fatal> {
        let (end, acknowledged) = (flags & flag::END_STREAM != 0, flags & flag::ACK != 0);
        Ok(match kind {
            kind::DATA => Frame::Data {
                stream,
                data: without_padding(payload, flags)?,
                weight: payload.len() as u32,
                end,
            },
            kind::HEADERS => {
                let mut block = without_padding(payload, flags)?;
                let mut circular = false;
                if flags & flag::PRIORITY != 0 {
                    // Nothing else that it says of priorities matters: section 5.3.2.
                    let split = block.split_first_chunk::<5>();
                    let (priority, rest) = split.ok_or(Fatal(Reason::FRAME_SIZE_ERROR))?;
                    circular = depends_on(priority) == stream;
                    block = rest;
                }
                if flags & flag::END_HEADERS != 0 {
                    return Ok(Frame::Headers {
                        stream,
                        block,
                        end,
                        circular,
                    });
                }
                self.block.clear();
                self.stage = Stage::Block {
                    stream,
                    end,
                    circular,
                };
                return self.gather(block, false);
            }
            kind::CONTINUATION => return self.gather(payload, flags & flag::END_HEADERS != 0),
            kind::PRIORITY => match payload.first_chunk() {
                Some(priority) if depends_on(priority) == stream => Frame::Circular { stream },
                _ => Frame::Other,
            },
            kind::RST_STREAM => Frame::Reset { stream },
            kind::SETTINGS if acknowledged => Frame::SettingsTaken,
            kind::SETTINGS => {
                if self.stage == Stage::First {
                    self.stage = Stage::Frames;
                }
                Frame::Settings(Settings(payload))
            }
            kind::PING if acknowledged => Frame::Pong,
            kind::PING => Frame::Ping(payload.try_into().unwrap_or_default()),
            kind::WINDOW_UPDATE => {
                let bytes = payload.try_into().map(u32::from_be_bytes);
                let bytes = bytes.unwrap_or_default() & super::MAX_WINDOW;
                Frame::Window { stream, bytes }
            }
            _ => Frame::Other,
        })
    }

    /// Adds to the block under way.
    fn gather(&mut self, piece: &[u8], whole: bool) -> Result<Frame<'_>, Fatal> {
        if self.block.len() + piece.len() > MAX_BLOCK {
            return Err(Fatal(Reason::ENHANCE_YOUR_CALM));
        }
        self.block.extend_from_slice(piece);
        let Stage::Block {
            stream,
            end,
            circular,
        } = self.stage
        else {
            return Err(Fatal(Reason::PROTOCOL_ERROR));
        };
        if !whole {
            return Ok(Frame::Begun);
        }
        self.stage = Stage::Frames;
        Ok(Frame::Headers {
            stream,
            block: &self.block,
            end,
            circular,
        })
    }

    /// Gives up the room of a block that is over.
    pub fn rest(&mut self) {
        if !matches!(self.stage, Stage::Block { .. }) {
            self.block = Vec::new();
        }
    }
}

/// Whether a kind of frame may have this length.
fn fits(kind: u8, flags: u8, length: usize) -> bool {
    match kind {
        kind::PRIORITY => length == 5,
        kind::RST_STREAM | kind::WINDOW_UPDATE => length == 4,
        kind::SETTINGS if flags & flag::ACK != 0 => length == 0,
        kind::SETTINGS => length.is_multiple_of(6),
        kind::PING => length == 8,
        kind::GOAWAY => length >= 8,
        _ => true,
    }
}

/// The stream that another is said to depend on.
fn depends_on(priority: &[u8; 5]) -> u32 {
    let [s, t, u, v, _] = *priority;
    u32::from_be_bytes([s & 0x7f, t, u, v])
}

fn without_padding(payload: &[u8], flags: u8) -> Result<&[u8], Fatal> {
    if flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload
        .split_first()
        .ok_or(Fatal(Reason::FRAME_SIZE_ERROR))?;
    let length = rest.len().checked_sub(usize::from(*padding));
    let length = length.ok_or(Fatal(Reason::PROTOCOL_ERROR))?;
    Ok(&rest[..length])
}
