//! Finds the JSON in a body: all of the body, or the data of an event stream (HTML standard, section 9.2.6). The first
//! byte that is not blank decides, because servers send each under the content type of the other.

use memchr::memmem;

use super::json::{Finder, Path};

const DATA: &[u8] = b"data";

/// In pieces shorter than this every event is read.
const SHORT: usize = 128;

/// Bytes that are searched for a name at once.
const PART: usize = 8 * 1024;

/// The ends of events, and how many of their bytes belong to the event that ends.
const EVENTS: [(&[u8], usize); 3] = [(b"\n\n", 2), (b"\n\r\n", 3), (b"\r\r", 2)];

/// The end of a line before another document.
const LINES: [(&[u8], usize); 1] = [(b"\n{", 1)];

/// Parts of content types whose numbers the server states. In other types it may repeat numbers of the client.
const STATED: [&[u8]; 3] = [b"json", b"text/event-stream", b"multipart/mixed"];

/// Parts of the content types of scripts, in which JSON is the argument of a call (JSONP).
const SCRIPTS: [&[u8]; 2] = [b"javascript", b"ecmascript"];

/// Parts of content types with one document a line.
const LINED: [&[u8]; 4] = [b"ndjson", b"jsonl", b"json-lines", b"json-seq"];

/// The beginning of an escape, by which a letter of a name may be written.
const ESCAPED: &[u8] = b"\\u00";

/// A searcher for the last name of a path, if that has only letters, digits, `_` and `-`.
fn searched(path: &Path) -> Option<memmem::Finder<'static>> {
    let name = path.last()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let finder = || memmem::Finder::new(name).into_owned();
    name.bytes().all(plain).then(finder)
}

/// The part of `data` before the first of the names, or before an escape. It searches part by part: a name early in the
/// data must not cost a search through the rest.
fn clear<'a>(names: &[memmem::Finder<'_>], data: &'a [u8]) -> &'a [u8] {
    let lengths = names.iter().map(|name| name.needle().len());
    let longest = lengths.fold(ESCAPED.len(), usize::max);
    let mut begin = 0;
    loop {
        let part = &data[begin..data.len().min(begin + PART + longest)];
        let name = names.iter().filter_map(|name| name.find(part)).min();
        let until = name.map_or(part.len(), |name| part.len().min(name + ESCAPED.len()));
        let escape = find_escape(&part[..until]);
        let first = name.into_iter().chain(escape).min();
        if let Some(first) = first {
            return &data[..begin + first];
        }
        if begin + part.len() == data.len() {
            return data;
        }
        begin += PART;
    }
}

/// The offset of the first [`ESCAPED`]. Most texts have no backslash, and a search for one byte is the fastest.
fn find_escape(data: &[u8]) -> Option<usize> {
    let backslash = memchr::memchr(ESCAPED[0], data)?;
    Some(backslash + memmem::find(&data[backslash..], ESCAPED)?)
}

/// The text of a body, which is read for numbers.
#[derive(Debug)]
pub struct BodyText {
    finders: Vec<Finder>,
    /// Searchers for the last name of each path; none if a name may be written in ways that a search does not find.
    names: Option<Vec<memmem::Finder<'static>>>,
    /// Whether an event begins here.
    event: bool,
    state: TextState,
    /// Whether the content type is `text/event-stream`.
    is_event_stream: bool,
    /// Whether the numbers are stated by the server, by the content type.
    stated: bool,
    /// Whether there is a document a line, by the content type.
    lines: bool,
    /// Whether a line just ended with a carriage return, which a line feed may follow.
    returned: bool,
}

#[derive(Clone, Copy, Debug)]
enum TextState {
    /// In a prefix that is skipped, until this byte.
    Before(u8),
    /// At the beginning of a script; only blanks came.
    Script,
    /// At the beginning; only blanks came.
    Blank,
    Json,
    /// An event stream, at the beginning of a line.
    Line,
    /// In the name of a field; how many bytes of it match [`DATA`], none for another name.
    Field(Option<usize>),
    /// After the colon of `data`.
    Colon,
    Data,
    /// In the rest of a line that is skipped.
    Other,
}

impl BodyText {
    pub fn new(paths: &[Path], content_type: Option<&[u8]>) -> BodyText {
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        let has = |names: &[&[u8]]| {
            let mut names = names.iter();
            names.any(|name| memmem::find(&content_type, name).is_some())
        };
        let stream = content_type.trim_ascii_start();
        BodyText {
            finders: paths.iter().map(Finder::new).collect(),
            names: paths.iter().map(|path| searched(path)).collect(),
            event: true,
            state: match has(&SCRIPTS) {
                true => TextState::Script,
                false => TextState::Blank,
            },
            is_event_stream: stream.starts_with(b"text/event-stream"),
            stated: content_type.is_empty() || has(&STATED),
            lines: has(&LINED),
            returned: false,
        }
    }

