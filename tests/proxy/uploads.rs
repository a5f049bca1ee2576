//! The memory of uploads that are too large, a thousand at once and in every framing, and how much of them is read.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use rustix::net::sockopt::set_socket_send_buffer_size;
use tempfile::TempDir;

use crate::common::child::Server;
use crate::common::raw::{
    DATA, END_HEADERS, HEADERS, RST_STREAM, Raw, WINDOW_UPDATE, block, code, frame,
};
use crate::common::{Client, Gate, Upstream, raise_descriptor_limit, read_head, wait_until, write};

pub const UPLOADS: usize = 1000;

/// What all uploads of a test add at most, in bytes, with their connections and those to the server.
const MAX_ADDED_BYTES: u64 = 20 * 1024 * 1024;

/// A part that every upload may have.
pub const FIRST_BYTES: usize = 1000;

/// The other part, which is too large.
pub const MORE_BYTES: usize = 60_000;

/// What an upload says to have, if it says that.
pub const LENGTH: usize = 1 << 30;

/// What a socket of a client holds at most, before the gateway reads it. The kernel doubles it.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

pub const POLICY: &str = "match: /**\nupstream: up\nmax_body: 1KiB\n";

pub const GATEWAY: &str = "admin: off\nrecord: off\nworkers: 1\nconnections: { per_ip: 5000 }\n";

/// The most memory that a process has had, in bytes.
fn peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<u64>().unwrap() * 1024
}

/// What the uploads of a test are, step by step.
pub struct Steps<B, M, R> {
    /// Opens an upload.
    pub begin: B,
    /// Sends what is too much.
    pub go_on: M,
    /// Reads the refusal.
    pub assert_refused: R,
    /// Whether the server gets the head of the upload, because the size is not known yet.
    pub is_forwarded: bool,
}

/// A gateway whose server never responds.
pub struct Scene {
    pub server: Server,
    upstream: Upstream,
    end: Gate,
    _folder: TempDir,
}

impl Scene {
    pub fn start(write_site: impl FnOnce(&TempDir, &Upstream)) -> Scene {
        raise_descriptor_limit(4 * UPLOADS as u64);
        let end = Gate::default();
        let held = end.clone();
        let upstream = Upstream::scripted(move |mut served, report| {
            report(read_head(&mut served.reader).unwrap_or_default());
            held.pass();
        });
        let folder = tempfile::tempdir().unwrap();
        write_site(&folder, &upstream);
        Scene {
            server: Server::start(folder.path(), false),
            upstream,
            end,
            _folder: folder,
        }
    }

    fn plain() -> Scene {
        Scene::start(|folder, upstream| {
            write(folder, upstream.address, GATEWAY, &[("all", POLICY)]);
        })
    }

    /// Opens a thousand uploads, sends what is too much of all, and reads the refusals. Returns the uploads, and the most
    /// memory before them in bytes.
    #[track_caller]
    pub fn refuse_all<U>(
        &self,
        mut steps: Steps<impl FnMut(&Server) -> U, impl Fn(&mut U), impl Fn(&mut U)>,
    ) -> (Vec<U>, u64) {
        let mut begin = || {
            let upload = (steps.begin)(&self.server);
            if steps.is_forwarded {
                self.upstream.next();
            }
            upload
        };
        // The first one brings what all share.
        let mut first = begin();
        (steps.go_on)(&mut first);
        (steps.assert_refused)(&mut first);
        let before = peak_bytes(self.server.id());
        let mut uploads: Vec<U> = (0..UPLOADS).map(|_| begin()).collect();
        self.print_added("open", before);
        uploads.iter_mut().for_each(&steps.go_on);
        uploads.iter_mut().for_each(&steps.assert_refused);
        self.assert_little_added("refused", before);
        (uploads, before)
    }

    fn print_added(&self, when: &str, before: u64) -> u64 {
        let added = peak_bytes(self.server.id()).saturating_sub(before);
        println!("{when}: {} KiB", added / 1024);
        added
    }

