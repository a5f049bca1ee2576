//! The meta text protocol of memcached (its `doc/protocol.txt`): writes commands as bytes, and parses replies from bytes.
//! Lines and values are bounded, and bytes that do not form a reply are an error. Nothing here does I/O.

use std::io::Write;

use bytes::{Buf, BytesMut};
use smallvec::SmallVec;

/// Longest line of a reply, in bytes, with its end.
const MAX_LINE_BYTES: usize = 512;
/// Largest value of a reply, in bytes. The largest of the store's values fit: a list of 1,000 gateways has 12,000 bytes, and
/// an item of entries is never larger. memcached's own bound is twice as large by default.
pub(super) const MAX_VALUE_BYTES: usize = 524_288;

/// What a stored value may replace, so that gateways do not overwrite each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaces {
    /// There must be no such item.
    Nothing,
    /// The item must have this version.
    Version(u64),
    /// There may be any item, or none.
    Anything,
}

/// The reply to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaReply {
    /// `HD`: the command was executed.
    Done,
    /// `VA`: the command returns a value.
    Value {
        /// The value, at most 512 KiB.
        bytes: SmallVec<[u8; 24]>,
        /// The item's version; 0 unless the command asked for it.
        version: u64,
    },
    /// `EN`, `NF`: there is no such item.
    Missing,
    /// `NS`, `EX`: nothing was stored, because the item exists already or has another version.
    NotStored,
    /// `SERVER_ERROR`: the whole line, with the server's message.
    ServerError(String),
}

/// A reply, and the number of its batch if it carries one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedReply {
    /// What the server has replied.
    pub reply: MetaReply,
    /// The number that the command carried: see `CommandBatch::opaque`. `None` for a command without one, and for
    /// errors.
    pub opaque: Option<u32>,
}

/// Why bytes are not a reply. The connection cannot be used any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line has no end within 512 bytes.
    #[error("a line has no end")]
    LongLine,
    /// A line ends with a bare LF.
    #[error("a line ends without CR")]
    MissingCr,
    /// A line is not UTF-8.
    #[error("a line is no text")]
    NotText,
    /// The length of a value is missing or not a number.
    #[error("a value has no length")]
    MissingLength,
    /// A value has more than 512 KiB.
    #[error("a value has {0} bytes")]
    LongValue(usize),
    /// A value does not end where its length says.
    #[error("a value is longer than it says")]
    WrongLength,
    /// The number of the batch is not a number of 32 bits.
    #[error("an odd number")]
    BadOpaque,
    /// The version of an item is not a number of 64 bits.
    #[error("an odd version")]
    BadVersion,
    /// A line, given here escaped, has an unknown first word or flag.
    #[error("`{0}`")]
    UnknownLine(String),
    /// The first reply to a batch carries another number than the batch, or none.
    #[error("a reply to another command")]
    OtherBatch,
    /// There is input, but no command awaits a reply.
    #[error("an unexpected reply")]
    UnexpectedReply,
}

/// Commands that are sent at once; each gets one reply, in order. Methods that add a command return the index of its
/// reply.
#[derive(Debug)]
pub(super) struct CommandBatch {
    /// The commands as they are sent.
    pub bytes: Vec<u8>,
    /// The number of commands.
    pub command_count: usize,
    /// The number that the first command and its reply carry: memcached's opaque token.
    pub opaque: u32,
    /// The increments of buckets, for the give-back of units that are not kept.
    pub increments: SmallVec<[Increment; 2]>,
    /// For a batch that stores a gateway's report, the index of that reply. If it is [`MetaReply::Done`], the increments
    /// are final.
    pub report_index: Option<usize>,
}

/// An increment of a bucket's count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Increment {
    /// The index of the increment's reply.
    pub reply_index: usize,
    /// The key of the bucket's item.
    pub key: String,
    /// Units that are given back unless they are kept.
    pub units: u32,
}

impl CommandBatch {
    pub(super) fn new(opaque: u32) -> CommandBatch {
        CommandBatch {
            bytes: Vec::new(),
            command_count: 0,
            opaque,
            increments: SmallVec::new(),
            report_index: None,
        }
    }

    /// Ends a command, and returns the index of its reply. The first command of a batch gets the batch's number.
    fn end_command(&mut self) -> usize {
        if self.command_count == 0 {
            // Writing to memory does not fail, here and below.
            let _ = write!(self.bytes, " O{}", self.opaque);
        }
        self.bytes.extend_from_slice(b"\r\n");
        self.command_count += 1;
        self.command_count - 1
    }

    /// Reads the value of an item.
    pub(super) fn get(&mut self, key: &str) -> usize {
        let _ = write!(self.bytes, "mg {key} v");
        self.end_command()
    }

    /// Reads the value of an item, and its version.
    pub(super) fn get_with_version(&mut self, key: &str) -> usize {
        let _ = write!(self.bytes, "mg {key} c v");
        self.end_command()
    }

    /// Adds units to a bucket, which is created with this exptime if it is missing, and reads the sum.
    pub(super) fn increment(&mut self, key: String, units: u32, exptime: u64) -> usize {
        let _ = write!(self.bytes, "ma {key} N{exptime} J{units} D{units} v");
        let reply_index = self.end_command();
        self.increments.push(Increment {
            reply_index,
            key,
            units,
        });
        reply_index
    }

