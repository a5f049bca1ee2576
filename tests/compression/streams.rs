//! Bodies that come piece by piece, that break off, and that have trailers.

use std::io::{BufRead, Read, Write};

use crate::common::http2::{self, run};
use crate::common::{Gateway, Upstream};
use crate::{ALL, Chunks, begin, decoder, decompress, text};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n";

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::start(
        upstream.address,
        "workers: 1\ncompress: true\n",
        &[("all", ALL)],
    )
}

fn chunk(content: &str) -> String {
    format!("{:x}\r\n{content}\r\n", content.len())
}

/// Each line is read before the upstream sends the next one.
#[test]
fn what_has_come_leaves_when_the_upstream_pauses() {
    for coding in ["zstd", "br", "gzip"] {
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        let waits = std::sync::Arc::new(std::sync::Mutex::new(waits));
        let upstream = Upstream::scripted(move |mut served, _| {
            let _ = served.request();
            served.send(format!("{HEAD}\r\n"));
            for number in 0..20 {
                served.send(chunk(&format!("{{\"number\":{number}}}\n")));
                let _ = waits.lock().unwrap().recv();
            }
            served.send("0\r\n\r\n");
        });
        let gateway = gateway(&upstream);
        let mut client = gateway.connect();
        begin(&mut client, "/", coding);
        let chunks = Chunks::new(client.reader);
        let mut content = std::io::BufReader::new(decoder(coding, chunks));
        for number in 0..20 {
            let mut line = String::new();
            content.read_line(&mut line).expect(coding);
            assert_eq!(line, format!("{{\"number\":{number}}}\n"), "{coding}");
            go_on.send(()).unwrap();
        }
        assert_eq!(content.read(&mut [0]).unwrap(), 0, "{coding}");
    }
}

/// Events are passed on as they are, each at once.
#[test]
fn events_are_not_compressed() {
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Arc::new(std::sync::Mutex::new(waits));
    let upstream = Upstream::scripted(move |mut served, _| {
        let _ = served.request();
        let head = HEAD.replace("application/x-ndjson", "text/event-stream");
        served.send(format!("{head}\r\n"));
        for number in 0..5 {
            served.send(chunk(&format!("data: {number}\n\n")));
            let _ = waits.lock().unwrap().recv();
        }
        served.send("0\r\n\r\n");
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: t\r\naccept-encoding: gzip, br, zstd\r\n\r\n");
    let head = client.head().unwrap();
    assert_eq!(
        (head.field("content-encoding"), head.field("vary")),
        (None, None)
    );
    let mut chunks = Chunks::new(client.reader);
    for number in 0..5 {
        let expected = format!("data: {number}\n\n");
        let mut event = vec![0; expected.len()];
        chunks.read_exact(&mut event).unwrap();
        assert_eq!(event, expected.as_bytes());
        go_on.send(()).unwrap();
    }
}

/// Neither the framing nor the coding says that the content is whole.
#[test]
fn what_breaks_off_is_not_taken_for_whole() {
    let upstream = Upstream::scripted(|mut served, _| {
        let _ = served.request();
        served.send(format!("{HEAD}\r\n{}", chunk(&text(3000))));
        // The connection ends without the last chunk.
    });
    let gateway = gateway(&upstream);
    for coding in ["zstd", "br", "gzip"] {
        let mut client = gateway.connect();
        begin(&mut client, "/", coding);
        let mut compressed = Vec::new();
        let ended = Chunks::new(client.reader).read_to_end(&mut compressed);
        assert!(ended.is_err(), "{coding}");
        let mut content = Vec::new();
        let ended = decoder(coding, &*compressed).read_to_end(&mut content);
        assert!(ended.is_err(), "{coding}");
        assert!(text(3000).as_bytes().starts_with(&content), "{coding}");
    }
    run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let request = http2::request("GET", "/").header("accept-encoding", "gzip");
        let (answer, _) = client.begin(request.body(()).unwrap(), true);
        let ended = http2::whole(answer.await.unwrap()).await;
        assert!(ended.unwrap_err().is_reset());
    });
}

#[test]
fn trailers_follow_the_content() {
    let upstream = Upstream::answering(|_| {
        let content = chunk(&text(100));
        format!(
            "{HEAD}trailer: x-sum, content-digest\r\n\r\n{content}0\r\nx-sum: 7\r\ncontent-digest: sha-256=:a:\r\n\r\n"
        )
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: t\r\nconnection: te\r\nte: trailers\r\naccept-encoding: br\r\n\r\n");
    assert_eq!(client.head().unwrap().field("content-encoding"), Some("br"));
    let mut chunks = Chunks::new(client.reader);
    let mut compressed = Vec::new();
    chunks.read_to_end(&mut compressed).unwrap();
    assert_eq!(decompress("br", &compressed), text(100).as_bytes());
    assert_eq!(chunks.trailers, ["x-sum: 7"]);
    run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let request = http2::request("GET", "/").header("accept-encoding", "zstd");
        let (answer, _) = client.begin(request.body(()).unwrap(), true);
        let answer = http2::whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(decompress("zstd", &answer.body), text(100).as_bytes());
        let trailers = answer.trailers.unwrap();
        assert_eq!((trailers.len(), &trailers["x-sum"] == "7"), (1, true));
    });
}

/// A tunnel's bytes are no content, whatever its response says.
#[test]
fn tunnels_are_not_compressed() {
    let upstream = Upstream::scripted(|mut served, _| {
        let _ = served.request();
        served.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\ncontent-type: text/plain\r\n\r\n");
        let _ = std::io::copy(&mut served.reader, &mut served.stream);
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: echo\r\naccept-encoding: gzip\r\n\r\n");
    let head = client.head().unwrap();
    assert_eq!((head.status(), head.field("content-encoding")), (101, None));
    client.stream.write_all(b"hello").unwrap();
    let mut echoed = [0; 5];
    client.reader.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"hello");
}
