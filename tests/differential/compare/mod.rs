//! What one reader makes of a server's bytes, and whether two of them make the same of it: the
//! gateway's upstream codec and hyper's client. Shared with `fuzz/fuzz_targets/upstream_answer.rs`.

pub mod ours;
pub mod reasons;
pub mod theirs;

use std::fmt;

use http::{HeaderMap, Method, StatusCode};
use ours::Ours;
use tollgate::http::head::{Fields, hop_by_hop};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    Get,
    Head,
    /// A change of protocol.
    Upgrade,
}

impl Asks {
    fn method(self) -> Method {
        match self {
            Asks::Get | Asks::Upgrade => Method::GET,
            Asks::Head => Method::HEAD,
        }
    }
}

/// A request, and the bytes that the server answers with, one piece after the other. Behind the last one it
/// stays silent until the reader wants more, and then closes.
#[derive(Clone)]
pub struct Case {
    pub asks: Asks,
    pub pieces: Vec<Vec<u8>>,
}

impl Case {
    pub fn bytes(&self) -> Vec<u8> {
        self.pieces.concat()
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.asks)?;
        let mut pieces = self.pieces.iter();
        pieces.try_for_each(|piece| write!(f, " \"{}\"", piece.escape_ascii()))
    }
}

/// Names in small letters and values with escapes, sorted by name; the values of one name as they came.
pub type Lines = Vec<(String, String)>;

pub fn lines<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Lines {
    let line = |(name, value): (&[u8], &[u8])| {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        // The gateway writes a length anew: `010` is ten.
        let value = match &*name {
            "content-length" => tollgate::http::http1::without_leading_zeros(value),
            _ => value,
        };
        (name, value.escape_ascii().to_string())
    };
    let mut lines: Lines = fields.map(line).collect();
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    lines
}

/// The fields of a head that do not belong to the connection, unless it changes to another protocol.
pub fn passed_on(status: StatusCode, map: &HeaderMap) -> Lines {
    let mut fields = Fields::from(map);
    if status != StatusCode::SWITCHING_PROTOCOLS {
        hop_by_hop::strip_connection_fields(&mut fields);
    }
    lines(fields.iter())
}

pub fn lines_of(map: &HeaderMap) -> Lines {
    lines(
        map.iter()
            .map(|(n, v)| (n.as_str().as_bytes(), v.as_bytes())),
    )
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub status: StatusCode,
    /// The reason phrase, as it is or the usual one; of interim answers hyper does not tell.
    pub reason: String,
    pub fields: Lines,
}

/// How it ended.
#[derive(Clone, Debug)]
pub enum End {
    /// The answer is whole, and the connection may carry another request.
    Kept,
    /// The answer is whole, and the connection may not.
    Spent,
    /// The answer is whole because the server closed.
    Closed,
    /// It is no answer, or not all of one.
    Refused(String),
}

/// Why it was refused is each reader's own matter.
impl PartialEq for End {
    fn eq(&self, other: &End) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// What a reader made of a case.
#[derive(Clone, PartialEq)]
pub struct Verdict {
    pub interim: Vec<Start>,
    pub head: Option<Start>,
    pub body: Vec<u8>,
    pub trailers: Option<Lines>,
    pub end: End,
}

impl Verdict {
    fn new() -> Verdict {
        Verdict {
            interim: Vec::new(),
            head: None,
            body: Vec::new(),
            trailers: None,
            end: End::Refused("nothing came of it".into()),
        }
    }

    fn status(&self) -> u16 {
        self.head.as_ref().map_or(0, |head| head.status.as_u16())
    }

    /// Whether all that was read here was read there too, and perhaps more.
    fn begins(&self, other: &Verdict) -> bool {
        other.interim.starts_with(&self.interim)
            && (self.head.is_none() || self.head == other.head)
            && other.body.starts_with(&self.body)
            && (self.trailers.is_none() || self.trailers == other.trailers)
    }

    /// What the gateway leaves out of an answer, because it is not for its client.
    fn for_a_client(mut self) -> Verdict {
        // The exchange sends the request's body for it: RFC 9110 section 15.2.1.
        self.interim
            .retain(|start| start.status != StatusCode::CONTINUE);
        // They may not say a length, having no body: RFC 9110 section 8.6.
        for start in self.interim.iter_mut().chain(&mut self.head) {
            let status = start.status.as_u16();
            let unfit = |name: &str| match status {
                101 => matches!(name, "content-length" | "transfer-encoding"),
                100..=199 | 204 => name == "content-length",
                _ => false,
            };
            start.fields.retain(|(name, _)| !unfit(name));
        }
        self
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = self.interim.iter().chain(&self.head);
        for head in heads {
            write!(f, "{} {:?} {:?}, ", head.status, head.reason, head.fields)?;
        }
        let body = self.body.escape_ascii();
        write!(f, "\"{body}\", {:?}, {:?}", self.trailers, self.end)
    }
}

/// What came of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The reason why the readers may differ, if they do.
    pub reason: Option<&'static str>,
    /// Both took the answer for whole.
    pub whole: bool,
}

/// Has both read the same, and says what came of it; the mistake when they differ without a reason.
pub fn check(ours: &mut Ours, case: &Case) -> Result<Outcome, String> {
    let theirs = theirs::read(case).for_a_client();
    let waits = !matches!(theirs.end, End::Kept | End::Spent);
    let first = judge(case, &ours.read(case, waits, false), &theirs);
    // The kernel may be late with what was sent to us; what is ours to mend is so the next time too.
    first.or_else(|_| judge(case, &ours.read(case, waits, true), &theirs))
}

fn judge(case: &Case, ours: &Verdict, theirs: &Verdict) -> Result<Outcome, String> {
    let whole = |verdict: &Verdict| !matches!(verdict.end, End::Refused(_));
    let outcome = |reason| Outcome {
        reason,
        whole: whole(ours) && whole(theirs),
    };
    if ours == theirs {
        return Ok(outcome(None));
    }
    match reasons::find(case, ours, theirs) {
        Some(reason) => Ok(outcome(Some(reason))),
        None => Err(format!("{case:?}\nours:   {ours:?}\ntheirs: {theirs:?}")),
    }
}
