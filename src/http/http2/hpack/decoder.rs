//! What the other side says: RFC 7541 sections 3 and 6.

use super::table::{Entry, Learnt, STATIC};
use super::{ENTRY, TABLE, huffman, read_number};
use crate::http::http1::MAX_HEAD;
use crate::http::http2::{Fatal, Reason};

/// What a field means to HTTP/2 itself: RFC 9113 sections 8.2 and 8.3, RFC 8441 section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol`
    Protocol,
    /// `:status`
    Status,
    /// `host`
    Host,
    /// `cookie`, which may come in crumbs.
    Cookie,
    /// `content-length`
    Length,
    /// `te`
    Te,
    /// One of a connection of HTTP/1.1.
    Connection,
    /// Any other.
    Regular,
    /// It has a name or a value that no field has.
    Malformed,
}

impl Kind {
    /// By its name.
    pub const fn of(name: &[u8]) -> Kind {
        match name {
            b":method" => Kind::Method,
            b":scheme" => Kind::Scheme,
            b":authority" => Kind::Authority,
            b":path" => Kind::Path,
            b":protocol" => Kind::Protocol,
            b":status" => Kind::Status,
            b"host" => Kind::Host,
            b"cookie" => Kind::Cookie,
            b"content-length" => Kind::Length,
            b"te" => Kind::Te,
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding"
            | b"upgrade" => Kind::Connection,
            _ if is_name(name) => Kind::Regular,
            _ => Kind::Malformed,
        }
    }

    fn with(self, value: &[u8]) -> Kind {
        if is_value(value) {
            self
        } else {
            Kind::Malformed
        }
    }
}

const fn is_name(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        // Tokens without capitals: RFC 9110 section 5.6.2.
        let sound = matches!(name[at], b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+'
            | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        if !sound {
            return false;
        }
        at += 1;
    }
    !name.is_empty()
}

/// No control characters, and no blanks at the ends.
fn is_value(value: &[u8]) -> bool {
    let control = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !blank(value.first()) && !blank(value.last()) && !value.iter().any(control)
}

/// A field as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// Most bytes that a block may say, decoded, with [`ENTRY`] for each field: four times the largest head, so that one
/// which is merely too large does not end its connection. A field of two bytes may say what a table keeps of 4 KiB.
const MOST: usize = 4 * MAX_HEAD;

const UNREADABLE: Fatal = Fatal(Reason::COMPRESSION_ERROR);

/// The other side's table. It keeps at most [`TABLE`] bytes.
#[derive(Debug)]
pub struct Decoder {
    learnt: Learnt,
    /// What of a field came in Huffman's code.
    text: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder {
            learnt: Learnt::new(TABLE),
            text: Vec::new(),
        }
    }
}

impl Decoder {
    /// Hands on each field of a block.
    ///
    /// # Errors
    ///
    /// When it cannot be read or says more than [`MOST`] bytes; then none can be read that comes after.
    pub fn decode(&mut self, block: &[u8], mut field: impl FnMut(Field<'_>)) -> Result<(), Fatal> {
        let mut rest = block;
        let mut begun = false;
        let mut left = MOST;
        let mut hand_on = |said: Field<'_>| {
            let size = said.name.len() + said.value.len() + ENTRY;
            let after = left.checked_sub(size);
            left = after.ok_or(Fatal(Reason::ENHANCE_YOUR_CALM))?;
            field(said);
            Ok(())
        };
        while let Some(first) = rest.first() {
            match first {
                0x80.. => {
                    let index = read_number(&mut rest, 7).ok_or(UNREADABLE)?;
                    let (_, said) = indexed(&self.learnt, index).ok_or(UNREADABLE)?;
                    hand_on(said)?;
                }
                0x20..0x40 => {
                    let size = read_number(&mut rest, 5).ok_or(UNREADABLE)?;
                    if begun || size > TABLE {
                        return Err(UNREADABLE);
                    }
                    self.learnt.resize(size);
                    continue;
                }
                _ => self.literal(*first, &mut rest, &mut hand_on)?,
            }
            begun = true;
        }
        Ok(())
    }

    fn literal(
        &mut self,
        first: u8,
        rest: &mut &[u8],
        hand_on: &mut impl FnMut(Field<'_>) -> Result<(), Fatal>,
    ) -> Result<(), Fatal> {
        let Decoder { learnt, text } = self;
        text.clear();
        let learn = first & 0x40 != 0;
        let index = read_number(rest, if learn { 6 } else { 4 }).ok_or(UNREADABLE)?;
        let (named, name) = match index {
            0 => (None, read_text(rest, text).ok_or(UNREADABLE)?),
            _ => {
                let (named, known) = indexed(learnt, index).ok_or(UNREADABLE)?;
                (Some(named), Some(known.name))
            }
        };
        let length = text.len();
        let value = read_text(rest, text).ok_or(UNREADABLE)?;
        let (coded_name, coded_value) = text.split_at(length);
        let (name, value) = (name.unwrap_or(coded_name), value.unwrap_or(coded_value));
        let named = named.unwrap_or_else(|| Kind::of(name));
        let kind = named.with(value);
        hand_on(Field { kind, name, value })?;
        if learn {
            let mut entry = Entry::new(kind, name, value);
            entry.named = named;
            learnt.add(entry);
        }
        Ok(())
    }

    /// Gives up what is not needed between two blocks.
    pub fn rest(&mut self) {
        self.text = Vec::new();
    }
}

/// What a field's name says by itself, and the field.
fn indexed(learnt: &Learnt, index: usize) -> Option<(Kind, Field<'_>)> {
    let before = match STATIC.get(index.checked_sub(1)?) {
        Some((name, value, kind)) => {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            let kind = *kind;
            return Some((kind, Field { kind, name, value }));
        }
        None => index - 1 - STATIC.len(),
    };
    let entry = learnt.get(before)?;
    let field = Field {
        kind: entry.kind,
        name: entry.name(),
        value: entry.value(),
    };
    Some((entry.named, field))
}

/// A text from the front of `rest`: section 5.2. One in Huffman's code is appended to `text`, and then there is no
/// other.
fn read_text<'a>(rest: &mut &'a [u8], text: &mut Vec<u8>) -> Option<Option<&'a [u8]>> {
    let coded = rest.first()? & 0x80 != 0;
    let length = read_number(rest, 7)?;
    let (bytes, others) = rest.split_at_checked(length)?;
    *rest = others;
    if coded {
        huffman::decode(bytes, text)?;
        return Some(None);
    }
    Some(Some(bytes))
}
