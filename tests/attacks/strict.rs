//! A reader of HTTP/1.1 that shares nothing with the gateway's and forgives nothing: RFC 9112 to the letter,
//! and where the letter leaves a choice, the stricter one.

/// A message, read whole. Names are in lower case; bytes stand for the characters of Latin-1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub start: String,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// A line with a chunk's size had more.
    pub extended: bool,
    /// So many bytes it took.
    pub length: usize,
}

/// Why there is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is not over.
    More,
    /// Two readers could read it differently.
    Unclean(String),
}

impl Message {
    pub fn status(&self) -> u16 {
        let code = self.start.split(' ').nth(1);
        code.and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// All values of a field.
    pub fn all<'m>(&'m self, name: &str) -> Vec<&'m str> {
        let named = self.fields.iter().filter(|(other, _)| other == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The only value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Method, target without scheme and authority, and content: what a server acts on.
    pub fn deed(&self) -> String {
        let mut words = self.start.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let target = match target.split_once("://") {
            None => target.to_owned(),
            Some((_, rest)) => match rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())) {
                (_, path) if path.starts_with('/') => path.to_owned(),
                (_, query) => format!("/{query}"),
            },
        };
        format!("{method} {target} [{}]", latin(&self.body))
    }
}

/// The request at the front.
pub fn request(bytes: &[u8]) -> Result<Message, Stop> {
    let mut reader = Reader { bytes, at: 0 };
    let mut message = reader.head()?;
    let words: Vec<&str> = message.start.split(' ').collect();
    let [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] = words[..] else {
        return unclean("no request line", &message.start);
    };
    let target_fits = target.bytes().all(|byte| byte > b' ' && byte != b'#') && !target.is_empty();
    if !is_token(method) || !target_fits {
        return unclean("no request line", &message.start);
    }
    let newer = version == "HTTP/1.1";
    let hosts = message.all("host");
    if hosts.len() > 1 || (hosts.is_empty() && newer) || !hosts.iter().all(|host| is_host(host)) {
        return unclean("not one host", &message.start);
    }
    if message.field("transfer-encoding").is_some() && !newer {
        return unclean("a coding in HTTP/1.0", &message.start);
    }
    reader.body(&mut message, Some(0))?;
    Ok(message)
}

/// The answer at the front. Of one that the end of the connection ends, `closed` says whether it is there.
pub fn answer(bytes: &[u8], head_only: bool, closed: bool) -> Result<Message, Stop> {
    let mut reader = Reader { bytes, at: 0 };
    let mut message = reader.head()?;
    let status = message.status();
    if !message.start.starts_with("HTTP/1.1 ") || !(100..1000).contains(&status) {
        return unclean("no status line", &message.start);
    }
    if head_only || status < 200 || matches!(status, 204 | 304) {
        message.length = reader.at;
        return Ok(message);
    }
    let rest = closed.then_some(bytes.len() - reader.at);
    reader.body(&mut message, rest)?;
    Ok(message)
}

/// All requests up to the first that is none, and why it is none.
pub fn requests(mut bytes: &[u8]) -> (Vec<Message>, Option<Stop>) {
    let mut all = Vec::new();
    loop {
        // RFC 9112 section 2.2: empty lines before a request are nothing.
        while let Some(rest) = bytes.strip_prefix(b"\r\n") {
            bytes = rest;
        }
        if bytes.is_empty() {
            return (all, None);
        }
        match request(bytes) {
            Ok(message) => {
                bytes = &bytes[message.length..];
                all.push(message);
            }
            Err(stop) => return (all, Some(stop)),
        }
    }
}

fn unclean<T>(what: &str, line: &str) -> Result<T, Stop> {
    Err(Stop::Unclean(format!("{what}: {line:?}")))
}

