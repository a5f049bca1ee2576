//! Finds the last number at a path of JSON documents that come in pieces: one document, several in a row, one a
//! line, or the elements of a list. Objects that are not on the path are skipped, however deep they are.
//!
//! Of a name that stands twice the last number counts. A document that breaks the grammar where it matters is
//! given up at its line's end, so that the next line is read for itself.

use smallvec::SmallVec;

use super::skip::Skip;
use super::{Path, units};

/// Most bytes of a number, or of a string that is one; a longer one is no cost.
pub const MAX_NUMBER: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Finder {
    path: Path,
    state: ParserState,
    /// Objects of the path that are open; 0 between documents.
    level: usize,
    /// The container that is skipped.
    skipping: Skip,
    /// Bytes of the current name that are those of the path; none when it is another name.
    matched: Option<usize>,
    /// The first half of a surrogate pair.
    high: Option<u32>,
    text: SmallVec<[u8; MAX_NUMBER]>,
    /// Only blanks came since the line began.
    fresh: bool,
    found: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// No document is open.
    Between,
    /// A name comes, or the object ends.
    Name,
    Colon,
    Value,
    /// After a value.
    After,
    /// In a string.
    Text(Use),
    /// After a backslash in a string.
    Escape(Use),
    /// In the four digits of an escape.
    Unicode(Use, u8, u32),
    /// In a number or a literal.
    Scalar(Use),
    /// In a container that is not on the path.
    Skip,
    /// Until the end of the line.
    Broken,
}

/// What a string or a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Name,
    /// The value at the path.
    Wanted,
    Unwanted,
}

impl Finder {
    pub fn new(path: &Path) -> Finder {
        Finder {
            path: path.clone(),
            state: ParserState::Between,
            level: 0,
            skipping: Skip::default(),
            matched: None,
            high: None,
            text: SmallVec::new(),
            fresh: true,
            found: None,
        }
    }

    /// The last number so far.
    pub fn found(&self) -> Option<u32> {
        self.found
    }

    /// No document is open.
    pub fn is_between(&self) -> bool {
        matches!(self.state, ParserState::Between | ParserState::Broken)
    }

    /// What comes next is another document.
    pub fn end_document(&mut self) {
        self.state = ParserState::Between;
        self.level = 0;
        self.fresh = true;
    }

