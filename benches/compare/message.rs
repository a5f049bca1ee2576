//! Finds where a request or a response ends. Client and upstream read HTTP this far and no further.

use crate::Failure;

/// The longest head that is read.
const MAX_HEAD_BYTES: usize = 8 * 1024;

/// One request or response after the other on one connection.
#[derive(Default)]
pub struct Message {
    /// The beginning of the head, or of a line between chunks.
    text: Vec<u8>,
    part: Part,
    status: u16,
}

/// The part of a message that the next byte belongs to.
#[derive(Default)]
enum Part {
    #[default]
    Head,
    /// A body, of which this many bytes are missing.
    Body(usize),
    ChunkSize,
    /// A chunk, of which this many bytes are missing with the CRLF behind it.
    Chunk(usize),
    /// The fields after the last chunk, until an empty line.
    Trailer,
}

impl Message {
    /// Reads the bytes that have arrived. Returns whether the message is complete. More than one message is an error of
    /// the sender, because no client here sends a request before the last response has ended.
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (read_bytes, complete) = self.read_part(rest)?;
            rest = &rest[read_bytes..];
            if complete {
                self.part = Part::Head;
                if !rest.is_empty() {
                    return Err("more than one message arrived".into());
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The status of the last response; 0 for requests.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Reads bytes of one part. Returns how many, and whether the message ends with them.
    fn read_part(&mut self, bytes: &[u8]) -> Result<(usize, bool), Failure> {
        match self.part {
            Part::Head => self.read_head(bytes),
            Part::Body(missing_bytes) => {
                let read_bytes = missing_bytes.min(bytes.len());
                self.part = Part::Body(missing_bytes - read_bytes);
                Ok((read_bytes, read_bytes == missing_bytes))
            }
            Part::Chunk(missing_bytes) => {
                let read_bytes = missing_bytes.min(bytes.len());
                self.part = match missing_bytes - read_bytes {
                    0 => Part::ChunkSize,
                    missing_bytes => Part::Chunk(missing_bytes),
                };
                Ok((read_bytes, false))
            }
            Part::ChunkSize | Part::Trailer => self.read_line(bytes),
        }
    }

    fn read_head(&mut self, bytes: &[u8]) -> Result<(usize, bool), Failure> {
        let before = self.text.len();
        self.text.extend_from_slice(bytes);
        let Some(end) = memchr::memmem::find(&self.text, b"\r\n\r\n") else {
            if self.text.len() > MAX_HEAD_BYTES {
                return Err("a head is too long".into());
            }
            return Ok((bytes.len(), false));
        };
        let mut text = std::mem::take(&mut self.text);
        let body = self.parse_head(&text[..end])?;
        text.clear();
        self.text = text;
        self.part = body;
        Ok((end + 4 - before, matches!(self.part, Part::Body(0))))
    }

    /// Parses a whole head. Returns the part that follows it.
    fn parse_head(&mut self, head: &[u8]) -> Result<Part, Failure> {
        let mut lines = head.split(|&byte| byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let is_response = first.starts_with(b"HTTP/");
        if is_response {
            self.status = parse_number(first.get(9..12).unwrap_or_default(), 10)? as u16;
        }
        for line in lines {
            if let Some(value) = field_value(line, b"content-length:") {
                return Ok(Part::Body(parse_number(value, 10)?));
            }
            if field_value(line, b"transfer-encoding:").is_some() {
                return Ok(Part::ChunkSize);
            }
        }
        if is_response {
            return Err("a response does not state its length".into());
        }
        Ok(Part::Body(0))
    }

    fn read_line(&mut self, bytes: &[u8]) -> Result<(usize, bool), Failure> {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.text.extend_from_slice(bytes);
            return Ok((bytes.len(), false));
        };
        self.text.extend_from_slice(&bytes[..end]);
        let line = self.text.trim_ascii_end();
        let mut complete = false;
        if matches!(self.part, Part::Trailer) {
            complete = line.is_empty();
        } else {
            let digits = line.split(|&byte| byte == b';').next();
            self.part = match parse_number(digits.unwrap_or_default(), 16)? {
                0 => Part::Trailer,
                size => Part::Chunk(size + 2),
            };
        }
        self.text.clear();
        Ok((end + 1, complete))
    }
}

/// The value of a header line, if it is the line of that field.
fn field_value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

fn parse_number(digits: &[u8], base: u32) -> Result<usize, Failure> {
    let text = std::str::from_utf8(digits)?;
    usize::from_str_radix(text, base).map_err(|_| format!("`{text}` is not a number").into())
}
