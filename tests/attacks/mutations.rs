//! Requests with mistakes that chance makes: whatever they are, no server sees anything that the strict
//! reading of the client's bytes does not have.

use std::net::Shutdown;

use crate::case::{ALL, Cut, MARKER, Random, Site, text};
use crate::strict::{self, Message};

const ROUNDS: u64 = 3000;

const SEEDS: [&str; 6] = [
    "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\n\r\nhello",
    "POST /b HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
    "GET http://t:80/c?d HTTP/1.1\r\nHost: t\r\nconnection: keep-alive, x\r\nx: y\r\n\r\n",
    "POST /d HTTP/1.1\r\nhost: t\r\ncontent-length: 37\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n\r\n",
    "POST /e HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n25\r\nGET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n\r\n\r\n0\r\n\r\n",
    "GET /f HTTP/1.0\r\nconnection: keep-alive\r\n\r\nHEAD /g HTTP/1.1\r\nhost: t\r\n\r\n",
];

/// What is put in or changed to.
const PIECES: [&str; 30] = [
    "\r",
    "\n",
    "\r\n",
    "\r\n\r\n",
    " ",
    "\t",
    "\0",
    "\u{b}",
    ":",
    ";",
    ",",
    "0",
    "5",
    "f",
    "-",
    "+",
    "x",
    "#",
    "%",
    "/",
    "\r\n ",
    "transfer-encoding: chunked\r\n",
    "content-length: 0\r\n",
    "content-length: 5\r\n",
    "0\r\n\r\n",
    "host: u\r\n",
    "connection: content-length\r\n",
    "expect: 100-continue\r\n",
    "HTTP/1.0",
    "é",
];

fn mutated(random: &mut Random) -> Vec<u8> {
    let seed = SEEDS[random.below(SEEDS.len())];
    let mut bytes = seed.as_bytes().to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len());
        let piece = PIECES[random.below(PIECES.len())].bytes();
        let end = (at + random.below(4)).min(bytes.len());
        match random.below(4) {
            0 => drop(bytes.splice(at..at, piece)),
            1 => drop(bytes.splice(at..end, piece)),
            2 => drop(bytes.drain(at..end)),
            // A whole line, where it may do most.
            _ => {
                let lines: Vec<usize> = bytes
                    .windows(2)
                    .enumerate()
                    .filter(|(_, w)| w == b"\r\n")
                    .map(|(n, _)| n + 2)
                    .collect();
                let at = lines
                    .get(random.below(lines.len() + 1))
                    .copied()
                    .unwrap_or(at);
                drop(bytes.splice(at..at, piece));
            }
        }
        if bytes.is_empty() {
            bytes.push(b'\n');
        }
    }
    bytes
}

#[test]
fn no_server_sees_what_was_not_asked() {
    let site = Site::start("", &[ALL]);
    let mut passed = 0;
    for seed in 0..ROUNDS {
        let mut random = Random(seed);
        let bytes = [mutated(&mut random), MARKER.into()].concat();
        let cut = [Cut::Whole, Cut::Places(seed)][random.below(2)];
        let (read, end) = strict::requests(&bytes);
        let name = format!("seed {seed} {cut:?} {:?} {end:?}", text(&bytes));
        let mut asker = site.connect();
        cut.send(&mut asker.stream, &bytes);
        // As many answers as there are requests; the gateway may be stricter.
        for message in &read {
            let Some(answer) = asker.answer(message.start.starts_with("HEAD ")) else {
                break;
            };
            if answer.status() != 200 {
                break;
            }
            let saw = message.deed().escape_default().to_string();
            assert_eq!(answer.field("x-saw"), Some(&*saw), "{name}");
        }
        let _ = asker.stream.shutdown(Shutdown::Write);
        let rest = asker.rest();
        let log = site.recorder.take();
        assert_eq!(log.unclean, Vec::<String>::new(), "{name}");
        let seen: Vec<String> = log.requests.iter().map(Message::deed).collect();
        let asked: Vec<String> = read.iter().map(Message::deed).collect();
        assert!(asked.starts_with(&seen), "{seen:?} {name}");
        if !rest.is_empty() {
            // The last is a refusal, whole, if only a head to one who asked for no more.
            let is_last = |head_only| {
                let last = strict::answer(&rest, head_only, true);
                last.is_ok_and(|m| m.status() >= 400 && m.length == rest.len())
            };
            assert!(is_last(false) || is_last(true), "{name}\n{:?}", text(&rest));
        }
        passed += usize::from(seen.len() == asked.len() && end.is_none());
    }
    assert!(
        passed > ROUNDS as usize / 20,
        "only {passed} passed: this tests nothing"
    );
}
