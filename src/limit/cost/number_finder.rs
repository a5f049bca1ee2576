//! Reads JSON documents that come in pieces, and finds the last number at a path in them. A text may hold one document,
//! several in a row, one a line, or a list of them. Containers off the path are skipped, however deep they are, and
//! nothing of them is kept.
//!
//! If a name stands twice, the last number counts. A document that breaks the grammar outside the skipped containers is
//! skipped to the end of its line. The next line is read as another document.

use smallvec::SmallVec;

use super::container_skip::ContainerSkip;
use super::json_path::JsonPath;
use super::units::parse_units;

/// Maximum bytes of a number, or of a string that contains one. Longer texts are ignored.
pub const MAX_NUMBER_BYTES: usize = 64;

/// Finds the number at one path.
#[derive(Debug)]
pub struct NumberFinder {
    path: JsonPath,
    /// What the next byte belongs to.
    state: ParserState,
    /// The number of open objects on the path; 0 between documents.
    level: usize,
    /// The container that is being skipped.
    skipping: ContainerSkip,
    /// The number of bytes of the current name so far, as long as the path's name at this level begins with them;
    /// `None` once they differ.
    matched_bytes: Option<usize>,
    /// The first half of a surrogate pair, after its escape.
    high_surrogate: Option<u32>,
    /// The value at the path so far; at most one byte more than [`MAX_NUMBER_BYTES`].
    number_text: SmallVec<[u8; MAX_NUMBER_BYTES]>,
    /// Whether only blanks have come since the line began.
    is_line_start: bool,
    /// The last number at the path in units.
    last_number: Option<u32>,
}

/// The part of a document in which the parser is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// No document is open.
    BetweenDocuments,
    /// In an object, where a name or the object's end follows.
    NameOrEnd,
    /// After the name of a member.
    BeforeColon,
    /// After the colon of a member.
    BeforeValue,
    /// After a value in an object, where a comma or the object's end follows.
    AfterValue,
    /// In a string.
    InString(TokenRole),
    /// After a backslash in a string.
    InEscape(TokenRole),
    /// In the four digits of an escape, with the number of digits so far and their value.
    InUnicodeEscape(TokenRole, u8, u32),
    /// In a number or a literal.
    InScalar(TokenRole),
    /// In a container off the path.
    Skipping,
    /// In a broken document, until the end of the line.
    Broken,
}

/// The role of a string or a scalar in its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenRole {
    /// The name of a member.
    Name,
    /// The value at the path.
    OnPath,
    /// Any other value.
    OffPath,
}

impl NumberFinder {
    /// A finder before the first document.
    pub fn new(path: &JsonPath) -> NumberFinder {
        NumberFinder {
            path: path.clone(),
            state: ParserState::BetweenDocuments,
            level: 0,
            skipping: ContainerSkip::default(),
            matched_bytes: None,
            high_surrogate: None,
            number_text: SmallVec::new(),
            is_line_start: true,
            last_number: None,
        }
    }

    /// The last number at the path so far, in units; `None` before the first one.
    pub fn last_number(&self) -> Option<u32> {
        self.last_number
    }

    /// Whether no document is open. A broken document counts as ended.
    pub fn is_between_documents(&self) -> bool {
        matches!(
            self.state,
            ParserState::BetweenDocuments | ParserState::Broken
        )
    }

    /// Ends the current document, even if it is not complete. Another one follows.
    pub fn end_document(&mut self) {
        self.state = ParserState::BetweenDocuments;
        self.level = 0;
        self.is_line_start = true;
    }