    /// Subtracts units from a bucket, if it exists. memcached stops at zero.
    pub(super) fn decrement(&mut self, key: &str, units: u32) -> usize {
        let _ = write!(self.bytes, "ma {key} MD D{units}");
        self.end_command()
    }

    /// Adds units that were subtracted by mistake to a bucket again, if it exists.
    pub(super) fn restore(&mut self, key: &str, units: u32) -> usize {
        let _ = write!(self.bytes, "ma {key} D{units}");
        self.end_command()
    }

    /// Stores a value, if `replaces` allows it. An `exptime` of 0 means that the item never expires.
    pub(super) fn set(
        &mut self,
        key: &str,
        value: &[u8],
        exptime: u64,
        replaces: Replaces,
    ) -> usize {
        let _ = write!(self.bytes, "ms {key} {} T{exptime}", value.len());
        let _ = match replaces {
            Replaces::Nothing => write!(self.bytes, " ME"),
            Replaces::Version(version) => write!(self.bytes, " C{version}"),
            Replaces::Anything => Ok(()),
        };
        let reply_index = self.end_command();
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        reply_index
    }

    /// Sets when an item expires, if it exists.
    pub(super) fn touch(&mut self, key: &str, exptime: u64) -> usize {
        let _ = write!(self.bytes, "mg {key} T{exptime}");
        self.end_command()
    }

    /// Deletes an item, if it exists.
    pub(super) fn delete(&mut self, key: &str) -> usize {
        let _ = write!(self.bytes, "md {key}");
        self.end_command()
    }
}

/// Takes the next reply from the front of `input`; `None` while it is incomplete.
///
/// # Errors
///
/// [`ReplyError`] where the input is not a reply; nothing is taken then.
pub fn parse_reply(input: &mut BytesMut) -> Result<Option<ParsedReply>, ReplyError> {
    let bytes = &input[..];
    let Some(line_end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(MAX_LINE_BYTES)]) else {
        return match bytes.len() < MAX_LINE_BYTES {
            true => Ok(None),
            false => Err(ReplyError::LongLine),
        };
    };
    let line = bytes[..line_end]
        .strip_suffix(b"\r")
        .ok_or(ReplyError::MissingCr)?;
    let line = str::from_utf8(line).map_err(|_| ReplyError::NotText)?;
    let (word, flags) = line.split_once(' ').unwrap_or((line, ""));
    let mut flags = flags.split(' ').filter(|flag| !flag.is_empty());
    let mut reply_bytes = line_end + 1;
    let mut reply = match word {
        "HD" => MetaReply::Done,
        "EN" | "NF" => MetaReply::Missing,
        "NS" | "EX" => MetaReply::NotStored,
        "SERVER_ERROR" => MetaReply::ServerError(line.to_owned()),
        "VA" => {
            let length = flags.next().and_then(parse_digits);
            let length: usize = length.ok_or(ReplyError::MissingLength)?;
            let Some(value) = parse_value(&bytes[reply_bytes..], length)? else {
                return Ok(None);
            };
            reply_bytes += length + 2;
            MetaReply::Value {
                bytes: SmallVec::from_slice(value),
                version: 0,
            }
        }
        _ => return Err(unknown_line(line)),
    };
    let mut opaque = None;
    // The other words of an error are its message, not flags.
    if !matches!(reply, MetaReply::ServerError(_)) {
        for flag in flags {
            match flag.split_at_checked(1) {
                Some(("O", digits)) => {
                    opaque = Some(parse_digits(digits).ok_or(ReplyError::BadOpaque)?);
                }
                Some(("c", digits)) => {
                    let number = parse_digits(digits).ok_or(ReplyError::BadVersion)?;
                    if let MetaReply::Value { version, .. } = &mut reply {
                        *version = number;
                    }
                }
                _ => return Err(unknown_line(line)),
            }
        }
    }
    input.advance(reply_bytes);
    Ok(Some(ParsedReply { reply, opaque }))
}

/// The value of `length` bytes at the front of `bytes`, without the CRLF behind it; `None` while it is incomplete. Fails if
/// it is too long, or if no CRLF follows.
fn parse_value(bytes: &[u8], length: usize) -> Result<Option<&[u8]>, ReplyError> {
    if length > MAX_VALUE_BYTES {
        return Err(ReplyError::LongValue(length));
    }
    let Some(value) = bytes.get(..length + 2) else {
        return Ok(None);
    };
    let value = value.strip_suffix(b"\r\n");
    value.map(Some).ok_or(ReplyError::WrongLength)
}

fn unknown_line(line: &str) -> ReplyError {
    ReplyError::UnknownLine(line.escape_debug().to_string())
}

/// Parses a number; `None` if the text is empty, has other characters than digits, or is too large for the type.
fn parse_digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    // `parse` alone would accept a sign.
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

/// Parses a bucket's count; `None` if it is not a number. memcached leaves spaces behind a number that has become shorter.
pub(super) fn parse_count(bytes: &[u8]) -> Option<u64> {
    parse_digits(str::from_utf8(bytes).ok()?.trim_end_matches(' '))
}

#[cfg(test)]
mod tests;