    pub fn feed(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let read = match self.state {
                ParserState::Text(of) => self.string(of, data),
                ParserState::Skip => self.skip(data),
                ParserState::Scalar(of) => self.scalar(of, data),
                ParserState::Broken => self.broken(data),
                _ => {
                    self.step(data[0]);
                    1
                }
            };
            data = &data[read..];
        }
    }

    /// Reads one byte between tokens, or in an escape.
    fn step(&mut self, byte: u8) {
        match self.state {
            ParserState::Escape(of) => return self.escape(of, byte),
            ParserState::Unicode(of, digits, code) => return self.unicode(of, digits, code, byte),
            _ => {}
        }
        match byte {
            b'\n' | b'\r' => return self.fresh = true,
            b' ' | b'\t' => return,
            _ => {}
        }
        self.state = match (self.state, byte) {
            (ParserState::Between, b'{') => {
                self.level = 1;
                ParserState::Name
            }
            // Lists, text sequences (RFC 7464), byte-order marks.
            (ParserState::Between, b'[' | b']' | b',' | 0x1e | 0xef | 0xbb | 0xbf) => {
                ParserState::Between
            }
            (ParserState::Between, b'"') => ParserState::Text(Use::Unwanted),
            (ParserState::Between, b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I') => {
                ParserState::Scalar(Use::Unwanted)
            }
            (ParserState::Name, b'"') => {
                self.matched = Some(0);
                self.high = None;
                ParserState::Text(Use::Name)
            }
            (ParserState::Name | ParserState::After, b'}') => self.close(),
            (ParserState::Colon, b':') => ParserState::Value,
            (ParserState::After, b',') => ParserState::Name,
            (ParserState::Value, byte) => match self.value(byte) {
                Some(state) => state,
                None => return self.fail(byte),
            },
            _ => return self.fail(byte),
        };
        self.fresh = false;
    }

    /// The state after the first byte of a value.
    fn value(&mut self, byte: u8) -> Option<ParserState> {
        let hit = self.matched == Some(self.path[self.level - 1].len());
        let last = self.level == self.path.len();
        let of = match hit && last {
            true => Use::Wanted,
            false => Use::Unwanted,
        };
        Some(match byte {
            b'{' if hit && !last => {
                self.level += 1;
                ParserState::Name
            }
            b'{' | b'[' => {
                self.skipping = Skip::begin();
                ParserState::Skip
            }
            b'"' => {
                self.text.clear();
                self.high = None;
                ParserState::Text(of)
            }
            // Python writes `NaN` and `Infinity` too.
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I' => {
                self.text.clear();
                self.push(of, &[byte]);
                ParserState::Scalar(of)
            }
            _ => return None,
        })
    }

    fn close(&mut self) -> ParserState {
        self.level -= 1;
        self.after()
    }

    fn after(&self) -> ParserState {
        match self.level {
            0 => ParserState::Between,
            _ => ParserState::After,
        }
    }

    /// The document breaks the grammar: it is over, unless this begins another one.
    fn fail(&mut self, byte: u8) {
        let begins = byte == b'{' && self.fresh;
        self.level = usize::from(begins);
        self.state = match byte {
            b'\n' | b'\r' => ParserState::Between,
            _ if begins => ParserState::Name,
            _ => ParserState::Broken,
        };
        self.fresh = self.state == ParserState::Between;
    }

    fn broken(&mut self, data: &[u8]) -> usize {
        let Some(end) = memchr::memchr2(b'\n', b'\r', data) else {
            return data.len();
        };
        self.end_document();
        end + 1
    }

    fn string(&mut self, of: Use, data: &[u8]) -> usize {
        // A line ends no string but one that is broken.
        let Some(end) = memchr::memchr3(b'"', b'\\', b'\n', data) else {
            self.push(of, data);
            return data.len();
        };
        if end > 0 {
            self.push(of, &data[..end]);
        }
        match data[end] {
            b'"' => self.string_ends(of),
            b'\\' => self.state = ParserState::Escape(of),
            byte => self.fail(byte),
        }
        end + 1
    }

    fn string_ends(&mut self, of: Use) {
        self.push(of, b"");
        self.state = match of {
            Use::Name => ParserState::Colon,
            Use::Wanted => {
                self.take();
                self.after()
            }
            Use::Unwanted => self.after(),
        };
    }

    fn escape(&mut self, of: Use, byte: u8) {
        self.state = ParserState::Text(of);
        let plain = match byte {
            b'u' => return self.state = ParserState::Unicode(of, 0, 0),
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            other => other,
        };
        self.push(of, &[plain]);
    }

    fn unicode(&mut self, of: Use, digits: u8, code: u32, byte: u8) {
        let Some(digit) = char::from(byte).to_digit(16) else {
            return self.fail(byte);
        };
        let code = code * 16 + digit;
        if digits < 3 {
            return self.state = ParserState::Unicode(of, digits + 1, code);
        }
        self.state = ParserState::Text(of);
        match (self.high.take(), code) {
            (high, 0xd800..0xdc00) => {
                if high.is_some() {
                    self.push(of, LONE);
                }
                self.high = Some(code);
            }
            (Some(high), 0xdc00..0xe000) => {
                let code = 0x1_0000 + ((high - 0xd800) << 10) + (code - 0xdc00);
                self.push_char(of, code);
            }
            (high, code) => {
                self.high = high;
                self.push_char(of, code);
            }
        }
    }

    fn push_char(&mut self, of: Use, code: u32) {
        let mut bytes = [0; 4];
        match char::from_u32(code) {
            Some(char) => self.push(of, char.encode_utf8(&mut bytes).as_bytes()),
            None => self.push(of, LONE),
        }
    }

    /// Adds to a name or a number; nothing, at its end.
    fn push(&mut self, of: Use, bytes: &[u8]) {
        if self.high.take().is_some() {
            self.push(of, LONE);
        }
        match of {
            Use::Name => {
                let name = self.path[self.level - 1].as_bytes();
                let rest = self.matched.and_then(|matched| name.get(matched..));
                let goes_on = rest.is_some_and(|rest| rest.starts_with(bytes));
                self.matched = self.matched.filter(|_| goes_on);
                self.matched = self.matched.map(|matched| matched + bytes.len());
            }
            Use::Wanted => {
                // One byte more than fits shows that it is too long.
                let room = MAX_NUMBER + 1 - self.text.len();
                self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Use::Unwanted => {}
        }
    }

    /// The value at the path is whole.
    fn take(&mut self) {
        if self.text.len() <= MAX_NUMBER {
            self.found = units(&self.text).or(self.found);
        }
    }

    fn scalar(&mut self, of: Use, data: &[u8]) -> usize {
        let goes_on =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-');
        let end = data.iter().position(|byte| !goes_on(byte));
        let end = end.unwrap_or(data.len());
        self.push(of, &data[..end]);
        if end < data.len() {
            if of == Use::Wanted {
                self.take();
            }
            self.state = self.after();
        }
        end
    }

    fn skip(&mut self, data: &[u8]) -> usize {
        let read = self.skipping.feed(data);
        if self.skipping.is_over() {
            self.state = ParserState::After;
        }
        read
    }
}

/// What stands for half a surrogate pair.
const LONE: &[u8] = "\u{fffd}".as_bytes();
