//! Where a request or an answer ends: as far as client and upstream must read HTTP, and no further.

use crate::Failure;

/// Longest head that is understood, in bytes.
const HEAD_MAX: usize = 8 * 1024;

/// One request or answer after the other on one connection.
#[derive(Default)]
pub struct Message {
    /// What has come of the head, or of a line between chunks.
    text: Vec<u8>,
    part: Part,
    status: u16,
}

/// What the next byte belongs to.
#[derive(Default)]
enum Part {
    #[default]
    Head,
    /// So many bytes of a body are missing.
    Body(usize),
    ChunkSize,
    /// So many bytes of a chunk and of the line's end after it are missing.
    Chunk(usize),
    /// After the last chunk, until an empty line.
    Trailer,
}

impl Message {
    /// Takes what has arrived; true when the message is complete. More than one message is a
    /// mistake of the sender: here nobody asks before the last answer is there.
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (taken, complete) = self.take(rest)?;
            rest = &rest[taken..];
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

    /// The status of the last answer; nothing that means anything for requests.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// How many bytes are used up, and whether the message ends there.
    fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), Failure> {
        match self.part {
            Part::Head => self.head(bytes),
            Part::Body(missing) => {
                let taken = missing.min(bytes.len());
                self.part = Part::Body(missing - taken);
                Ok((taken, taken == missing))
            }
            Part::Chunk(missing) => {
                let taken = missing.min(bytes.len());
                self.part = match missing - taken {
                    0 => Part::ChunkSize,
                    missing => Part::Chunk(missing),
                };
                Ok((taken, false))
            }
            Part::ChunkSize | Part::Trailer => self.line(bytes),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<(usize, bool), Failure> {
        let before = self.text.len();
        self.text.extend_from_slice(bytes);
        let Some(end) = memchr::memmem::find(&self.text, b"\r\n\r\n") else {
            if self.text.len() > HEAD_MAX {
                return Err("a head is too long".into());
            }
            return Ok((bytes.len(), false));
        };
        let mut text = std::mem::take(&mut self.text);
        let body = self.read(&text[..end])?;
        text.clear();
        self.text = text;
        self.part = body;
        Ok((end + 4 - before, matches!(self.part, Part::Body(0))))
    }

    /// Reads a whole head: the body that follows it.
    fn read(&mut self, head: &[u8]) -> Result<Part, Failure> {
        let mut lines = head.split(|&byte| byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let is_answer = first.starts_with(b"HTTP/");
        if is_answer {
            self.status = number(first.get(9..12).unwrap_or_default(), 10)? as u16;
        }
        for line in lines {
            if let Some(value) = field(line, b"content-length:") {
                return Ok(Part::Body(number(value, 10)?));
            }
            if field(line, b"transfer-encoding:").is_some() {
                return Ok(Part::ChunkSize);
            }
        }
        if is_answer {
            return Err("an answer does not say how long it is".into());
        }
        Ok(Part::Body(0))
    }

    fn line(&mut self, bytes: &[u8]) -> Result<(usize, bool), Failure> {
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
            self.part = match number(digits.unwrap_or_default(), 16)? {
                0 => Part::Trailer,
                size => Part::Chunk(size + 2),
            };
        }
        self.text.clear();
        Ok((end + 1, complete))
    }
}

/// The value of a header line, if it is the line of that field.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

fn number(digits: &[u8], base: u32) -> Result<usize, Failure> {
    let text = std::str::from_utf8(digits)?;
    usize::from_str_radix(text, base).map_err(|_| format!("`{text}` is not a number").into())
}
