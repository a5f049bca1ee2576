//! What the other side says: RFC 7541 sections 3 and 6.

use super::table::{Entry, Learnt, STATIC};
use super::{TABLE, huffman, read_number};

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

/// The other side's table. It keeps at most [`TABLE`] bytes.
#[derive(Debug)]
pub struct Decoder {
    learnt: Learnt,
    /// A field that stands in no table.
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
    /// Hands on each field of a block; nothing when it cannot be read, and then none can that comes after.
    pub fn decode(&mut self, block: &[u8], mut field: impl FnMut(Field<'_>)) -> Option<()> {
        let mut rest = block;
        let mut begun = false;
        while let Some(first) = rest.first() {
            match first {
                0x80.. => {
                    let index = read_number(&mut rest, 7)?;
                    field(self.indexed(index)?);
                }
                0x20..0x40 => {
                    let size = read_number(&mut rest, 5)?;
                    if begun || size > TABLE {
                        return None;
                    }
                    self.learnt.resize(size);
                    continue;
                }
                _ => {
                    let learn = first & 0x40 != 0;
                    let index = read_number(&mut rest, if learn { 6 } else { 4 })?;
                    field(self.literal(index, learn, &mut rest)?);
                }
            }
            begun = true;
        }
        Some(())
    }

    fn indexed(&self, index: usize) -> Option<Field<'_>> {
        let before = match STATIC.get(index.checked_sub(1)?) {
            Some((name, value, kind)) => {
                return Some(Field {
                    kind: *kind,
                    name: name.as_bytes(),
                    value: value.as_bytes(),
                });
            }
            None => index - 1 - STATIC.len(),
        };
        let entry = self.learnt.get(before)?;
        Some(Field {
            kind: entry.kind,
            name: entry.name(),
            value: entry.value(),
        })
    }

    fn literal(&mut self, index: usize, learn: bool, rest: &mut &[u8]) -> Option<Field<'_>> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let kind = match index {
            0 => {
                read_text(rest, &mut text)?;
                Kind::of(&text)
            }
            _ => {
                let known = self.indexed(index)?;
                text.extend_from_slice(known.name);
                // One with a value that none has may have a name that one has.
                match known.kind {
                    Kind::Malformed => Kind::of(known.name),
                    kind => kind,
                }
            }
        };
        let length = text.len();
        read_text(rest, &mut text)?;
        self.text = text;
        let (name, value) = self.text.split_at(length);
        let kind = kind.with(value);
        if learn {
            self.learnt.add(Entry::new(kind, name, value));
        }
        Some(Field { kind, name, value })
    }

    /// Gives up what is not needed between two blocks.
    pub fn rest(&mut self) {
        self.text = Vec::new();
    }
}

/// Appends a text from the front of `rest`: section 5.2.
fn read_text(rest: &mut &[u8], text: &mut Vec<u8>) -> Option<()> {
    let coded = rest.first()? & 0x80 != 0;
    let length = read_number(rest, 7)?;
    let (bytes, others) = rest.split_at_checked(length)?;
    *rest = others;
    if coded {
        return huffman::decode(bytes, text);
    }
    text.extend_from_slice(bytes);
    Some(())
}