    /// Whether the numbers are stated by the server; see [`Measured::exact`](super::Measured::exact).
    pub fn is_stated(&self) -> bool {
        self.stated
    }

    /// The last number at a path so far, and whether no document is open.
    pub fn last_number(&self, index: usize) -> (Option<u32>, bool) {
        let finder = &self.finders[index];
        (finder.last_number(), finder.is_between())
    }

    pub fn feed(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let read = match self.state {
                TextState::Line if self.event && data.len() >= SHORT => {
                    self.event = false;
                    self.skip(data, &EVENTS)
                }
                TextState::Json => {
                    let mut rest = data;
                    if self.lines && data.len() >= SHORT {
                        // A name may have begun in the previous piece.
                        let line = memchr::memchr(b'\n', data).map_or(data.len(), |end| end + 1);
                        self.find(&data[..line]);
                        rest = &data[line..];
                        rest = &rest[self.skip(rest, &LINES)..];
                    }
                    self.find(rest);
                    data.len()
                }
                TextState::Data | TextState::Other => self.rest_of_line(data),
                _ => self.step(data[0]),
            };
            data = &data[read..];
        }
    }

    fn event_ends(&mut self) {
        self.finders.iter_mut().for_each(Finder::end_document);
        self.event = true;
    }

    /// The length of the events or lines at the beginning that can be skipped: they do not contain the last name of any
    /// path.
    fn skip(&mut self, data: &[u8], ends: &[(&[u8], usize)]) -> usize {
        let Some(names) = &self.names else { return 0 };
        let clear = clear(names, data);
        let end = ends
            .iter()
            .find_map(|(end, length)| Some(memmem::rfind(clear, end)? + length));
        if end.is_some() {
            self.returned = false;
            self.event_ends();
        }
        end.unwrap_or(0)
    }

    fn find(&mut self, data: &[u8]) {
        for finder in &mut self.finders {
            finder.feed(data);
        }
    }

    /// Reads one byte. Returns how many were read, which is none if only the state has changed.
    fn step(&mut self, byte: u8) -> usize {
        let after_return = std::mem::take(&mut self.returned);
        match (self.state, byte) {
            (TextState::Before(end), _) if byte == end => self.state = TextState::Blank,
            (TextState::Before(_), _) => {}
            (TextState::Script, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf) => {}
            // JSON alone may have the content type of a script.
            (TextState::Script, byte) => {
                self.state = match byte {
                    b'{' | b'[' => TextState::Blank,
                    _ => TextState::Before(b'('),
                };
                return 0;
            }
            (TextState::Blank, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf) => {}
            (TextState::Blank, byte) => {
                self.state = match byte {
                    b'{' | b'[' | 0x1e => TextState::Json,
                    _ if self.is_event_stream => TextState::Line,
                    // `)]}',` keeps other sites from running the JSON as a script.
                    b')' => TextState::Before(b'\n'),
                    // `true`, `false`, `null`.
                    b't' | b'f' | b'n' => TextState::Json,
                    b':' | b'a'..=b'z' | b'A'..=b'Z' => TextState::Line,
                    _ => TextState::Json,
                };
                return 0;
            }
            (TextState::Line, b'\n') if after_return => {}
            (TextState::Line, b'\n' | b'\r') => {
                self.returned = byte == b'\r';
                self.event_ends();
            }
            (TextState::Line, _) => {
                self.event = false;
                self.state = TextState::Field(Some(0));
                return 0;
            }
            (TextState::Field(name), b':') => {
                self.state = match name {
                    Some(length) if length == DATA.len() => TextState::Colon,
                    _ => TextState::Other,
                }
            }
            (TextState::Field(_), b'\n' | b'\r') => self.line_ends(byte),
            (TextState::Field(name), byte) => {
                let name = name.filter(|length| DATA.get(*length) == Some(&byte));
                self.state = TextState::Field(name.map(|length| length + 1));
            }
            (_, byte) => {
                self.state = TextState::Data;
                return usize::from(byte == b' ');
            }
        }
        1
    }

    fn line_ends(&mut self, byte: u8) {
        self.returned = byte == b'\r';
        self.state = TextState::Line;
    }

    fn rest_of_line(&mut self, data: &[u8]) -> usize {
        let end = memchr::memchr2(b'\n', b'\r', data);
        let line = &data[..end.unwrap_or(data.len())];
        if matches!(self.state, TextState::Data) {
            self.find(line);
            if end.is_some() {
                self.find(b"\n");
            }
        }
        let Some(end) = end else { return data.len() };
        self.line_ends(data[end]);
        end + 1
    }
}
