//! Answers of a hostile server. The client gets the whole answer to its own request, or 502, or one that
//! everybody can see has broken off; never a byte of another.

use crate::case::{ALL, Asker, CUTS, Cut, text};
use crate::common::Gateway;
use crate::replay::{Replay, Script, Then};
use crate::strict::{self, Stop};

/// What the client gets.
#[derive(Clone, Copy, Debug)]
enum Gets<'t> {
    /// 502.
    Bad,
    /// The answer with this body.
    Whole(u16, &'t str),
    /// The beginning of the answer, and then the end of the connection.
    Torn(&'t str),
}
use Gets::{Bad, Torn, Whole};

struct Site {
    gateway: Gateway,
    replay: Replay,
}

impl Site {
    fn start() -> Site {
        let replay = Replay::start();
        Site {
            gateway: Gateway::start(replay.address, "workers: 1\n", &[ALL]),
            replay,
        }
    }

    #[track_caller]
    fn check(&self, rule: &str, method: &str, answer: &[u8], then: Then, gets: Gets<'_>) {
        for cut in CUTS {
            let name = format!("{rule} {method} {cut:?} {then:?} {:?}", text(answer));
            self.replay.say(Script::new(answer, then, cut));
            self.check_one(&name, method, gets);
        }
    }

    /// Asks for the case and for something else behind it.
    #[track_caller]
    fn check_one(&self, name: &str, method: &str, gets: Gets<'_>) {
        let mut asker = Asker::connect(self.gateway.address);
        let length = if method == "POST" {
            "content-length: 0\r\n"
        } else {
            ""
        };
        asker.send(format!(
            "{method} /case HTTP/1.1\r\nhost: t\r\n{length}\r\nGET /marker HTTP/1.1\r\nhost: t\r\n\r\n"
        ));
        let (status, body) = match gets {
            Bad => (502, None),
            Whole(status, body) => (status, Some(body)),
            Torn(body) => return self.torn(&mut asker, body, name),
        };
        self.replay.release();
        let answer = asker
            .answer(method == "HEAD")
            .unwrap_or_else(|| panic!("no answer: {name}"));
        assert_eq!(answer.status(), status, "{name}\n{answer:?}");
        if let Some(body) = body {
            assert_eq!(text(&answer.body), body, "{name}");
        }
        for gone in ["keep-alive", "x-hop", "upgrade"] {
            assert_eq!(answer.field(gone), None, "{name}");
        }
        let marker = asker
            .answer(false)
            .unwrap_or_else(|| panic!("no second answer: {name}"));
        assert_eq!(text(&marker.body), "GET /marker []", "{name}");
    }

    /// The connection ends with an answer that is not over.
    #[track_caller]
    fn torn(&self, asker: &mut Asker, body: &str, name: &str) {
        while !came(&asker.input, body) && !asker.closed {
            asker.read();
        }
        self.replay.release();
        let all = asker.rest();
        let shown = text(&all);
        assert!(came(&all, body), "{name}\n{shown}");
        let read = strict::answer(&all, false, true);
        assert_eq!(read, Err(Stop::More), "{name}\n{shown}");
        assert!(
            !shown.contains("marker") && !shown.contains("poison"),
            "{name}\n{shown}"
        );
    }
}

/// The head of a 200 is there and this beginning of its body, in however many chunks.
fn came(input: &[u8], body: &str) -> bool {
    let shown = text(input);
    let Some((head, rest)) = shown.split_once("\\r\\n\\r\\n") else {
        return false;
    };
    let mut rest = rest.chars();
    head.starts_with("HTTP/1.1 200 ") && body.chars().all(|c| rest.any(|other| other == c))
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
const POISON: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";

#[test]
fn framing_that_two_readers_could_read_differently() {
    let site = Site::start();
    let fields = [
        "content-length: 3\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 3",
        "content-length: 3\r\ncontent-length: 3",
        "content-length: 3\r\ncontent-length: 30",
        "content-length: 3, 3",
        "content-length: +3",
        "content-length: -1",
        "content-length: 0x3",
        "content-length: 3 3",
        "content-length:",
        "content-length: 18446744073709551616",
        "content-length : 3",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: identity",
        "transfer-encoding: xchunked",
        "transfer-encoding:\r\n chunked",
    ];
    for fields in fields {
        let answer = format!("{OK}{fields}\r\n\r\n3\r\nabc\r\n0\r\n\r\n{POISON}");
        site.check("RFC 9112 6.3", "GET", answer.as_bytes(), Then::Stay, Bad);
    }
    let old = "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    site.check("RFC 9112 6.1", "GET", old.as_bytes(), Then::Stay, Bad);
}

#[test]
fn heads_that_are_none() {
    let site = Site::start();
    let rest = "content-length: 3\r\n\r\nabc";
    let heads = [
        format!("HTTP/2 200 OK\r\n{rest}"),
        format!("HTTP/1.2 200 OK\r\n{rest}"),
        format!("HTTP/1.1  200 OK\r\n{rest}"),
        format!("HTTP/1.1 20 OK\r\n{rest}"),
        format!("HTTP/1.1 2000 OK\r\n{rest}"),
        format!("HTTP/1.1 099 OK\r\n{rest}"),
        format!("HTTP/1.1 +20 OK\r\n{rest}"),
        format!("HTTP/1.1 abc OK\r\n{rest}"),
        format!("HTTP/1.1\r\n{rest}"),
        format!("ICY 200 OK\r\n{rest}"),
        format!("200 OK\r\n{rest}"),
        format!("<html>{rest}"),
        format!("HTTP/1.1 200 O\0K\r\n{rest}"),
        format!("HTTP/1.1 200 O\rK\r\n{rest}"),
        format!("{OK} a: b\r\n{rest}"),
        format!("{OK}a: b\r\n c\r\n{rest}"),
        format!("{OK}a : b\r\n{rest}"),
        format!("{OK}a\r\n{rest}"),
        format!("{OK}: b\r\n{rest}"),
        format!("{OK}a: b\0\r\n{rest}"),
        format!("{OK}a: b\rc: d\r\n{rest}"),
        format!("{OK}a\u{7f}: b\r\n{rest}"),
        format!("{OK}{}{rest}", "a: b\r\n".repeat(100)),
        format!("{OK}connection: close{}\r\n{rest}", ",a".repeat(32)),
        format!("{OK}a: {}\r\n{rest}", "b".repeat(70_000)),
        format!("{OK}{}{rest}", "a: b\r\n".repeat(20_000)),
        format!("HTTP/1.1 200 {}\r\n{rest}", "O".repeat(70_000)),
        "SSH-2.0-OpenSSH_9.2\r\n\r\n".into(),
        "\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{46}".into(),
        // Interim answers: RFC 9110 15.2.
        format!(
            "{}{OK}{rest}",
            "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17)
        ),
        format!("{}{OK}{rest}", "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000)),
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n{OK}{rest}"
        ),
        format!("HTTP/1.1 101 Switching Protocols\r\n\r\n{POISON}"),
    ];
    for head in heads {
        site.check("RFC 9112 4", "GET", head.as_bytes(), Then::Stay, Bad);
    }
    for part in [
        "",
        "H",
        OK,
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n",
        "HTTP/1.1 103 A\r\n\r\n",
    ] {
        for then in [Then::Close, Then::HalfClose, Then::Reset] {
            site.check("RFC 9112 8", "POST", part.as_bytes(), then, Bad);
        }
    }
}

/// CVE class "response queue poisoning": what comes behind an answer is nobody's.
#[test]
fn what_comes_behind_an_answer() {
    let site = Site::start();
    let answers: [(&str, u16, &str); 12] = [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
            200,
            "abc",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, ""),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            200,
            "abc",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\ncontent-length: 9\r\n\r\n",
            200,
            "abc",
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
        (
            "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n",
            204,
            "",
        ),
        (
            "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
            204,
            "",
        ),
        (
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 46\r\n\r\n",
            304,
            "",
        ),
        (
            "HTTP/1.1 103 A\r\ncontent-length: 46\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na",
            200,
            "a",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: x-hop, content-length\r\nx-hop: 1\r\nkeep-alive: a\r\n\r\nabc",
            200,
            "abc",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nabc",
            200,
            "abc",
        ),
        (
            "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nabc",
            200,
            "abc",
        ),
    ];
    for (answer, status, body) in answers {
        for behind in [
            "",
            "\r\n",
            "0\r\n\r\n",
            "x",
            "HTTP/1.1 103 A\r\n\r\n",
            POISON,
        ] {
            let said = format!("{answer}{behind}");
            // In one piece, for bytes that come later may meet the next request.
            let script = |cut| Script::new(said.clone(), Then::Stay, cut);
            site.replay.say(script(Cut::Whole));
            site.check_one(
                &format!("RFC 9112 6.3 {said:?}"),
                "GET",
                Whole(status, body),
            );
        }
        for then in [Then::Close, Then::HalfClose] {
            site.check(
                "RFC 9112 6.3",
                "GET",
                answer.as_bytes(),
                then,
                Whole(status, body),
            );
        }
    }
    // RFC 9110 9.3.2: an answer to HEAD has no body, whatever it says.
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ncontent-length: 46\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nabc",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
    ] {
        let script = |then| Script::new(answer, then, Cut::Whole);
        let status = if answer.contains("404") { 404 } else { 200 };
        for then in [Then::Stay, Then::Close] {
            site.replay.say(script(then));
            site.check_one(
                &format!("RFC 9110 9.3.2 {answer:?}"),
                "HEAD",
                Whole(status, ""),
            );
        }
    }
}

