//! A server in the place of the store that sends more than any script answers: the gateway holds little of it, says what
//! is wrong, and counts by itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use tollgate::base::clock::Clock;

use crate::common::wait_until;
use crate::fleet::Fleet;
use crate::upstream::Upstream;

/// Bytes that the server sends at most over one connection, and those that the gateway may hold more than before.
const SENT: usize = 128 << 20;
const HELD: usize = 96 << 20;

/// Answers what a client says first, if it `greets`, and anything else by `begin` and then `more` again and again.
fn server(greets: bool, begin: &'static [u8], more: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream, greets, begin, more));
        }
    });
    address
}

fn serve(mut stream: TcpStream, greets: bool, begin: &[u8], more: &[u8]) {
    let mut piece = [0; 4096];
    let mut read = |stream: &mut TcpStream| match stream.read(&mut piece) {
        Ok(count @ 1..) => Some(piece[..count].to_vec()),
        _ => None,
    };
    if greets {
        let Some(said) = read(&mut stream) else {
            return;
        };
        let two = said.windows(2);
        let commands = two.filter(|two| two[0] == b'*' && two[1].is_ascii_digit());
        let _ = stream.write_all(&b"+OK\r\n".repeat(commands.count()));
    }
    let more = more.repeat(65_536 / more.len().max(1));
    if read(&mut stream).is_none() || stream.write_all(begin).is_err() {
        return;
    }
    let mut sent = 0;
    while !more.is_empty() && sent < SENT && stream.write_all(&more).is_ok() {
        sent += more.len();
    }
    // It waits for the gateway to leave.
    while read(&mut stream).is_some() {}
}

/// Bytes of memory of a process.
fn resident(process: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[track_caller]
fn check((begin, more): (&'static [u8], &'static [u8]), words: &str) {
    for greets in [true, false] {
        let upstream = Upstream::start(&Clock::system());
        let store = format!("store: redis://{}", server(greets, begin, more));
        let fleet = Fleet::alone(
            1,
            upstream.address,
            &store,
            "  per-user: { key: user, rate: 2/h }\n",
        );
        let process = fleet.gateways[0].id();
        let before = resident(process);
        let (mut said, mut most) = (Vec::new(), 0);
        wait_until("the gateway says what is wrong", || {
            said = fleet.ready();
            most = most.max(resident(process));
            said[0].contains(words)
        });
        println!("{}", said[0].trim());
        assert!(most < before + HELD, "{} bytes", most - before);
        let mut client = fleet.gateways[0].connect();
        let statuses = [200, 200, 429].map(|expected| {
            client.send("GET / HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n");
            (client.answer().status(), expected)
        });
        assert!(
            statuses.iter().all(|(is, expected)| is == expected),
            "{statuses:?}"
        );
    }
}

#[test]
fn strings_that_say_to_be_long() {
    check((b"$1000000000\r\n", &[b'a'; 4096]), "longer than 16 MiB");
}

#[test]
fn arrays_that_say_to_be_long() {
    check((b"*1000000000\r\n", b":1\r\n"), "longer than 16 MiB");
}

#[test]
fn lines_without_an_end() {
    check((b"+", &[b'a'; 4096]), "longer than 16 MiB");
}

#[test]
fn arrays_in_arrays() {
    check((b"", b"*1\r\n"), "nested too deep");
}
