//! Messages with mistakes that chance makes. No server sees anything that the strict reading of the client's
//! bytes does not have, and no client an answer that the server did not give.

use std::net::Shutdown;

use crate::case::{ALL, Asker, Cut, MARKER, Random, Site, text};
use crate::common::Gateway;
use crate::replay::{Replay, Script, Then};
use crate::strict::{self, Message, Stop};

const ROUNDS: u64 = 3000;

const REQUESTS: [&str; 6] = [
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

fn mutated(random: &mut Random, seeds: &[&str]) -> Vec<u8> {
    let seed = seeds[random.below(seeds.len())];
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
        let bytes = [mutated(&mut random, &REQUESTS), MARKER.into()].concat();
        let cut = [Cut::Whole, Cut::Places(seed)][random.below(2)];
        let (read, end) = strict::requests(&bytes);
        let name = format!("seed {seed} {cut:?} {:?} {end:?}", text(&bytes));
        let mut asker = site.connect();
        cut.send(&mut asker.stream, &bytes);
        let mut refused = false;
        // As many answers as there are requests; the gateway may be stricter.
        for message in &read {
            let Some(answer) = asker.answer(message.start.starts_with("HEAD ")) else {
                break;
            };
            refused = answer.status() != 200;
            if refused {
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
        if refused {
            // The body of a refusal whose method could not be read.
            assert!(!rest.starts_with(b"HTTP/"), "{name}\n{:?}", text(&rest));
        } else if !rest.is_empty() {
            // The last is a refusal, whole, if only a head to one who asked for no more.
            let is_last = |head_only| {
                let last = last(&rest, head_only);
                last.is_ok_and(|(m, behind)| m.status() >= 400 && behind.is_empty())
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

const ANSWERS: [&str; 5] = [
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
    "HTTP/1.1 103 Hints\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\ncontent-length: 42\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nwhole!",
    "HTTP/1.1 200 OK\r\n\r\nhello",
];

/// The final answer at the front, and what is behind it.
fn last(mut bytes: &[u8], head_only: bool) -> Result<(Message, &[u8]), Stop> {
    loop {
        let message = strict::answer(bytes, head_only, true)?;
        bytes = &bytes[message.length..];
        if message.status() >= 200 {
            return Ok((message, bytes));
        }
    }
}

#[test]
fn no_client_sees_what_was_not_answered() {
    let replay = Replay::start();
    let gateway = Gateway::start(replay.address, "workers: 1\n", &[ALL]);
    let mut passed = 0;
    for seed in 0..ROUNDS {
        let mut random = Random(seed);
        let answer = mutated(&mut random, &ANSWERS);
        let name = format!("seed {seed} {:?}", text(&answer));
        let said = last(&answer, false);
        // What comes later than the answer may meet the next request, so that it must come with it.
        let alone = said.as_ref().is_ok_and(|(_, behind)| behind.is_empty());
        let said = said.map(|(message, _)| message);
        let cuts = [Cut::Whole, Cut::Places(seed)];
        replay.say(Script::new(answer, Then::Close, cuts[usize::from(alone)]));
        let mut asker = Asker::connect(gateway.address);
        asker.send("GET /case HTTP/1.1\r\nhost: t\r\n\r\n");
        asker.send("GET /marker HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
        let all = asker.rest();
        let name = format!("{name} {said:?}\n{:?}", text(&all));
        match last(&all, false) {
            Ok((got, behind)) => {
                let (marker, rest) =
                    last(behind, false).unwrap_or_else(|stop| panic!("{stop:?} {name}"));
                assert_eq!(
                    (&marker.body[..], rest),
                    (&b"GET /marker []"[..], &b""[..]),
                    "{name}"
                );
                let same =
                    |said: &Message| (said.status(), &said.body) == (got.status(), &got.body);
                match &said {
                    Ok(said) => assert!(same(said) || got.status() == 502, "{name}"),
                    Err(Stop::More) => assert_eq!(got.status(), 502, "{name}"),
                    Err(Stop::Unclean(_)) => {}
                }
                passed += usize::from(said.as_ref().is_ok_and(same));
            }
            // The connection ended with it.
            Err(Stop::More) => assert!(!text(&all).contains("marker"), "{name}"),
            Err(Stop::Unclean(why)) => panic!("{why} {name}"),
        }
    }
    assert!(
        passed > ROUNDS as usize / 20,
        "only {passed} passed: this tests nothing"
    );
}