    /// Reads the next piece of the documents.
    pub fn feed(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let read_bytes = match self.state {
                ParserState::InString(role) => self.read_string(role, data),
                ParserState::Skipping => self.skip_container(data),
                ParserState::InScalar(role) => self.read_scalar(role, data),
                ParserState::Broken => self.skip_broken_line(data),
                _ => {
                    self.read_byte(data[0]);
                    1
                }
            };
            data = &data[read_bytes..];
        }
    }

    /// Reads one byte between tokens, or in an escape.
    fn read_byte(&mut self, byte: u8) {
        match self.state {
            ParserState::InEscape(role) => return self.read_escape(role, byte),
            ParserState::InUnicodeEscape(role, digits, code) => {
                return self.read_unicode_digit(role, digits, code, byte);
            }
            _ => {}
        }
        match byte {
            b'\n' | b'\r' => return self.is_line_start = true,
            b' ' | b'\t' => return,
            _ => {}
        }
        self.state = match (self.state, byte) {
            (ParserState::BetweenDocuments, b'{') => {
                self.level = 1;
                ParserState::NameOrEnd
            }
            // Brackets and commas of a list, the separator of text sequences (RFC 7464), and byte-order marks.
            (ParserState::BetweenDocuments, b'[' | b']' | b',' | 0x1e | 0xef | 0xbb | 0xbf) => {
                ParserState::BetweenDocuments
            }
            (ParserState::BetweenDocuments, b'"') => ParserState::InString(TokenRole::OffPath),
            (
                ParserState::BetweenDocuments,
                // The first bytes of numbers, literals, and Python's `NaN` and `Infinity`.
                b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I',
            ) => ParserState::InScalar(TokenRole::OffPath),
            (ParserState::NameOrEnd, b'"') => {
                self.matched_bytes = Some(0);
                self.high_surrogate = None;
                ParserState::InString(TokenRole::Name)
            }
            (ParserState::NameOrEnd | ParserState::AfterValue, b'}') => self.close_object(),
            (ParserState::BeforeColon, b':') => ParserState::BeforeValue,
            (ParserState::AfterValue, b',') => ParserState::NameOrEnd,
            (ParserState::BeforeValue, byte) => match self.begin_value(byte) {
                Some(state) => state,
                None => return self.reject_document(byte),
            },
            _ => return self.reject_document(byte),
        };
        self.is_line_start = false;
    }

    /// The state after the first byte of a value; `None` if no value begins with it.
    fn begin_value(&mut self, byte: u8) -> Option<ParserState> {
        let is_on_path = self.matched_bytes == Some(self.path[self.level - 1].len());
        let is_last_level = self.level == self.path.len();
        let role = match is_on_path && is_last_level {
            true => TokenRole::OnPath,
            false => TokenRole::OffPath,
        };
        Some(match byte {
            b'{' if is_on_path && !is_last_level => {
                self.level += 1;
                ParserState::NameOrEnd
            }
            b'{' | b'[' => {
                self.skipping = ContainerSkip::begin();
                ParserState::Skipping
            }
            b'"' => {
                self.number_text.clear();
                self.high_surrogate = None;
                ParserState::InString(role)
            }
            // Python writes `NaN` and `Infinity` too.
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I' => {
                self.number_text.clear();
                self.append(role, &[byte]);
                ParserState::InScalar(role)
            }
            _ => return None,
        })
    }

    fn close_object(&mut self) -> ParserState {
        self.level -= 1;
        self.state_after_value()
    }

    fn state_after_value(&self) -> ParserState {
        match self.level {
            0 => ParserState::BetweenDocuments,
            _ => ParserState::AfterValue,
        }
    }

    /// Gives up a document that breaks the grammar at `byte`. If the byte begins a line, it may begin another document.
    fn reject_document(&mut self, byte: u8) {
        let begins_document = byte == b'{' && self.is_line_start;
        self.level = usize::from(begins_document);
        self.state = match byte {
            b'\n' | b'\r' => ParserState::BetweenDocuments,
            _ if begins_document => ParserState::NameOrEnd,
            _ => ParserState::Broken,
        };
        self.is_line_start = self.state == ParserState::BetweenDocuments;
    }

    /// Skips a broken document up to the end of its line. Returns the number of bytes read.
    fn skip_broken_line(&mut self, data: &[u8]) -> usize {
        let Some(end) = memchr::memchr2(b'\n', b'\r', data) else {
            return data.len();
        };
        self.end_document();
        end + 1
    }

    /// Reads a string up to its end, an escape, a line feed or the end of `data`. Returns the number of bytes read.
    fn read_string(&mut self, role: TokenRole, data: &[u8]) -> usize {
        // A line feed must be escaped in a string. One that is not breaks the document, and ends it.
        let Some(end) = memchr::memchr3(b'"', b'\\', b'\n', data) else {
            self.append(role, data);
            return data.len();
        };
        if end > 0 {
            self.append(role, &data[..end]);
        }
        match data[end] {
            b'"' => self.end_string(role),
            b'\\' => self.state = ParserState::InEscape(role),
            byte => self.reject_document(byte),
        }
        end + 1
    }

    fn end_string(&mut self, role: TokenRole) {
        self.append(role, b"");
        self.state = match role {
            TokenRole::Name => ParserState::BeforeColon,
            TokenRole::OnPath => {
                self.keep_number();
                self.state_after_value()
            }
            TokenRole::OffPath => self.state_after_value(),
        };
    }

    fn read_escape(&mut self, role: TokenRole, byte: u8) {
        self.state = ParserState::InString(role);
        let unescaped = match byte {
            b'u' => return self.state = ParserState::InUnicodeEscape(role, 0, 0),
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            unescaped => unescaped,
        };
        self.append(role, &[unescaped]);
    }

    fn read_unicode_digit(&mut self, role: TokenRole, digits: u8, code: u32, byte: u8) {
        let Some(digit) = char::from(byte).to_digit(16) else {
            return self.reject_document(byte);
        };
        let code = code * 16 + digit;
        if digits < 3 {
            return self.state = ParserState::InUnicodeEscape(role, digits + 1, code);
        }
        self.state = ParserState::InString(role);
        match (self.high_surrogate.take(), code) {
            (high_surrogate, 0xd800..0xdc00) => {
                if high_surrogate.is_some() {
                    self.append(role, REPLACEMENT);
                }
                self.high_surrogate = Some(code);
            }
            (Some(high_surrogate), 0xdc00..0xe000) => {
                let code = 0x1_0000 + ((high_surrogate - 0xd800) << 10) + (code - 0xdc00);
                self.append_char(role, code);
            }
            // Any other escape. If the one before was half a pair, `append` writes the replacement for it first.
            (high_surrogate, code) => {
                self.high_surrogate = high_surrogate;
                self.append_char(role, code);
            }
        }
    }

    /// Adds the character of a code point, or its replacement if there is none.
    fn append_char(&mut self, role: TokenRole, code: u32) {
        let mut bytes = [0; 4];
        match char::from_u32(code) {
            Some(char) => self.append(role, char.encode_utf8(&mut bytes).as_bytes()),
            None => self.append(role, REPLACEMENT),
        }
    }

    /// Adds `bytes` to a name or to the value at the path. If half a surrogate pair waits, its replacement is added
    /// first. At the end of a string `bytes` are empty, so that only such a replacement is added.
    fn append(&mut self, role: TokenRole, bytes: &[u8]) {
        if self.high_surrogate.take().is_some() {
            self.append(role, REPLACEMENT);
        }
        match role {
            TokenRole::Name => {
                let name = self.path[self.level - 1].as_bytes();
                let unmatched = self
                    .matched_bytes
                    .and_then(|matched_bytes| name.get(matched_bytes..));
                let continues = unmatched.is_some_and(|unmatched| unmatched.starts_with(bytes));
                self.matched_bytes = self.matched_bytes.filter(|_| continues);
                self.matched_bytes = self
                    .matched_bytes
                    .map(|matched_bytes| matched_bytes + bytes.len());
            }
            TokenRole::OnPath => {
                // One byte too many shows that the number is too long.
                let room = MAX_NUMBER_BYTES + 1 - self.number_text.len();
                self.number_text
                    .extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            TokenRole::OffPath => {}
        }
    }

    /// Keeps the complete value at the path, if it is a number of at most [`MAX_NUMBER_BYTES`]. Otherwise the number that
    /// was kept before stays.
    fn keep_number(&mut self) {
        if self.number_text.len() <= MAX_NUMBER_BYTES {
            self.last_number = parse_units(&self.number_text).or(self.last_number);
        }
    }

    /// Reads a number or a literal up to its end or the end of `data`. Returns the number of bytes read.
    fn read_scalar(&mut self, role: TokenRole, data: &[u8]) -> usize {
        let continues =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-');
        let end = data.iter().position(|byte| !continues(byte));
        let end = end.unwrap_or(data.len());
        self.append(role, &data[..end]);
        if end < data.len() {
            if role == TokenRole::OnPath {
                self.keep_number();
            }
            self.state = self.state_after_value();
        }
        end
    }

    /// Skips up to the end of a container or of `data`. Returns the number of bytes read.
    fn skip_container(&mut self, data: &[u8]) -> usize {
        let read_bytes = self.skipping.feed(data);
        if self.skipping.is_over() {
            self.state = ParserState::AfterValue;
        }
        read_bytes
    }
}

/// The character that stands for half a surrogate pair.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();
