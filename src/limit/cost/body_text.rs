//! Finds the JSON in a body: all of the body, or the data of an event stream (HTML standard, section 9.2.6). The first
//! byte that is not blank decides between the two, because servers send each under the content type of the other. What
//! stands before the JSON in a script, or keeps other sites from running it as one, is skipped.
//!
//! Events and lines that do not contain the last name of any path are skipped without being parsed.

use memchr::memmem;

use super::json_path::JsonPath;
use super::number_finder::NumberFinder;

/// The name of the event stream's fields that contain data.
const DATA_FIELD: &[u8] = b"data";

/// The smallest number of bytes of a piece that is searched for names. In shorter pieces every event is parsed, because
/// the search would cost more than it saves.
const MIN_SEARCHED_BYTES: usize = 128;

/// The number of bytes that are searched for names at once. A name early in the data then ends the search early.
const SEARCH_PART_BYTES: usize = 8 * 1024;

/// The byte sequences that end an event, and how many of their bytes belong to that event.
const EVENT_ENDS: [(&[u8], usize); 4] = [(b"\n\n", 2), (b"\n\r\n", 3), (b"\r\r", 2), (b"\n\r", 2)];

/// The byte sequence that ends a line before another document, and how many of its bytes belong to that line.
const LINE_ENDS: [(&[u8], usize); 1] = [(b"\n{", 1)];

/// Parts of content types whose numbers the server states. Bodies of other types may repeat numbers of the client.
const STATED_TYPES: [&[u8]; 3] = [b"json", b"text/event-stream", b"multipart/mixed"];

/// Parts of the content types of scripts, in which JSON is the argument of a call (JSONP).
const SCRIPT_TYPES: [&[u8]; 2] = [b"javascript", b"ecmascript"];

/// Parts of content types with one document a line.
const LINE_TYPES: [&[u8]; 3] = [b"ndjson", b"jsonl", b"json-lines"];

/// The beginning of an escape, by which a letter of a name may be written.
const ESCAPE_PREFIX: &[u8] = b"\\u00";

/// A searcher for the last name of a path; `None` unless the name has only letters, digits, `_` and `-`.
fn name_searcher(path: &JsonPath) -> Option<memmem::Finder<'static>> {
    let name = path.last()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let finder = || memmem::Finder::new(name).into_owned();
    name.bytes().all(is_plain).then(finder)
}

/// The part of `data` before the first of the names, or before an escape. The data is searched part by part, because a
/// name early in the data must not cost a search through all of it.
fn part_before_names<'a>(names: &[memmem::Finder<'_>], data: &'a [u8]) -> &'a [u8] {
    let lengths = names.iter().map(|name| name.needle().len());
    let longest_length = lengths.fold(ESCAPE_PREFIX.len(), usize::max);
    let mut part_start = 0;
    loop {
        let part = &data[part_start
            ..data
                .len()
                .min(part_start + SEARCH_PART_BYTES + longest_length)];
        let first_name = names.iter().filter_map(|name| name.find(part)).min();
        let search_end = first_name.map_or(part.len(), |offset| {
            part.len().min(offset + ESCAPE_PREFIX.len())
        });
        let first_escape = find_escape(&part[..search_end]);
        if let Some(offset) = first_name.into_iter().chain(first_escape).min() {
            return &data[..part_start + offset];
        }
        if part_start + part.len() == data.len() {
            return data;
        }
        part_start += SEARCH_PART_BYTES;
    }
}

/// The offset of the first [`ESCAPE_PREFIX`]. Most texts have no backslash, and a search for one byte is the fastest.
fn find_escape(data: &[u8]) -> Option<usize> {
    let backslash = memchr::memchr(ESCAPE_PREFIX[0], data)?;
    Some(backslash + memmem::find(&data[backslash..], ESCAPE_PREFIX)?)
}