/// What can be read in one way only passes as it was meant.
#[test]
fn answers_that_pass() {
    let site = Site::start();
    let answers: [(&str, Then, &str); 7] = [
        (
            "HTTP/1.1 200\r\ncontent-length: 3\r\n\r\nabc",
            Then::Stay,
            "abc",
        ),
        (
            "HTTP/1.1 200 OK\ncontent-length: 3\n\nabc",
            Then::Stay,
            "abc",
        ),
        ("HTTP/1.1 200 OK\r\n\r\nabc", Then::Close, "abc"),
        ("HTTP/1.1 200 OK\r\n\r\n", Then::HalfClose, ""),
        ("HTTP/1.0 200 OK\r\n\r\nabc", Then::Close, "abc"),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1E\r\nHTTP/1.1 200 OK\r\na: b\r\n\r\nabcde\r\n0\r\n\r\n",
            Then::Stay,
            "HTTP/1.1 200 OK\\r\\na: b\\r\\n\\r\\nabcde",
        ),
        (
            "HTTP/1.1 103 A\r\n\r\nHTTP/1.1 102 B\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na",
            Then::Stay,
            "a",
        ),
    ];
    for (answer, then, body) in answers {
        site.check(
            "RFC 9112 6.3",
            "GET",
            answer.as_bytes(),
            then,
            Whole(200, body),
        );
    }
}

