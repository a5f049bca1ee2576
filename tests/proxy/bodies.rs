//! Bodies and the messages that have none pass unchanged.

use std::io::{BufRead, Read, Write};
use std::time::Duration;

use crate::common::{Client, Gateway, Message, Upstream, ok, read_body, read_head};

const ALL: (&str, &str) = ("all", "match: /**\nupstream: up\n");

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::start(upstream.address, "", &[ALL])
}

#[test]
fn chunked_bodies_and_trailers_pass_both_ways() {
    let upstream = Upstream::answering(|request| {
        if request.start.starts_with("GET") {
            return ok("again");
        }
        assert_eq!(request.text(), "hello world");
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
         5\r\nabcde\r\n3\r\nfgh\r\n0\r\nx-sum: 42\r\n\r\n"
            .into()
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send(
        "POST /c HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\ntrailer: x-check\r\n\
         te: trailers\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\nx-check: 7\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "abcdefgh"));
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "42".to_owned())]);
    let seen = upstream.next();
    assert_eq!(seen.trailers, [("x-check".to_owned(), "7".to_owned())]);
    assert_eq!(client.get("/again").status(), 200, "the connection goes on");
}

#[test]
fn answers_without_a_body_keep_their_fields() {
    let upstream = Upstream::answering(|request| match request.start.as_str() {
        s if s.starts_with("HEAD") => "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n".into(),
        s if s.contains("/204") => "HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n".into(),
        s if s.contains("/304") => {
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 99\r\netag: \"e\"\r\n\r\n".into()
        }
        _ => ok("body"),
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send("HEAD /h HTTP/1.1\r\nhost: t\r\n\r\n");
    let head = client.head().unwrap();
    assert_eq!(
        (head.status(), head.field("content-length")),
        (200, Some("1234"))
    );
    client.send("GET /204 HTTP/1.1\r\nhost: t\r\n\r\n");
    let none = client.head().unwrap();
    assert_eq!((none.status(), none.field("x-a")), (204, Some("1")));
    assert_eq!(none.field("content-length"), None);
    client.send("GET /304 HTTP/1.1\r\nhost: t\r\n\r\n");
    let same = client.head().unwrap();
    assert_eq!((same.status(), same.field("etag")), (304, Some("\"e\"")));
    assert_eq!(same.field("content-length"), Some("99"));
    assert_eq!(
        client.get("/after").text(),
        "body",
        "no byte of a body was made up"
    );
}

#[test]
fn a_client_that_waits_for_100_gets_it() {
    let upstream = Upstream::answering(|request| ok(&request.text()));
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send("PUT /e HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n");
    let interim = read_head(&mut client.reader).unwrap();
    assert_eq!(interim.status(), 100);
    client.send("data");
    assert_eq!(client.answer().text(), "data");
}

#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let upstream = Upstream::scripted(|mut served, _| {
        let _ = read_head(&mut served.reader);
        served.send("HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig");
        // Reads on, as a polite server does, so that the answer is not destroyed.
        let mut sink = [0; 4096];
        while served.reader.read(&mut sink).is_ok_and(|n| n > 0) {}
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send("POST /early HTTP/1.1\r\nhost: t\r\ncontent-length: 100000\r\n\r\nfirst");
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (413, "big"));
}

