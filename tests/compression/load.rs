//! How much memory compression takes: for one long response, and for many that stay open.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use tempfile::TempDir;

use crate::common::child::Server;
use crate::common::{Gate, Upstream, raise_descriptor_limit, read_head, wait_until, write};
use crate::{ALL, Chunks, begin, decoder, text};

const MIB: usize = 1024 * 1024;

/// The bound of `src/serve/stack/body/content_encoder.rs`.
const MAX_ENCODER_BYTES: usize = 256 * MIB;

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";

fn server(upstream: &Upstream) -> (Server, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let more = "admin: off\nworkers: 1\ncompress: true\nconnections: { per_ip: 5000 }\n";
    write(&folder, upstream.address, more, &[("all", ALL)]);
    (Server::start(folder.path(), false), folder)
}

/// Bytes of memory of a process.
fn resident_bytes(process: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    let pages = text.split(' ').nth(1).unwrap();
    pages.parse::<usize>().unwrap() * rustix::param::page_size()
}

#[test]
fn a_long_response_takes_little_memory() {
    const PIECES: usize = 100;
    let mut piece = text(25_000);
    piece.truncate(MIB);
    assert_eq!(piece.len(), MIB);
    let chunk = format!("{MIB:x}\r\n{piece}\r\n");
    let upstream = Upstream::scripted(move |mut served, _| {
        let _ = served.request();
        served.send(HEAD);
        for _ in 0..PIECES {
            served.send(&chunk);
        }
        served.send("0\r\n\r\n");
    });
    let (server, _folder) = server(&upstream);
    let mut client = server.connect();
    let before = resident_bytes(server.id());
    begin(&mut client, "/", "zstd");
    let mut content = decoder("zstd", Chunks::new(client.reader));
    let mut most = 0;
    let mut received = vec![0; MIB];
    for _ in 0..PIECES {
        content.read_exact(&mut received).unwrap();
        assert!(received == piece.as_bytes());
        most = most.max(resident_bytes(server.id()));
    }
    assert_eq!(content.read(&mut received).unwrap(), 0);
    let grown = most.saturating_sub(before);
    println!("a response of 100 MiB: {} KiB", grown / 1024);
    assert!(grown < 8 * MIB, "{grown}");
}

/// A thousand clients do not read, and their upstream does not end. Those for which no encoder is left get plain content.
#[test]
fn many_open_responses_have_a_bound() {
    const CLIENTS: usize = 1000;
    raise_descriptor_limit(4 * CLIENTS as u64);
    for (coding, encoder_bytes) in [
        ("zstd", 512 * 1024),
        ("br", 768 * 1024),
        ("gzip", 352 * 1024),
    ] {
        let mut piece = text(1_600);
        piece.truncate(64 * 1024);
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        let end = Gate::default();
        let upstream = {
            let end = end.clone();
            Upstream::scripted(move |mut served, _| {
                let _ = served.request();
                served.send(HEAD);
                served.send(&chunk);
                end.pass();
            })
        };
        let (server, _folder) = server(&upstream);
        let before = resident_bytes(server.id());
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &mut clients {
            let size =
                rustix::net::sockopt::set_socket_recv_buffer_size(client.stream.as_fd(), 4096);
            size.unwrap();
            client.send(format!(
                "GET / HTTP/1.1\r\nhost: t\r\naccept-encoding: {coding}\r\n\r\n"
            ));
        }
        let mut compressed_count = 0;
        for client in &mut clients {
            let head = read_head(&mut client.reader).unwrap();
            compressed_count += usize::from(head.field("content-encoding").is_some());
            let mut first = [0];
            client.reader.read_exact(&mut first).unwrap();
        }
        let grown = resident_bytes(server.id()).saturating_sub(before);
        println!(
            "{coding}: {compressed_count} of {CLIENTS}, {} MiB",
            grown / MIB
        );
        assert_eq!(
            compressed_count,
            CLIENTS.min(MAX_ENCODER_BYTES / encoder_bytes),
            "{coding}"
        );
        // The buffers of connections come on top.
        assert!(
            grown < MAX_ENCODER_BYTES + CLIENTS * 96 * 1024,
            "{coding}: {grown}"
        );
        // Memory that clients give back serves others.
        drop(clients);
        wait_until("an encoder is free", || {
            let mut client = server.connect();
            client.send(format!(
                "GET / HTTP/1.1\r\nhost: t\r\naccept-encoding: {coding}\r\n\r\n"
            ));
            client.stream.flush().unwrap();
            let head = read_head(&mut client.reader).unwrap();
            head.field("content-encoding").is_some()
        });
        end.open();
    }
}
