//! The memory of uploads that turn out to be too large, a thousand at once and in every framing.

use tempfile::TempDir;

use crate::common::child::Server;
use crate::common::raw::{DATA, END_HEADERS, HEADERS, Raw, block, frame};
use crate::common::{Client, Gate, Upstream, raise_descriptor_limit, read_head, write};

const UPLOADS: usize = 1000;

/// What all uploads of a test add at most over HTTP/1.1, in bytes.
const MAX_ADDED_BYTES: u64 = 20 * 1024 * 1024;

/// The same over HTTP/2, where a client may fill its window before the gateway has looked at the first byte.
const MAX_ADDED_BYTES_OVER_HTTP2: u64 = MAX_ADDED_BYTES + UPLOADS as u64 * 72 * 1024;

/// A part that every upload may have.
const FIRST_BYTES: usize = 1000;

/// The other part, which is too large.
const MORE_BYTES: usize = 60_000;

const POLICY: &str = "match: /**\nupstream: up\nmax_body: 1KiB\n";

fn server(upstream: &Upstream) -> (Server, TempDir) {
    raise_descriptor_limit(4 * UPLOADS as u64);
    let folder = tempfile::tempdir().unwrap();
    let more = "admin: off\nrecord: off\nworkers: 1\nconnections: { per_ip: 5000 }\n";
    write(&folder, upstream.address, more, &[("all", POLICY)]);
    (Server::start(folder.path(), false), folder)
}

/// The most memory that a process has had, in bytes.
fn peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<u64>().unwrap() * 1024
}

/// Opens a thousand uploads, sends what is too much of all, and reads the refusals. The functions are the steps of one.
#[track_caller]
fn check<U>(
    max_added_bytes: u64,
    begin: impl Fn(&Server) -> U,
    go_on: impl Fn(&mut U),
    assert_refused: impl Fn(&mut U),
) {
    let end = Gate::default();
    let upstream = {
        let end = end.clone();
        Upstream::scripted(move |mut served, report| {
            report(read_head(&mut served.reader).unwrap_or_default());
            end.pass();
        })
    };
    let (server, _folder) = server(&upstream);
    // The first one brings what all share.
    let mut first = begin(&server);
    go_on(&mut first);
    assert_refused(&mut first);
    upstream.next();
    let before = peak_bytes(server.id());
    let mut uploads: Vec<U> = (0..UPLOADS).map(|_| begin(&server)).collect();
    for _ in 0..UPLOADS {
        upstream.next();
    }
    let open = peak_bytes(server.id()).saturating_sub(before);
    uploads.iter_mut().for_each(&go_on);
    uploads.iter_mut().for_each(&assert_refused);
    let added = peak_bytes(server.id()).saturating_sub(before);
    println!("open: {} KiB, refused: {} KiB", open / 1024, added / 1024);
    end.open();
    assert!(added < max_added_bytes, "{added}");
}

#[test]
fn a_thousand_uploads_in_chunks_take_little_memory() {
    let begin = |server: &Server| {
        let mut client = server.connect();
        let part = "b".repeat(FIRST_BYTES);
        client.send(format!(
            "POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n{FIRST_BYTES:x}\r\n{part}\r\n"
        ));
        client
    };
    let more = format!("{MORE_BYTES:x}\r\n{}\r\n", "b".repeat(MORE_BYTES));
    let assert_refused = |client: &mut Client| {
        assert_eq!(client.head().unwrap().status(), 413);
    };
    check(
        MAX_ADDED_BYTES,
        begin,
        |client| client.send(&more),
        assert_refused,
    );
}

#[test]
fn a_thousand_uploads_over_http2_take_little_memory() {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "t"),
        (":path", "/"),
    ];
    let begin = |server: &Server| {
        let mut raw = Raw::connect(server.address, &[]);
        raw.send(&frame(HEADERS, END_HEADERS, 1, &block(&fields)));
        raw.send(&frame(DATA, 0, 1, &[b'b'; FIRST_BYTES]));
        raw
    };
    let more = frame(DATA, 0, 1, &[b'b'; 15_000]).repeat(MORE_BYTES / 15_000);
    let assert_refused = |raw: &mut Raw| {
        let answer = raw.next(HEADERS).unwrap();
        assert!(answer.payload.windows(3).any(|value| value == b"413"));
    };
    check(
        MAX_ADDED_BYTES_OVER_HTTP2,
        begin,
        |raw| raw.send(&more),
        assert_refused,
    );
}