#[test]
fn a_piece_is_passed_on_before_the_next_one_comes() {
    let upstream = Upstream::scripted(|mut served, report| {
        let Ok(mut request) = read_head(&mut served.reader) else {
            return;
        };
        served.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        // One chunk out for each chunk in: only streaming gets to the end.
        let mut line = String::new();
        while served.reader.read_line(&mut line).is_ok_and(|n| n > 0) && line != "0\r\n" {
            let mut data = vec![0; 3];
            served.reader.read_exact(&mut data).unwrap();
            request.body.extend_from_slice(&data[..1]);
            served.send([b"1\r\n".as_slice(), &data[..1], b"\r\n"].concat());
            line.clear();
        }
        served.send("0\r\n\r\n");
        report(request);
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send("POST /s HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n");
    client.head().unwrap();
    for piece in ["a", "b", "c"] {
        client.send(format!("1\r\n{piece}\r\n"));
        let mut back = [0; 6];
        client.reader.read_exact(&mut back).unwrap();
        assert_eq!(&back, format!("1\r\n{piece}\r\n").as_bytes());
    }
    client.send("0\r\n\r\n");
    let mut end = Message::default();
    end.fields
        .push(("transfer-encoding".into(), "chunked".into()));
    read_body(&mut client.reader, &mut end).unwrap();
    assert_eq!(upstream.next().text(), "abc");
}

#[test]
fn a_body_of_200_mb_passes_each_way_in_little_memory() {
    const SIZE: usize = 200 * 1024 * 1024;
    static PIECE: [u8; 65536] = [b'x'; 65536];
    let upstream = Upstream::scripted(|mut served, report| {
        let Ok(request) = read_head(&mut served.reader) else {
            return;
        };
        let mut left: usize = request.field("content-length").unwrap().parse().unwrap();
        let mut sink = vec![0; 65536];
        while left > 0 {
            let most = sink.len().min(left);
            left -= served.reader.read(&mut sink[..most]).unwrap();
        }
        report(request);
        served.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n"));
        for _ in 0..SIZE / PIECE.len() {
            served.send(PIECE);
        }
    });
    let gateway = gateway(&upstream);
    let mut client: Client = gateway.connect();
    let before = resident();
    client.send(format!(
        "POST /big HTTP/1.1\r\nhost: t\r\ncontent-length: {SIZE}\r\n\r\n"
    ));
    let mut most = 0;
    for number in 0..SIZE / PIECE.len() {
        client.stream.write_all(&PIECE).unwrap();
        if number % 64 == 0 {
            most = most.max(resident());
        }
    }
    let head = client.head().unwrap();
    assert_eq!(head.status(), 200);
    let mut got = 0;
    let mut sink = vec![0; 65536];
    while got < SIZE {
        let n = client.reader.read(&mut sink).unwrap();
        assert!(n > 0, "the answer broke off after {got} bytes");
        got += n;
        if got % (SIZE / 64) < n {
            most = most.max(resident());
        }
    }
    let grown = most.saturating_sub(before) / 1024;
    assert!(grown < 20 * 1024, "memory grew by {grown} KiB");
}

/// Bytes of memory of this process, which holds client, gateway and upstream.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn who_reads_slowly_slows_the_sender() {
    const PIECES: usize = 1024;
    static PIECE: [u8; 65536] = [b'x'; 65536];
    let (count, sent) = std::sync::mpsc::channel();
    let upstream = Upstream::scripted(move |mut served, _| {
        let _ = read_head(&mut served.reader);
        served.send(format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
            PIECES * PIECE.len()
        ));
        for _ in 0..PIECES {
            served.send(PIECE);
            let _ = count.send(());
        }
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send("GET /slow HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 200);
    std::thread::sleep(Duration::from_millis(700));
    let before = sent.try_iter().count();
    // What the kernel's buffers hold on both legs, and a little.
    assert!(
        before < PIECES / 2,
        "{before} of {PIECES} pieces were taken"
    );
    let mut rest = PIECES * PIECE.len();
    let mut sink = vec![0; 65536];
    while rest > 0 {
        let most = sink.len().min(rest);
        let read = client.reader.read(&mut sink[..most]).unwrap();
        assert!(read > 0, "cut off with {rest} bytes to go");
        rest -= read;
    }

    // The other way: an upstream that does not read.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    let upstream = Upstream::scripted(move |mut served, _| {
        let _ = read_head(&mut served.reader);
        let _ = wait.lock().unwrap().recv();
        served.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let gateway = self::gateway(&upstream);
    let mut client = gateway.connect();
    client.send("POST /up HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n");
    client
        .stream
        .set_write_timeout(Some(Duration::from_millis(700)))
        .unwrap();
    let chunk = [b"10000\r\n".as_slice(), &PIECE, b"\r\n"].concat();
    let taken = (0..PIECES).take_while(|_| client.stream.write_all(&chunk).is_ok());
    let taken = taken.count();
    assert!(taken < PIECES / 2, "{taken} of {PIECES} chunks were taken");
    drop(go);
    assert_eq!(client.head().unwrap().status(), 200);
}

#[test]
fn interim_answers_pass() {
    let upstream = Upstream::answering(|_| {
        "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\nconnection: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
            .to_owned()
            + &ok("fine")
    });
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
    let hints = client.head().unwrap();
    assert_eq!(
        (hints.status(), hints.field("link")),
        (103, Some("</a.css>"))
    );
    assert_eq!(hints.field("connection"), None);
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "fine"));
    let mut old = gateway.connect();
    old.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(old.head().unwrap().status(), 200);
}

/// Extensions and trailers of a message are bounded together, however few are in each chunk (compare CVE-2023-39326).
#[test]
fn chunk_extensions_end() {
    let many = "1;x=0123456789\r\na\r\n".repeat(2_000);
    let held = many.clone();
    let upstream = Upstream::answering(move |request| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        match request.start.as_str() {
            "GET /many HTTP/1.1" => format!("{head}{held}0\r\n\r\n"),
            _ => format!("{head}1;x=0123456789\r\na\r\n0\r\n\r\n"),
        }
    });
    let gateway = gateway(&upstream);
    assert_eq!(gateway.connect().get("/few").text(), "a");
    upstream.drain();
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send(&many);
    assert_eq!(client.answer().status(), 400);
    let whole = |request: &Message| !request.start.is_empty();
    assert!(!upstream.drain().iter().any(whole));
    let mut client = gateway.connect();
    client.send("GET /many HTTP/1.1\r\nhost: t\r\n\r\n");
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(rest.starts_with("HTTP/1.1 200 ") && !rest.ends_with("0\r\n\r\n"));
}

/// There are readers that take `010` for eight, and the rest of the answer for another one.
#[test]
fn lengths_of_answers_are_written_anew() {
    use crate::common::http2::{Client as Http2, run};
    let upstream = Upstream::answering(|_| {
        "HTTP/1.1 200 OK\r\nContent-Length:0010\r\nx-a: b\r\n\r\n0123456789".into()
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!(answer.field("content-length"), Some("10"));
        assert_eq!(
            (answer.text().as_str(), answer.field("x-a")),
            ("0123456789", Some("b"))
        );
    }
    client.send("HEAD / HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.head().unwrap().field("content-length"), Some("10"));
    run(async {
        let mut client = Http2::connect(gateway.address).await;
        let answer = client.get("/").await;
        assert_eq!(answer.field("content-length"), Some("10"));
        assert_eq!(answer.body, "0123456789");
    });
}
