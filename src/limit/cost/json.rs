//! Finds the last number at a path of JSON documents that come in pieces: one document, several in a row, one a line, or
//! the elements of a list. Objects off the path are skipped, however deep they are.
//!
//! If a name stands twice, the last number counts. A document that breaks the grammar on the path is skipped to the
//! end of its line. The next line is read on its own.

use std::sync::Arc;

use smallvec::SmallVec;

use super::skip::Skip;
use super::units::units;

/// The names of the members that lead to a number in a JSON document, outermost first.
pub type Path = Arc<[String]>;

/// The most bytes of a number, or of a string that contains one. A longer one is ignored.
pub const MAX_NUMBER: usize = 64;

/// Finds the number at one path.
#[derive(Debug)]
pub struct Finder {
    path: Path,
    state: ParserState,
    /// How many objects of the path are open; 0 between documents.
    level: usize,
    /// The container that is being skipped.
    skipping: Skip,
    /// How many bytes of the current name match the name of the path; none for another name.
    matched: Option<usize>,
    /// The first half of a surrogate pair.
    high: Option<u32>,
    text: SmallVec<[u8; MAX_NUMBER]>,
    /// Whether only blanks came since the line began.
    fresh: bool,
    found: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// No document is open.
    Between,
    /// A name follows, or the end of the object.
    Name,
    Colon,
    Value,
    /// After a value.
    After,
    /// In a string.
    Text(TokenRole),
    /// After a backslash in a string.
    Escape(TokenRole),
    /// In the four digits of an escape: digits so far, and their value.
    Unicode(TokenRole, u8, u32),
    /// In a number or a literal.
    Scalar(TokenRole),
    /// In a container off the path.
    Skip,
    /// In a broken document, until the end of the line.
    Broken,
}

/// What a string or a number is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenRole {
    Name,
    /// The value at the path.
    OnPath,
    OffPath,
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
    pub fn last_number(&self) -> Option<u32> {
        self.found
    }

    /// Whether no document is open.
    pub fn is_between(&self) -> bool {
        matches!(self.state, ParserState::Between | ParserState::Broken)
    }

    /// Ends the document, whatever its state; another one follows.
    pub fn end_document(&mut self) {
        self.state = ParserState::Between;
        self.level = 0;
        self.fresh = true;
    }

    pub fn feed(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let read = match self.state {
                ParserState::Text(role) => self.string(role, data),
                ParserState::Skip => self.skip(data),
                ParserState::Scalar(role) => self.scalar(role, data),
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
            ParserState::Escape(role) => return self.escape(role, byte),
            ParserState::Unicode(role, digits, code) => {
                return self.unicode(role, digits, code, byte);
            }
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
            (ParserState::Between, b'"') => ParserState::Text(TokenRole::OffPath),
            (ParserState::Between, b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I') => {
                ParserState::Scalar(TokenRole::OffPath)
            }
            (ParserState::Name, b'"') => {
                self.matched = Some(0);
                self.high = None;
                ParserState::Text(TokenRole::Name)
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
        let role = match hit && last {
            true => TokenRole::OnPath,
            false => TokenRole::OffPath,
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
                ParserState::Text(role)
            }
            // Python writes `NaN` and `Infinity` too.
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I' => {
                self.text.clear();
                self.push(role, &[byte]);
                ParserState::Scalar(role)
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

    /// Gives up a document that breaks the grammar at `byte`, unless that begins another one.
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

    fn string(&mut self, role: TokenRole, data: &[u8]) -> usize {
        // A line feed in a string means that the string is broken.
        let Some(end) = memchr::memchr3(b'"', b'\\', b'\n', data) else {
            self.push(role, data);
            return data.len();
        };
        if end > 0 {
            self.push(role, &data[..end]);
        }
        match data[end] {
            b'"' => self.string_ends(role),
            b'\\' => self.state = ParserState::Escape(role),
            byte => self.fail(byte),
        }
        end + 1
    }

    fn string_ends(&mut self, role: TokenRole) {
        self.push(role, b"");
        self.state = match role {
            TokenRole::Name => ParserState::Colon,
            TokenRole::OnPath => {
                self.take();
                self.after()
            }
            TokenRole::OffPath => self.after(),
        };
    }

    fn escape(&mut self, role: TokenRole, byte: u8) {
        self.state = ParserState::Text(role);
        let plain = match byte {
            b'u' => return self.state = ParserState::Unicode(role, 0, 0),
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            other => other,
        };
        self.push(role, &[plain]);
    }

    fn unicode(&mut self, role: TokenRole, digits: u8, code: u32, byte: u8) {
        let Some(digit) = char::from(byte).to_digit(16) else {
            return self.fail(byte);
        };
        let code = code * 16 + digit;
        if digits < 3 {
            return self.state = ParserState::Unicode(role, digits + 1, code);
        }
        self.state = ParserState::Text(role);
        match (self.high.take(), code) {
            (high, 0xd800..0xdc00) => {
                if high.is_some() {
                    self.push(role, LONE);
                }
                self.high = Some(code);
            }
            (Some(high), 0xdc00..0xe000) => {
                let code = 0x1_0000 + ((high - 0xd800) << 10) + (code - 0xdc00);
                self.push_char(role, code);
            }
            (high, code) => {
                self.high = high;
                self.push_char(role, code);
            }
        }
    }

    fn push_char(&mut self, role: TokenRole, code: u32) {
        let mut bytes = [0; 4];
        match char::from_u32(code) {
            Some(char) => self.push(role, char.encode_utf8(&mut bytes).as_bytes()),
            None => self.push(role, LONE),
        }
    }

    /// Adds `bytes` to a name or a number. Called without bytes at its end.
    fn push(&mut self, role: TokenRole, bytes: &[u8]) {
        if self.high.take().is_some() {
            self.push(role, LONE);
        }
        match role {
            TokenRole::Name => {
                let name = self.path[self.level - 1].as_bytes();
                let rest = self.matched.and_then(|matched| name.get(matched..));
                let continues = rest.is_some_and(|rest| rest.starts_with(bytes));
                self.matched = self.matched.filter(|_| continues);
                self.matched = self.matched.map(|matched| matched + bytes.len());
            }
            TokenRole::OnPath => {
                // One byte too many shows that the number is too long.
                let room = MAX_NUMBER + 1 - self.text.len();
                self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            TokenRole::OffPath => {}
        }
    }

    /// Takes the complete value at the path.
    fn take(&mut self) {
        if self.text.len() <= MAX_NUMBER {
            self.found = units(&self.text).or(self.found);
        }
    }

    fn scalar(&mut self, role: TokenRole, data: &[u8]) -> usize {
        let continues =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-');
        let end = data.iter().position(|byte| !continues(byte));
        let end = end.unwrap_or(data.len());
        self.push(role, &data[..end]);
        if end < data.len() {
            if role == TokenRole::OnPath {
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

/// The replacement for half a surrogate pair.
const LONE: &[u8] = "\u{fffd}".as_bytes();
