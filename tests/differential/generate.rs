//! Answers of servers by chance: of every framing, whole and well, then changed at some places and cut.

use crate::compare::{Asks, Case};

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // Seeds beside each other begin far from each other, and never at 0.
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    /// Once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn of<'t, T: ?Sized>(&mut self, all: &[&'t T]) -> &'t T {
        all[self.below(all.len())]
    }
}

const STATUS_LINES: [&str; 12] = [
    "200 OK",
    "200 OK",
    "200 OK",
    "200 Fine",
    "200",
    "201 Created",
    "204 No Content",
    "304 Not Modified",
    "404 Not Found",
    "502 Bad Gateway",
    "600 ",
    "999 \tX Y",
];

const INTERIM: [&str; 4] = [
    "100 Continue\r\n",
    "103 Early Hints\r\nlink: </a>\r\nLink: </b>\r\n",
    "102 Processing\r\ncontent-length: 5\r\n",
    "199\r\nconnection: close\r\n",
];

const FIELDS: [&str; 14] = [
    "connection: close",
    "Connection: keep-alive",
    "connection: x, Close",
    "connection:close,keep-alive",
    "connection: upgrade",
    "upgrade: other",
    "server: a/1 (b)",
    "set-cookie: a=1; path=/",
    "Set-Cookie: b=2",
    "x:",
    "X-Empty: \t ",
    "x: \u{e9}",
    "date: Sun, 06 Nov 1994 08:49:37 GMT",
    "trailer: x",
];

const TRAILERS: [&str; 5] = [
    "x: y\r\n",
    "X:\r\nx: z\r\n",
    "a: b\r\nc:\td \r\n",
    "content-length: 3\r\n",
    "grpc-status: 0\r\n",
];

const EXTENSIONS: [&str; 5] = [";a", ";a=\"b c\"", " ;a=b", "\t", ";\u{e9}"];

const BEHIND: [&str; 5] = [
    "\r\n",
    "x",
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "0\r\n\r\n",
    "HTTP/1.1 103 Hints\r\n\r\n",
];

/// What is put in or changed to.
const TOKENS: [&str; 48] = [
    "\r",
    "\n",
    "\r\n",
    "\r\n\r\n",
    "\n\n",
    "\n\r\n",
    " ",
    "\t",
    "\0",
    "\u{b}",
    "\u{7f}",
    ":",
    ";",
    ",",
    "0",
    "1",
    "5",
    "a",
    "-",
    "+",
    "x",
    "\u{ff}",
    "\r\n ",
    "\r\n\t",
    "é",
    "HTTP/1.0",
    "HTTP/1.1",
    "HTTP/2",
    " 101 ",
    " 204 ",
    " 304 ",
    " 100 ",
    "transfer-encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "transfer-encoding: identity\r\n",
    "content-length: 0\r\n",
    "content-length: 5\r\n",
    "content-length: 5, 5\r\n",
    "content-length: 18446744073709551615\r\n",
    "content-length : 5\r\n",
    "connection: close\r\n",
    "connection: keep-alive\r\n",
    "connection: close, \u{e9}\r\n",
    "connection: keep-alive, \u{e9}\r\n",
    "0\r\n\r\n",
    "5\r\nhello\r\n",
    "00000000000000005\r\nhello\r\n",
    "ffffffffffffffff",
];

/// The case of a seed.
pub fn case(asks: Asks, seed: u64) -> Case {
    let mut random = Random::new(seed);
    let random = &mut random;
    let mut bytes = answer(random, asks);
    if random.below(10) < 7 {
        for _ in 0..1 + random.below(3) {
            mutate(random, &mut bytes);
        }
    }
    Case {
        asks,
        pieces: cut(random, &bytes),
    }
}

