//! The access log: one JSON line for each request, naming the limit that decided. A worker collects
//! lines and hands them to a thread that writes; a slow disk or a full one loses lines, counted and
//! told, and never holds a request.
//!
//! Bounds: [`PIECE`] bytes collected by each worker; those of the [`writer`].

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use http::Uri;

use super::http1::repeat::MOST;
use super::stack::observe::Note;
use super::worker::generation::Outcome;
use crate::base::clock::{Clock, Nanos};
use crate::http::head::Head;
use crate::identity::{Who, token};
use crate::limit::{Rule, Standing};
use crate::policy::settings::Logged;

mod file;
mod writer;

pub use file::writable;
pub use writer::{Writer, Written, usable};

/// Bytes that a worker collects before it hands them over.
pub const PIECE: usize = 64 * 1024;

/// What a line seldom exceeds.
const ROOM: usize = 1024;

/// One worker's end of the log.
pub struct Access {
    writer: Writer,
    piece: RefCell<Vec<u8>>,
    /// Wall-clock time at the beginning of the clock, as of the last tick. When that clock is set, lines are wrong until the next tick.
    origin: Cell<Nanos>,
    /// The second of the last line, and how a line begins in it.
    second: RefCell<(u64, Vec<u8>)>,
}

/// Requests that the end of a worker cut off are logged too.
impl Drop for Access {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Access {
    /// Collects for `writer`.
    pub fn new(writer: Writer, clock: &Clock) -> Access {
        Access {
            writer,
            piece: RefCell::new(Vec::new()),
            origin: Cell::new(origin(clock)),
            second: RefCell::default(),
        }
    }

    /// Hands over what was collected, and looks at the wall clock. A worker does so ten times a second.
    pub fn tick(&self, clock: &Clock) {
        self.flush();
        self.origin.set(origin(clock));
    }

    /// Whether any request may be logged, so that its target must be kept.
    pub fn wants_targets(&self) -> bool {
        self.writer.requests != Logged::Off
    }

    /// Logs a request that is over.
    pub fn log(&self, note: &Note, now: Nanos) {
        let notable = note.outcome() != Outcome::Admitted
            || matches!(note.limit.get(), Some((_, Standing::Over)));
        match self.writer.requests {
            Logged::Off => return,
            Logged::Refused if !notable => return,
            Logged::Refused | Logged::All => {}
        }
        let mut piece = self.piece.borrow_mut();
        if piece.is_empty() {
            piece.reserve(PIECE + ROOM);
        }
        self.write(&mut piece, note, now);
        if piece.len() >= PIECE {
            let piece = std::mem::take(&mut *piece);
            self.writer.hand_over(piece);
        }
    }

    /// Hands over what was collected.
    pub fn flush(&self) {
        let piece = std::mem::take(&mut *self.piece.borrow_mut());
        if !piece.is_empty() {
            self.writer.hand_over(piece);
        }
    }

