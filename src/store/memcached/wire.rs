//! The meta text protocol of memcached: commands to bytes, bytes to replies. Input is bounded, and everything that has not
//! the shape of a reply is an error.

use std::io::Write;

use bytes::{Buf, BytesMut};
use smallvec::SmallVec;

/// Longest line that is read.
const LONGEST_LINE: usize = 512;
/// Largest value that is read: a list of 1,000 gateways fits.
const LARGEST_VALUE: usize = 16_384;

/// What a stored value may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaces {
    /// Nothing: there must be no such item.
    Nothing,
    /// The item with this version.
    Version(u64),
}

/// The reply to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaReply {
    /// `HD`: done.
    Done,
    /// `VA`: a value.
    Value {
        /// Its bytes.
        bytes: SmallVec<[u8; 24]>,
        /// Its version, where it was asked for.
        version: u64,
    },
    /// `EN`, `NF`: there is no such item.
    Missing,
    /// `NS`, `EX`: not stored, because another value was there.
    Other,
    /// `SERVER_ERROR`, with the server's message.
    Refused(String),
}

/// A reply, and the number of its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedReply {
    /// The reply.
    pub reply: MetaReply,
    /// The number that the command carried; errors come without it.
    pub opaque: Option<u32>,
}

/// Commands that are sent at once; each gets one reply, in order.
#[derive(Debug)]
pub(super) struct CommandBatch {
    /// What is sent.
    pub text: Vec<u8>,
    /// Commands in it.
    pub count: usize,
    /// The number that the reply to the first command carries.
    pub opaque: u32,
    /// The increments, to be taken back where they are not kept.
    pub adds: SmallVec<[Add; 2]>,
    /// The index of the reply which, when it is `HD`, makes the increments final.
    pub noted: Option<usize>,
}

/// Units counted in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Add {
    /// The place of the reply.
    pub place: usize,
    /// The bucket.
    pub key: String,
    /// Units.
    pub units: u32,
}

impl CommandBatch {
    pub(super) fn new(opaque: u32) -> CommandBatch {
        CommandBatch {
            text: Vec::new(),
            count: 0,
            opaque,
            adds: SmallVec::new(),
            noted: None,
        }
    }

    /// Ends a command: the first of a batch carries the number.
    fn end(&mut self) -> usize {
        if self.count == 0 {
            // Writing to memory does not fail, here and below.
            let _ = write!(self.text, " O{}", self.opaque);
        }
        self.text.extend_from_slice(b"\r\n");
        self.count += 1;
        self.count - 1
    }

    /// Asks for a value. Returns the index of the reply, as all commands do.
    pub(super) fn get(&mut self, key: &str) -> usize {
        let _ = write!(self.text, "mg {key} v");
        self.end()
    }

    /// Asks for a value and its version.
    pub(super) fn get_version(&mut self, key: &str) -> usize {
        let _ = write!(self.text, "mg {key} c v");
        self.end()
    }

    /// Increments a bucket, a new one with this time to live where there is none, and asks for the sum.
    pub(super) fn add(&mut self, key: String, units: u32, life: u64) -> usize {
        let _ = write!(self.text, "ma {key} N{life} J{units} D{units} v");
        let place = self.end();
        self.adds.push(Add { place, key, units });
        place
    }

    /// Decrements a bucket, if there is one.
    pub(super) fn give(&mut self, key: &str, units: u32) -> usize {
        let _ = write!(self.text, "ma {key} MD D{units}");
        self.end()
    }

    /// Increments a bucket again by units that were taken out, if there is one.
    pub(super) fn restore(&mut self, key: &str, units: u32) -> usize {
        let _ = write!(self.text, "ma {key} D{units}");
        self.end()
    }

    /// Stores a value.
    pub(super) fn set(&mut self, key: &str, value: &[u8], life: u64, replaces: Replaces) -> usize {
        let _ = write!(self.text, "ms {key} {} T{life}", value.len());
        let _ = match replaces {
            Replaces::Nothing => write!(self.text, " ME"),
            Replaces::Version(version) => write!(self.text, " C{version}"),
        };
        let place = self.end();
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(b"\r\n");
        place
    }

    /// Deletes an item.
    pub(super) fn delete(&mut self, key: &str) -> usize {
        let _ = write!(self.text, "md {key}");
        self.end()
    }
}

/// Takes the next reply from the front of `input`; `None` while it is incomplete.
///
/// # Errors
///
/// What is wrong with the input, as text for logs.
pub fn next(input: &mut BytesMut) -> Result<Option<ParsedReply>, String> {
    let bytes = &input[..];
    let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(LONGEST_LINE)]) else {
        return match bytes.len() < LONGEST_LINE {
            true => Ok(None),
            false => Err("a line has no end".to_owned()),
        };
    };
    let line = bytes[..end]
        .strip_suffix(b"\r")
        .ok_or("a line ends without CR")?;
    let line = str::from_utf8(line).map_err(|_| "a line is no text")?;
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut used = end + 1;
    let mut rest = rest.split(' ').filter(|flag| !flag.is_empty());
    let mut value = None;
    let reply = match word {
        "HD" => MetaReply::Done,
        "EN" | "NF" => MetaReply::Missing,
        "NS" | "EX" => MetaReply::Other,
        "SERVER_ERROR" => MetaReply::Refused(line.to_owned()),
        "VA" => {
            let size: usize = rest
                .next()
                .and_then(digits)
                .ok_or("a value has no length")?;
            if size > LARGEST_VALUE {
                return Err(format!("a value has {size} bytes"));
            }
            let Some(found) = bytes.get(used..used + size + 2) else {
                return Ok(None);
            };
            let found = found
                .strip_suffix(b"\r\n")
                .ok_or("a value is longer than it says")?;
            value = Some(SmallVec::from_slice(found));
            used += size + 2;
            MetaReply::Done
        }
        _ => return Err(format!("`{}`", line.escape_debug())),
    };
    let (mut opaque, mut version) = (None, 0);
    if !matches!(reply, MetaReply::Refused(_)) {
        for flag in rest {
            match flag.split_at_checked(1) {
                Some(("O", number)) => opaque = Some(digits(number).ok_or("an odd number")?),
                Some(("c", number)) => version = digits(number).ok_or("an odd version")?,
                _ => return Err(format!("`{}`", line.escape_debug())),
            }
        }
    }
    let reply = match value {
        Some(bytes) => MetaReply::Value { bytes, version },
        None => reply,
    };
    input.advance(used);
    Ok(Some(ParsedReply { reply, opaque }))
}

fn digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    // `parse` alone would read a sign.
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// A counter: memcached leaves spaces where one has become shorter.
pub(super) fn count(bytes: &[u8]) -> Option<u64> {
    digits(str::from_utf8(bytes).ok()?.trim_end_matches(' '))
}

#[cfg(test)]
mod tests;