fn answer(random: &mut Random, asks: Asks) -> Vec<u8> {
    let mut out = Vec::new();
    if random.once_in(50) {
        out.extend_from_slice(b"\r\n");
    }
    if random.once_in(6) {
        let many = if random.once_in(20) { 18 } else { 3 };
        for _ in 0..1 + random.below(many) {
            let interim = random.of(&INTERIM);
            out.extend_from_slice(format!("HTTP/1.1 {interim}\r\n").as_bytes());
        }
    }
    let old = random.once_in(6);
    let switches = random.below(2) == 0 && asks == Asks::Upgrade || random.once_in(100);
    let status = if switches {
        "101 Switching Protocols"
    } else {
        random.of(&STATUS_LINES)
    };
    let version = if old { "HTTP/1.0" } else { "HTTP/1.1" };
    out.extend_from_slice(format!("{version} {status}\r\n").as_bytes());
    let body = body(random, old);
    let at = random.below(4);
    for place in 0..4 {
        if place == at {
            out.extend_from_slice(&body.0);
        } else if random.below(2) == 0 {
            out.extend_from_slice(random.of(&FIELDS).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
    if random.once_in(150) {
        let line = if random.below(2) == 0 {
            "a: b\r\n"
        } else {
            "x: 0123456789abcdef\r\n"
        };
        let times = random.of(&[&95, &101, &4000]);
        out.extend_from_slice(line.repeat(*times).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    let bodiless = asks == Asks::Head || status.starts_with("204") || status.starts_with("304");
    if !bodiless || random.once_in(20) {
        out.extend_from_slice(&body.1);
    }
    if random.once_in(12) {
        out.extend_from_slice(random.of(&BEHIND).as_bytes());
    }
    out
}

/// The field that says how far a body reaches, and the body.
fn body(random: &mut Random, old: bool) -> (Vec<u8>, Vec<u8>) {
    let most = if random.once_in(40) { 20_000 } else { 20 };
    let length = random.below(most);
    let content = |length: usize| (b'a'..=b'z').cycle().take(length).collect::<Vec<u8>>();
    match random.below(5) {
        0 => (Vec::new(), content(length)),
        1 | 2 if !old => {
            let name = random.of(&["transfer-encoding: chunked", "Transfer-Encoding:\tCHUNKED "]);
            (format!("{name}\r\n").into_bytes(), chunks(random))
        }
        _ => {
            let name = random.of(&["content-length: ", "Content-Length:", "content-length:\t00"]);
            (format!("{name}{length}\r\n").into_bytes(), content(length))
        }
    }
}

fn chunks(random: &mut Random) -> Vec<u8> {
    let mut out = Vec::new();
    let size_line = |out: &mut Vec<u8>, random: &mut Random, size: usize| {
        let size = match random.below(3) {
            0 => format!("{size:X}"),
            1 => format!("{size:x}"),
            _ => format!("{size:03x}"),
        };
        out.extend_from_slice(size.as_bytes());
        if random.once_in(4) {
            out.extend_from_slice(random.of(&EXTENSIONS).as_bytes());
        }
        if random.once_in(400) {
            out.extend_from_slice(format!(";{}", "e".repeat(5000)).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    };
    for _ in 0..random.below(4) {
        let most = if random.once_in(40) { 9000 } else { 30 };
        let size = 1 + random.below(most);
        size_line(&mut out, random, size);
        out.extend((b'A'..=b'Z').cycle().take(size));
        out.extend_from_slice(b"\r\n");
    }
    size_line(&mut out, random, 0);
    if random.once_in(3) {
        out.extend_from_slice(random.of(&TRAILERS).as_bytes());
    }
    if random.once_in(60) {
        let times = random.of(&[&60, &70, &101, &6000]);
        out.extend_from_slice("a: b\r\n".repeat(*times).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    let at = place(random, bytes);
    let end = (at + 1 + random.below(6)).min(bytes.len());
    let token = random.of(&TOKENS).bytes();
    match random.below(7) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 => drop(bytes.splice(at..at, token)),
        2 => drop(bytes.splice(at..end, token)),
        3 => drop(bytes.drain(at..end)),
        // What is left out at the end is a connection that breaks.
        4 if random.once_in(3) => bytes.truncate(at),
        5 => {
            let line = line(random, bytes);
            let copy = bytes[line.clone()].to_vec();
            drop(bytes.splice(line.start..line.start, copy));
        }
        // A line of its own, where it may do most.
        _ => {
            let start = line(random, bytes).start;
            drop(bytes.splice(start..start, token));
        }
    }
}

/// Somewhere, and mostly near the beginning: long bodies and heads are much of the same.
fn place(random: &mut Random, bytes: &[u8]) -> usize {
    let most = if random.below(2) == 0 {
        120
    } else {
        usize::MAX
    };
    random.below(bytes.len().min(most) + 1)
}

/// The line with that place in it.
fn line(random: &mut Random, bytes: &[u8]) -> std::ops::Range<usize> {
    let at = place(random, bytes);
    let before = bytes[..at].iter().rposition(|byte| *byte == b'\n');
    let behind = bytes[at..].iter().position(|byte| *byte == b'\n');
    before.map_or(0, |lf| lf + 1)..behind.map_or(bytes.len(), |lf| at + lf + 1)
}

/// In pieces: mostly few, seldom byte by byte, never larger than what a socket takes at once.
fn cut(random: &mut Random, bytes: &[u8]) -> Vec<Vec<u8>> {
    let step = if bytes.len() < 150 && random.once_in(40) {
        1
    } else {
        16 * 1024
    };
    let mut places: Vec<usize> = (0..random.below(4)).map(|_| place(random, bytes)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    let pieces = places.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
    let pieces = pieces.flat_map(|piece| piece.chunks(step));
    pieces.map(<[u8]>::to_vec).collect()
}