fn latin(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn is_token(text: &str) -> bool {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(part)
}

/// A name of plain labels or an address, and perhaps a port. The URL Standard says which names are addresses.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rfind(']') {
        Some(end) => (&text[..=end], &text[end + 1..]),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port_fits = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| {
            digits.bytes().all(|byte| byte.is_ascii_digit())
                && (digits.is_empty() || digits.parse::<u16>().is_ok())
        });
    let label_fits = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !label.is_empty() && label.bytes().all(plain)
    };
    let is_number = |label: &str| {
        let hex = label.to_ascii_lowercase();
        let hex = hex.strip_prefix("0x").map(str::to_owned);
        hex.map_or(label.bytes().all(|byte| byte.is_ascii_digit()), |digits| {
            digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let name_fits = match name.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .is_some_and(|six| six.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            let name = name.strip_suffix('.').unwrap_or(name);
            let last = name.rsplit('.').next().unwrap_or_default();
            name.split('.').all(label_fits)
                && (!is_number(last) || name.parse::<std::net::Ipv4Addr>().is_ok())
        }
    };
    port_fits && name_fits
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    /// A line without its CRLF, which no control character but a tab may be in.
    fn line(&mut self) -> Result<&'b [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let odd = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        let end = rest.iter().position(odd).ok_or(Stop::More)?;
        match &rest[end..] {
            [b'\r', b'\n', ..] => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            [b'\r'] => Err(Stop::More),
            _ => unclean("a control character in a line", &latin(&rest[..=end])),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], Stop> {
        let end = self.at.checked_add(length).ok_or(Stop::More)?;
        let taken = self.bytes.get(self.at..end).ok_or(Stop::More)?;
        self.at = end;
        Ok(taken)
    }

    fn head(&mut self) -> Result<Message, Stop> {
        Ok(Message {
            start: latin(self.line()?),
            fields: self.fields()?,
            ..Message::default()
        })
    }

    fn fields(&mut self) -> Result<Vec<(String, String)>, Stop> {
        let mut fields = Vec::new();
        loop {
            let line = latin(self.line()?);
            if line.is_empty() {
                return Ok(fields);
            }
            match line.split_once(':') {
                Some((name, value)) if is_token(name) => {
                    let value = value.trim_matches([' ', '\t']).to_owned();
                    fields.push((name.to_ascii_lowercase(), value));
                }
                _ => return unclean("no field", &line),
            }
        }
    }

    /// Reads the body as the fields say; `otherwise` so many bytes where they say nothing.
    fn body(&mut self, message: &mut Message, otherwise: Option<usize>) -> Result<(), Stop> {
        let (codings, lengths) = (
            message.all("transfer-encoding"),
            message.all("content-length"),
        );
        match (&codings[..], &lengths[..]) {
            ([coding], []) if coding.eq_ignore_ascii_case("chunked") => self.chunks(message)?,
            ([], [length]) if !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) => {
                let Ok(length) = length.parse::<u64>() else {
                    return unclean("no length", length);
                };
                message.body = self
                    .take(usize::try_from(length).unwrap_or(usize::MAX))?
                    .into();
            }
            ([], []) => message.body = self.take(otherwise.ok_or(Stop::More)?)?.into(),
            _ => return unclean("no framing", &format!("{codings:?} {lengths:?}")),
        }
        message.length = self.at;
        Ok(())
    }

    fn chunks(&mut self, message: &mut Message) -> Result<(), Stop> {
        loop {
            let line = latin(self.line()?);
            let digits = line.bytes().take_while(u8::is_ascii_hexdigit).count();
            let extension = line[digits..].trim_start_matches([' ', '\t']);
            let size = u64::from_str_radix(&line[..digits], 16);
            let (Ok(size), true) = (size, extension.is_empty() || extension.starts_with(';'))
            else {
                return unclean("no chunk size", &line);
            };
            if digits > 16 {
                return unclean("no chunk size", &line);
            }
            // Old servers fill up with spaces; what is passed on has none.
            message.extended |= digits < line.len();
            if size == 0 {
                message.trailers = self.fields()?;
                return Ok(());
            }
            let data = self.take(usize::try_from(size).unwrap_or(usize::MAX))?;
            message.body.extend_from_slice(data);
            match self.take(2)? {
                b"\r\n" => {}
                other => return unclean("no end of a chunk", &latin(other)),
            }
        }
    }
}