    /// Writes the line of a request. By hand, for it is written for every request that is refused.
    fn write(&self, out: &mut Vec<u8>, note: &Note, now: Nanos) {
        let took = now.since(note.at);
        let began = self.origin.get().after(note.at).0;
        let (second, beginning) = &mut *self.second.borrow_mut();
        if *second != began / 1_000_000_000 || beginning.is_empty() {
            *second = began / 1_000_000_000;
            beginning.clear();
            number(beginning, "{\"time\":", *second);
        }
        out.extend_from_slice(beginning);
        fraction::<3>(out, (began % 1_000_000_000 / 1_000_000) as u32);
        again(out, note);
        number(out, ",\"seconds\":", took.0 / 1_000_000_000);
        fraction::<6>(out, (took.0 % 1_000_000_000 / 1_000) as u32);
        out.extend_from_slice(b"}\n");
    }
}

fn origin(clock: &Clock) -> Nanos {
    Nanos::from(clock.wall()).since(clock.now())
}

/// What a line says between the times. A client that is refused over and over is told of in the same words.
fn again(out: &mut Vec<u8>, note: &Note) {
    let refused = note
        .known
        .as_ref()
        .filter(|_| note.outcome() == Outcome::Refused);
    let (Some(known), Some(who), Some(head)) = (refused, note.who.get(), &note.head) else {
        return middle(out, note);
    };
    let told = (
        note.status(),
        note.sent(),
        note.limit.get(),
        note.alone.get(),
    );
    let mut last = known.logged.borrow_mut();
    if let Some(last) = &*last
        && Rc::ptr_eq(&last.head, head)
        && Rc::ptr_eq(&last.who, who)
        && last.told == told
    {
        return out.extend_from_slice(&last.text);
    }
    let start = out.len();
    middle(out, note);
    let text = &out[start..];
    *last = (text.len() <= MOST).then(|| Words {
        head: head.clone(),
        who: who.clone(),
        told,
        text: text.into(),
    });
}

/// See [`again`]. Who asks is looked up once for each route and generation, so its place stands for both.
pub(crate) struct Words {
    head: Rc<Head>,
    who: Rc<Who>,
    /// Status, bytes, the limit that spoke, and whether without a shared store.
    told: (u16, u64, Option<(usize, Standing)>, bool),
    text: Box<[u8]>,
}

fn middle(out: &mut Vec<u8>, note: &Note) {
    let generation = &*note.generation;
    let ruleset = &generation.ruleset;
    match note.address() {
        Some(known) => word(out, ",\"ip\":", known),
        None => word(out, ",\"ip\":", &note.ip().to_string()),
    }
    if let Some(user) = note.user() {
        text(out, ",\"user\":", user);
    }
    if let Some(reason) = note.who.get().and_then(|who| who.credential_fault()) {
        word(out, ",\"credential\":", reason.as_str());
    }
    if let Some(method) = &note.method {
        word(out, ",\"method\":", method.as_str());
    }
    if let Some(head) = &note.head {
        let source = ruleset.identity.token.as_ref();
        text(out, ",\"target\":", &token::mask(source, target(&head.uri)));
    }
    if let Some(path) = &note.path {
        text(out, ",\"target\":", path);
    }
    if let Some(route) = note.route.get() {
        out.extend_from_slice(&generation.routes[route].logged);
    }
    number(out, ",\"status\":", note.status().into());
    word(out, ",\"outcome\":", note.outcome().as_str());
    if let Some((rule, standing)) = note.limit.get() {
        out.extend_from_slice(&generation.rules[rule].logged);
        word(out, ",\"standing\":", standing.as_str());
    }
    if note.alone.get() {
        word(out, ",\"store\":", "away");
    }
    if let Some(reason) = note.reason.get() {
        text(out, ",\"reason\":", reason);
    }
    if let Some(server) = &*note.server.borrow() {
        text(out, ",\"server\":", server);
    }
    let costs = note
        .stake
        .borrow()
        .as_ref()
        .and_then(|stake| stake.costs.clone());
    if let Some((units, unknown)) = costs.and_then(|costs| costs.charged()) {
        number(out, ",\"cost\":", units.into());
        if unknown {
            out.extend_from_slice(b",\"cost_unknown\":true");
        }
    }
    number(out, ",\"bytes\":", note.sent());
}

/// What lines say of a route.
pub(super) fn of_route(name: &str) -> Box<[u8]> {
    let mut out = Vec::new();
    text(&mut out, ",\"route\":", name);
    out.into()
}

/// What lines say of a limit.
pub(super) fn of_rule(rule: &Rule) -> Box<[u8]> {
    let mut out = Vec::new();
    word(&mut out, ",\"limit\":", rule.name.as_str());
    text(&mut out, ",\"limit_at\":", &rule.origin);
    out.into()
}

/// A name and what needs no escapes.
#[inline(always)]
fn word(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
    out.extend_from_slice(value.as_bytes());
    out.push(b'"');
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    let escaped = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // Looked at to the end, which is done for many bytes at once.
    if !value.bytes().fold(false, |any, byte| any | escaped(byte)) {
        return word(out, name, value);
    }
    out.extend_from_slice(name.as_bytes());
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

#[inline(always)]
fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A point and the digits of a number below 10^`N`.
#[inline(always)]
fn fraction<const N: usize>(out: &mut Vec<u8>, mut value: u32) {
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        *digit += (value % 10) as u8;
        value /= 10;
    }
    out.push(b'.');
    out.extend_from_slice(&digits);
}

/// A target as it came.
fn target(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query() {
        Some(target) if uri.authority().is_none() => Cow::Borrowed(target.as_str()),
        _ => Cow::Owned(uri.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members() {
        let mut out = Vec::new();
        number(&mut out, "{\"a\":", 1_700_000_000);
        fraction::<3>(&mut out, 42);
        text(&mut out, ",\"b\":", "c\"\\\n\u{7f}é");
        text(&mut out, ",\"c\":", "\u{7f}é");
        number(&mut out, ",\"d\":", 0);
        fraction::<6>(&mut out, 7);
        number(&mut out, ",\"e\":", u64::MAX);
        word(&mut out, ",\"f\":", "");
        out.push(b'}');
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let expected = serde_json::json!({
            "a": 1_700_000_000.042, "b": "c\"\\\n\u{7f}é", "c": "\u{7f}é", "d": 0.000_007, "e": u64::MAX, "f": "",
        });
        assert_eq!(read, expected);
    }
}