/// The text of a body, which is read for numbers.
#[derive(Debug)]
pub struct BodyText {
    /// One finder for each path.
    finders: Vec<NumberFinder>,
    /// Searchers for the last name of each path; `None` if a name may be written in ways that a search does not find.
    names: Option<Vec<memmem::Finder<'static>>>,
    /// Whether an event begins with the next byte.
    is_event_start: bool,
    /// The part of the text that the next byte belongs to.
    state: TextState,
    /// Whether the content type is `text/event-stream`.
    is_event_stream: bool,
    /// Whether the content type is one whose numbers the server states.
    is_stated: bool,
    /// Whether the content type is one with a document in each line.
    has_lines: bool,
    /// Whether the last line ended with a carriage return, which a line feed may follow.
    is_after_return: bool,
}

/// A part of a text.
#[derive(Clone, Copy, Debug)]
enum TextState {
    /// In a prefix that is skipped up to this byte.
    Prefix(u8),
    /// At the beginning of a script, where only blanks have come.
    ScriptStart,
    /// At the beginning of a body, where only blanks have come.
    BodyStart,
    /// In JSON documents, to the end of the body.
    Json,
    /// At the beginning of an event stream's line.
    LineStart,
    /// In the name of a field, with the number of bytes that match [`DATA_FIELD`]; `None` for another name.
    FieldName(Option<usize>),
    /// After the colon of a `data` field.
    AfterColon,
    /// In the value of a `data` field.
    Data,
    /// In the rest of a line that is skipped.
    SkippedLine,
}

impl BodyText {
    /// The text of a body with this content type, whose numbers at `paths` are looked for.
    pub fn new(paths: &[JsonPath], content_type: Option<&[u8]>) -> BodyText {
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        let has_any = |parts: &[&[u8]]| {
            let mut parts = parts.iter();
            parts.any(|part| memmem::find(&content_type, part).is_some())
        };
        let media_type = content_type.trim_ascii_start();
        BodyText {
            finders: paths.iter().map(NumberFinder::new).collect(),
            names: paths.iter().map(|path| name_searcher(path)).collect(),
            is_event_start: true,
            state: match has_any(&SCRIPT_TYPES) {
                true => TextState::ScriptStart,
                false => TextState::BodyStart,
            },
            is_event_stream: media_type.starts_with(b"text/event-stream"),
            is_stated: content_type.is_empty() || has_any(&STATED_TYPES),
            has_lines: has_any(&LINE_TYPES),
            is_after_return: false,
        }
    }

    /// Whether the content type is one whose numbers the server states; see
    /// [`MeasuredCost::is_exact`](super::MeasuredCost::is_exact).
    pub fn is_stated(&self) -> bool {
        self.is_stated
    }

    /// The last number at the path with this index so far, in units, and whether no document is open. The index is that of
    /// the path in the call of [`BodyText::new`].
    pub fn last_number(&self, index: usize) -> (Option<u32>, bool) {
        let finder = &self.finders[index];
        (finder.last_number(), finder.is_between_documents())
    }