    #[track_caller]
    pub fn assert_little_added(&self, when: &str, before: u64) {
        let added = self.print_added(when, before);
        assert!(added < MAX_ADDED_BYTES, "{when}: {added}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.end.open();
    }
}

fn connect(server: &Server) -> Client {
    let client = server.connect();
    set_socket_send_buffer_size(&client.stream, SEND_BUFFER_BYTES).unwrap();
    client
}

/// Sends the rest of all bodies, whatever the gateway says, until it ends the connections. Returns the bytes sent.
fn send_to_the_end<'c>(clients: impl Iterator<Item = &'c TcpStream>) -> usize {
    let piece = vec![b'b'; SEND_BUFFER_BYTES];
    let mut open: Vec<(&TcpStream, usize)> = clients.map(|client| (client, 0)).collect();
    for (client, _) in &open {
        client.set_nonblocking(true).unwrap();
    }
    let mut sent_bytes = 0;
    wait_until("all connections end", || {
        open.retain_mut(|(client, bytes)| {
            while *bytes < LENGTH {
                match client.write(&piece) {
                    Ok(written) => (*bytes, sent_bytes) = (*bytes + written, sent_bytes + written),
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
            panic!("the gateway reads everything");
        });
        open.is_empty()
    });
    sent_bytes
}

/// Checks uploads over HTTP/1.1 whose heads have these fields and that begin as the text behind it.
#[track_caller]
fn check_http1(fields: &str, start: &str, more: &str, is_forwarded: bool) {
    let scene = Scene::plain();
    let steps = Steps {
        begin: |server: &Server| {
            let mut client = connect(server);
            client.send(format!("POST / HTTP/1.1\r\nhost: t\r\n{fields}\r\n{start}"));
            client
        },
        go_on: |client: &mut Client| {
            // A refused one may have ended already.
            let _ = client.stream.write_all(more.as_bytes());
        },
        assert_refused: |client: &mut Client| assert_eq!(client.head().unwrap().status(), 413),
        is_forwarded,
    };
    let (uploads, before) = scene.refuse_all(steps);
    let sent_bytes = send_to_the_end(uploads.iter().map(|client| &client.stream));
    println!("sent: {} KiB of each", sent_bytes / 1024 / UPLOADS);
    assert!(sent_bytes < UPLOADS * (4 << 20), "{sent_bytes}");
    scene.assert_little_added("at the end", before);
}

#[test]
fn a_thousand_uploads_that_say_their_length_take_little_memory() {
    let fields = format!("content-length: {LENGTH}\r\n");
    check_http1(&fields, "", &"b".repeat(MORE_BYTES), false);
}

#[test]
fn a_thousand_uploads_in_chunks_take_little_memory() {
    let start = format!("{FIRST_BYTES:x}\r\n{}\r\n", "b".repeat(FIRST_BYTES));
    let more = format!("{LENGTH:x}\r\n{}", "b".repeat(MORE_BYTES));
    check_http1("transfer-encoding: chunked\r\n", &start, &more, true);
}

/// Alone, a client may send much before it reads the refusal. But not everything.
#[test]
fn an_upload_is_read_no_further_than_its_bound() {
    let scene = Scene::plain();
    let mut client = connect(&scene.server);
    client.send(format!(
        "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: {LENGTH}\r\n\r\n"
    ));
    let piece = vec![b'b'; SEND_BUFFER_BYTES];
    let mut sent_bytes = 0;
    while sent_bytes < LENGTH
        && let Ok(bytes) = client.stream.write(&piece)
    {
        sent_bytes += bytes;
    }
    println!("sent: {} KiB", sent_bytes / 1024);
    assert!((1 << 20..128 << 20).contains(&sent_bytes), "{sent_bytes}");
    assert_eq!(client.head().unwrap().status(), 413);
}

/// A client may fill its window at once, end within a frame, and send as much as the gateway allows later.
#[test]
fn a_thousand_uploads_over_http2_take_little_memory() {
    const WINDOW: usize = 256 * 1024;
    let scene = Scene::plain();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "t"),
        (":path", "/"),
    ];
    let mut more = frame(DATA, 0, 1, &[b'b'; 15_000]).repeat(MORE_BYTES / 15_000);
    more.truncate(more.len() - 5000);
    let steps = Steps {
        begin: |server: &Server| {
            let mut raw = Raw::connect(server.address, &[]);
            raw.send(&frame(HEADERS, END_HEADERS, 1, &block(&fields)));
            raw.send(&frame(DATA, 0, 1, &[b'b'; FIRST_BYTES]));
            raw
        },
        go_on: |raw: &mut Raw| raw.send(&more),
        assert_refused: |raw: &mut Raw| {
            let answer = raw.next(HEADERS).unwrap();
            assert!(answer.payload.windows(3).any(|value| value == b"413"));
        },
        is_forwarded: true,
    };
    let (mut uploads, before) = scene.refuse_all(steps);
    let mut rest = vec![b'b'; 5000];
    rest.extend(frame(DATA, 0, 1, &[b'b'; 15_000]).repeat((WINDOW - MORE_BYTES) / 15_000));
    for raw in &mut uploads {
        raw.send(&rest);
    }
    for raw in &mut uploads {
        let mut window = WINDOW;
        let reset = loop {
            let next = raw.frame().unwrap();
            match next.kind {
                WINDOW_UPDATE if next.stream == 1 => {
                    let bytes = next.payload.try_into().map(u32::from_be_bytes);
                    window += bytes.unwrap() as usize;
                }
                RST_STREAM => break next,
                _ => {}
            }
        };
        assert_eq!(code(&reset), 0);
        assert!(window <= 2 * WINDOW, "{window}");
    }
    scene.assert_little_added("at the end", before);
}