/// RFC 9112 8: an answer that is not whole does not look whole.
#[test]
fn answers_that_break_off() {
    let site = Site::start();
    for then in [Then::Close, Then::HalfClose, Then::Reset] {
        for (answer, body) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", "half"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", ""),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", ""),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
                "half",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nhalf",
                "half",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
                "half",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\nx: y\r\n",
                "half",
            ),
        ] {
            site.check("RFC 9112 8", "GET", answer.as_bytes(), then, Torn(body));
        }
    }
    // The end of the connection is that of the body, but for a reset.
    let endless = "HTTP/1.1 200 OK\r\n\r\nhalf";
    site.check(
        "RFC 9112 8",
        "GET",
        endless.as_bytes(),
        Then::Reset,
        Torn("half"),
    );
    for chunk in [
        "x\r\n",
        "\r\n",
        "-1\r\n",
        "+4\r\nlast\r\n0\r\n\r\n",
        "0x4\r\nlast\r\n0\r\n\r\n",
        "4\nlast\r\n0\r\n\r\n",
        "4\r\nlast\n0\r\n\r\n",
        "4\r\nlasts\r\n0\r\n\r\n",
        "4 4\r\nlast\r\n0\r\n\r\n",
        "10000000000000000\r\nlast",
        "4;\nx\r\nlast\r\n0\r\n\r\n",
        "4;\r\r\nlast\r\n0\r\n\r\n",
        "0\n\r\n",
        "0\r\n\n",
        "0\r\nx : y\r\n\r\n",
        "0\r\nx: y\r\n z\r\n\r\n",
        "0\r\nx\r\n\r\n",
        "0\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        let answer = format!("{OK}transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n{chunk}{POISON}");
        site.check(
            "RFC 9112 7.1",
            "GET",
            answer.as_bytes(),
            Then::Stay,
            Torn("half"),
        );
    }
}