    /// Reads the next piece of the body.
    pub fn feed(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let read_bytes = match self.state {
                TextState::LineStart if self.is_event_start && data.len() >= MIN_SEARCHED_BYTES => {
                    self.is_event_start = false;
                    self.skip_without_names(data, &EVENT_ENDS)
                }
                TextState::Json => {
                    let mut unread = data;
                    if self.has_lines && data.len() >= MIN_SEARCHED_BYTES {
                        // A name may have begun in the previous piece.
                        let line_length =
                            memchr::memchr(b'\n', data).map_or(data.len(), |end| end + 1);
                        self.feed_finders(&data[..line_length]);
                        unread = &data[line_length..];
                        if self.finders.iter().all(NumberFinder::is_between_documents) {
                            unread = &unread[self.skip_without_names(unread, &LINE_ENDS)..];
                        }
                    }
                    self.feed_finders(unread);
                    data.len()
                }
                TextState::Data | TextState::SkippedLine => self.read_line_rest(data),
                _ => self.read_byte(data[0]),
            };
            data = &data[read_bytes..];
        }
    }

    /// Ends an event, and the documents in it.
    fn end_event(&mut self) {
        self.finders.iter_mut().for_each(NumberFinder::end_document);
        self.is_event_start = true;
    }

    /// Skips the events or lines at the beginning that do not contain the last name of any path. Returns their length.
    fn skip_without_names(&mut self, data: &[u8], ends: &[(&[u8], usize)]) -> usize {
        let Some(names) = &self.names else { return 0 };
        let skippable = part_before_names(names, data);
        let end = ends
            .iter()
            .find_map(|(end, length)| Some(memmem::rfind(skippable, end)? + length));
        if end.is_some() {
            self.is_after_return = false;
            self.end_event();
        }
        end.unwrap_or(0)
    }

    fn feed_finders(&mut self, data: &[u8]) {
        for finder in &mut self.finders {
            finder.feed(data);
        }
    }

    /// Reads one byte outside of JSON and data. Returns how many were read: 0 if only the state has changed.
    fn read_byte(&mut self, byte: u8) -> usize {
        let is_after_return = std::mem::take(&mut self.is_after_return);
        match (self.state, byte) {
            (TextState::Prefix(end), _) if byte == end => self.state = TextState::BodyStart,
            (TextState::Prefix(_), _) => {}
            (TextState::ScriptStart, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf) => {}
            // Plain JSON may have the content type of a script.
            (TextState::ScriptStart, byte) => {
                self.state = match byte {
                    b'{' | b'[' => TextState::BodyStart,
                    _ => TextState::Prefix(b'('),
                };
                return 0;
            }
            (TextState::BodyStart, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf) => {}
            (TextState::BodyStart, byte) => {
                self.state = match byte {
                    b'{' | b'[' | 0x1e => TextState::Json,
                    _ if self.is_event_stream => TextState::LineStart,
                    // `)]}',` keeps other sites from running the JSON as a script.
                    b')' => TextState::Prefix(b'\n'),
                    // These bytes begin `true`, `false` and `null`.
                    b't' | b'f' | b'n' => TextState::Json,
                    b':' | b'a'..=b'z' | b'A'..=b'Z' => TextState::LineStart,
                    _ => TextState::Json,
                };
                return 0;
            }
            (TextState::LineStart, b'\n') if is_after_return => {}
            (TextState::LineStart, b'\n' | b'\r') => {
                self.is_after_return = byte == b'\r';
                self.end_event();
            }
            (TextState::LineStart, _) => {
                self.is_event_start = false;
                self.state = TextState::FieldName(Some(0));
                return 0;
            }
            (TextState::FieldName(name), b':') => {
                self.state = match name {
                    Some(length) if length == DATA_FIELD.len() => TextState::AfterColon,
                    _ => TextState::SkippedLine,
                }
            }
            (TextState::FieldName(_), b'\n' | b'\r') => self.end_line(byte),
            (TextState::FieldName(name), byte) => {
                let name = name.filter(|length| DATA_FIELD.get(*length) == Some(&byte));
                self.state = TextState::FieldName(name.map(|length| length + 1));
            }
            (_, byte) => {
                self.state = TextState::Data;
                return usize::from(byte == b' ');
            }
        }
        1
    }

    /// Ends a line at `byte`, a line feed or a carriage return.
    fn end_line(&mut self, byte: u8) {
        self.is_after_return = byte == b'\r';
        self.state = TextState::LineStart;
    }

    /// Reads up to the end of a line, and passes data on to the finders. Returns the number of bytes read.
    fn read_line_rest(&mut self, data: &[u8]) -> usize {
        let end = memchr::memchr2(b'\n', b'\r', data);
        let line = &data[..end.unwrap_or(data.len())];
        if matches!(self.state, TextState::Data) {
            self.feed_finders(line);
            if end.is_some() {
                self.feed_finders(b"\n");
            }
        }
        let Some(end) = end else { return data.len() };
        self.end_line(data[end]);
        end + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end that is not known would make each event search the rest of the piece.
    #[test]
    fn every_end_of_an_event_is_known() {
        let path = JsonPath::from(["total".to_owned()].as_slice());
        for end in ["\n\n", "\r\r", "\r\n\r\n", "\n\r", "\n\r\n", "\r\n\r"] {
            let events = format!("data: 1{end}").repeat(50);
            let mut body = BodyText::new(std::slice::from_ref(&path), Some(b"text/event-stream"));
            let skipped = body.skip_without_names(events.as_bytes(), &EVENT_ENDS);
            assert_eq!(skipped, events.len(), "{end:?}");
        }
    }
}
