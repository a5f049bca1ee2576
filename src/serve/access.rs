//! The access log: one JSON line for each request, naming the limit that decided. A worker collects
//! lines and hands them to a thread that writes; a slow disk or a full one loses lines, counted and
//! told, and never holds a request.
//!
//! Bounds: [`PIECE`] bytes collected by each worker, [`QUEUE`] pieces waiting for the writer, which looks again after
//! [`PACE`], and [`LAST`] for all of them when the gateway ends.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use http::Uri;
use metrics::Counter;

use super::generation::Outcome;
use super::known::MOST;
use super::record::Note;
use crate::clock::{Clock, Nanos};
use crate::head::Head;
use crate::identity::{Who, token};
use crate::limit::{Rule, Standing};
use crate::policy::{AccessLog, settings::Logged};
use crate::telemetry::{Metric, Registry};

/// Bytes that a worker collects before it hands them over.
pub const PIECE: usize = 64 * 1024;

/// What a line seldom exceeds.
const ROOM: usize = 1024;

/// Pieces that may wait for the writer.
pub const QUEUE: usize = 128;

/// How long the writer leaves pieces waiting once it has written all there were: to be woken for each costs as much as
/// to write it.
pub const PACE: Duration = Duration::from_millis(10);

/// Longest wait for what is still to be written at the end.
pub const LAST: Duration = Duration::from_secs(2);

/// Between two reports of lines that could not be written.
pub const PAUSE: Nanos = Nanos::from_secs(60);

/// The thread that writes; shared by all workers.
#[derive(Clone)]
pub struct Writer {
    requests: Logged,
    pieces: SyncSender<Vec<u8>>,
    dropped: Counter,
}

/// Tells when the thread that writes has ended.
#[derive(Debug)]
pub struct Written(Receiver<()>);

impl Written {
    /// Waits until everything is written, at most [`LAST`]; false when that was not enough. Comes to
    /// an end only once every [`Writer`] is gone.
    pub fn wait(self) -> bool {
        self.0.recv_timeout(LAST) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Writer {
    /// Opens the file and starts the thread.
    pub fn start(settings: &AccessLog, registry: &Registry) -> io::Result<(Writer, Written)> {
        let mut losses = Losses::new("standard output");
        let mut out: Box<dyn Write + Send> = match &settings.file {
            Some(path) => {
                let name = path.display().to_string();
                let file = OpenOptions::new().create(true).append(true).open(path);
                let file =
                    file.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
                losses = Losses::new(&name);
                Box::new(file)
            }
            None => Box::new(io::stdout()),
        };
        let (pieces, waiting): (_, Receiver<Vec<u8>>) = sync_channel(QUEUE);
        let dropped = registry.counter(Metric::LogDropped, &[]);
        let lost = dropped.clone();
        let (end, written) = sync_channel(0);
        thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                let _end: SyncSender<()> = end;
                while let Ok(first) = waiting.recv() {
                    for piece in std::iter::once(first).chain(waiting.try_iter()) {
                        if let Err(error) = out.write_all(&piece).and_then(|()| out.flush()) {
                            lost.increment(lines(&piece));
                            losses.add(lines(&piece), &error);
                        }
                        losses.tell_at_times();
                    }
                    thread::sleep(PACE);
                }
                losses.tell();
            })?;
        let writer = Writer {
            requests: settings.requests,
            pieces,
            dropped,
        };
        Ok((writer, Written(written)))
    }
}

/// What could not be written and is still to be told.
struct Losses {
    file: String,
    clock: Clock,
    told: Option<Nanos>,
    lines: u64,
    cause: String,
}

impl Losses {
    fn new(file: &str) -> Losses {
        Losses {
            file: file.to_owned(),
            clock: Clock::system(),
            told: None,
            lines: 0,
            cause: String::new(),
        }
    }

    fn add(&mut self, lines: u64, error: &io::Error) {
        self.lines += lines;
        self.cause = error.to_string();
    }

    /// The first time at once, then once in [`PAUSE`].
    fn tell_at_times(&mut self) {
        let now = self.clock.now();
        if self.lines > 0 && self.told.is_none_or(|told| now.since(told) >= PAUSE) {
            self.told = Some(now);
            self.tell();
        }
    }

    fn tell(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if lines > 0 {
            let (file, cause) = (&self.file, &self.cause);
            tracing::error!(file, cause, lines, "access log lines are lost");
        }
    }
}

/// Whether a log can be written to this path, as far as can be seen without making it.
///
/// # Errors
///
/// Why not.
pub fn usable(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(kind) if kind.is_dir() => Err("it is a folder".into()),
        Ok(kind) if kind.is_file() => match OpenOptions::new().append(true).open(path) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        // Opening a pipe would wait for its other end.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            if folder.is_none_or(Path::is_dir) {
                Ok(())
            } else {
                Err("its folder does not exist".into())
            }
        }
        Err(error) => Err(error.to_string()),
    }
}

fn lines(piece: &[u8]) -> u64 {
    piece.iter().filter(|byte| **byte == b'\n').count() as u64
}

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
            self.hand_over(piece);
        }
    }

    /// Hands over what was collected.
    pub fn flush(&self) {
        let piece = std::mem::take(&mut *self.piece.borrow_mut());
        if !piece.is_empty() {
            self.hand_over(piece);
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

    fn hand_over(&self, piece: Vec<u8>) {
        if let Err(refused) = self.writer.pieces.try_send(piece) {
            let (TrySendError::Full(piece) | TrySendError::Disconnected(piece)) = refused;
            self.writer.dropped.increment(lines(&piece));
        }
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
pub(super) struct Words {
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
    fn all_pieces_are_written_in_order_and_before_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        let settings = AccessLog {
            requests: Logged::All,
            file: Some(file.clone()),
        };
        let (writer, written) = Writer::start(&settings, &Registry::default()).unwrap();
        let pieces = (0..3 * QUEUE).map(|number| format!("{number}\n"));
        for piece in pieces.clone() {
            writer.pieces.send(piece.into()).unwrap();
        }
        drop(writer);
        assert!(written.wait());
        assert_eq!(
            fs::read_to_string(file).unwrap(),
            pieces.collect::<String>()
        );
    }

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
