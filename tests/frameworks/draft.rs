//! A request that is being written: every part as bytes, so that nothing has to be well-formed.

use std::mem;

/// A part that stands in a body.
#[derive(Clone, Default)]
pub struct Pair {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    /// Not quoted: the value in JSON, the name in `multipart/form-data`.
    pub bare: bool,
    /// Fields of a part of `multipart/form-data` before the one with its name, each ended by CRLF.
    pub before: Vec<u8>,
    /// The same behind it.
    pub fields: Vec<u8>,
}

impl Pair {
    pub fn of(name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Pair {
        Pair {
            name: name.into(),
            value: value.into(),
            ..Pair::default()
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Media {
    #[default]
    Form,
    Json,
    Multipart,
}

impl Media {
    pub fn content_type(self) -> &'static str {
        match self {
            Media::Form => "application/x-www-form-urlencoded",
            Media::Json => "application/json",
            Media::Multipart => "multipart/form-data; boundary=XX",
        }
    }
}

#[derive(Clone, Default)]
pub struct Draft {
    pub method: Vec<u8>,
    /// What stands before the path in the target: nothing, or a scheme and an authority.
    pub origin: Vec<u8>,
    pub path: Vec<u8>,
    pub query: Option<Vec<u8>>,
    pub host: Vec<u8>,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub media: Media,
    pub pairs: Vec<Pair>,
    pub separator: Vec<u8>,
    /// The pairs as they will be sent.
    pub body: Vec<u8>,
    pub content_type: Option<Vec<u8>>,
    pub chunked: bool,
    /// What was changed.
    pub kinds: Vec<&'static str>,
}

impl Draft {
    pub fn new(method: &str, path: &str) -> Draft {
        Draft {
            method: method.into(),
            path: path.into(),
            host: b"a.test".to_vec(),
            separator: b"&".to_vec(),
            ..Draft::default()
        }
    }

    pub fn with_field(mut self, name: &str, value: impl Into<Vec<u8>>) -> Draft {
        self.add(name, value);
        self
    }

    pub fn add(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.fields.push((name.into(), value.into()));
    }

    /// The value of the first field of this name.
    pub fn field(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        let named =
            |(given, _): &&mut (Vec<u8>, Vec<u8>)| given.eq_ignore_ascii_case(name.as_bytes());
        self.fields.iter_mut().find(named).map(|(_, value)| value)
    }

    pub fn add_query(&mut self, text: &[u8]) {
        let query = self.query.get_or_insert_default();
        if !query.is_empty() {
            query.push(b'&');
        }
        query.extend_from_slice(text);
    }

    /// Writes the pairs into the body.
    pub fn render(&mut self) {
        let pairs = mem::take(&mut self.pairs);
        if pairs.is_empty() {
            return;
        }
        if self.content_type.is_none() {
            self.content_type = Some(self.media.content_type().into());
        }
        self.body = match self.media {
            Media::Form => {
                let each = pairs
                    .iter()
                    .map(|pair| [&pair.name[..], b"=", &pair.value].concat());
                each.collect::<Vec<_>>().join(&self.separator[..])
            }
            Media::Json => {
                let each = pairs.iter().map(|pair| {
                    let quote: &[u8] = if pair.bare { b"" } else { b"\"" };
                    [b"\"", &pair.name[..], b"\":", quote, &pair.value, quote].concat()
                });
                [b"{", &each.collect::<Vec<_>>().join(&b","[..])[..], b"}"].concat()
            }
            Media::Multipart => {
                let mut body = Vec::new();
                for pair in &pairs {
                    let quote: &[u8] = if pair.bare { b"" } else { b"\"" };
                    body.extend_from_slice(b"--XX\r\n");
                    body.extend_from_slice(&pair.before);
                    body.extend_from_slice(b"content-disposition: form-data; name=");
                    body.extend_from_slice(&[quote, &pair.name[..], quote, b"\r\n"].concat());
                    body.extend_from_slice(&pair.fields);
                    body.extend_from_slice(b"\r\n");
                    body.extend_from_slice(&pair.value);
                    body.extend_from_slice(b"\r\n");
                }
                body.extend_from_slice(b"--XX--\r\n");
                body
            }
        };
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = [&self.method[..], b" ", &self.origin, &self.path].concat();
        if let Some(query) = &self.query {
            out.push(b'?');
            out.extend_from_slice(query);
        }
        out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        out.extend_from_slice(&self.host);
        out.extend_from_slice(b"\r\n");
        let typed = self
            .content_type
            .iter()
            .map(|value| (&b"content-type"[..], &value[..]));
        let fields = self
            .fields
            .iter()
            .map(|(name, value)| (&name[..], &value[..]));
        for (name, value) in fields.chain(typed) {
            out.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
        }
        if self.chunked {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
            for piece in self.body.chunks(7) {
                out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                out.extend_from_slice(piece);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"0\r\n\r\n");
        } else if self.body.is_empty() && self.method != b"POST" {
            out.extend_from_slice(b"\r\n");
        } else {
            out.extend_from_slice(
                format!("content-length: {}\r\n\r\n", self.body.len()).as_bytes(),
            );
            out.extend_from_slice(&self.body);
        }
        out
    }
}
