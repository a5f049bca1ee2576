//! What ends an answer in its middle: the log and the counters say what it was, and silence is no fault of the server.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::common::{Gateway, Served, Upstream, assert_contains, ok, wait_until};

const BEGUN: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n";
const OPEN: &str = "connection: Upgrade\r\nupgrade: websocket\r\n\
                    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                        upgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n";

fn serve(mut served: Served) {
    while let Ok(request) = served.request() {
        match request.start.split(' ').nth(1) {
            Some("/quiet") => served.send(BEGUN),
            Some("/tunnel") => served.send(SWITCHED),
            Some("/broken") => return served.send(BEGUN),
            Some("/drip") => {
                served.send(BEGUN);
                // Between two pieces it waits for the end of the other side.
                let pause = Some(Duration::from_millis(50));
                served.stream.set_read_timeout(pause).unwrap();
                while served.stream.write_all(b"2\r\nhi\r\n").is_ok()
                    && served.reader.read(&mut [0]).is_err_and(|error| {
                        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
                    })
                {}
            }
            _ => {
                served.send(ok("fine"));
                continue;
            }
        }
        let _ = served.reader.read(&mut [0]);
        return;
    }
}

#[test]
fn the_log_names_what_ended_an_answer_and_no_server_is_blamed_for_silence() {
    let upstream = Upstream::scripted(|served, _| serve(served));
    let text = "access_log: access.log\ntimeouts: { tunnel: 300ms }\nupstreams: { up: { \
                servers: [\"http://{upstream}\"], timeouts: { first_byte: 300ms, total: 900ms } } }\n";
    let gateway = Gateway::start(
        upstream.address,
        text,
        &[("all", "match: /**\nupstream: up\n")],
    );
    let ask = |path: &str, more: &str| {
        let mut client = gateway.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nhost: t\r\n{more}\r\n"));
        client
    };
    // More often than a server may fail before it is left alone.
    for _ in 0..4 {
        let rest = ask("/quiet", "").rest();
        assert!(String::from_utf8_lossy(&rest).ends_with("2\r\nhi\r\n"));
    }
    for path in ["/drip", "/broken"] {
        ask(path, "").rest();
    }
    ask("/tunnel", OPEN).rest();
    let mut leaves = ask("/drip", "");
    leaves.head().unwrap();
    drop(leaves);
    assert_eq!(gateway.connect().get("/").status(), 200);

    let log = gateway.folder.path().join("access.log");
    let expected = [
        ("idle timeout", "failed", 4),
        ("total timeout", "failed", 1),
        ("server broke off", "failed", 1),
        ("tunnel timeout", "failed", 1),
        ("client left", "admitted", 1),
    ];
    for (reason, outcome, times) in expected {
        wait_until(reason, || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let named = format!("\"reason\":\"{reason}\"");
            let outcome = format!("\"outcome\":\"{outcome}\"");
            let lines = text.lines().filter(|line| line.contains(&named));
            lines.filter(|line| line.contains(&outcome)).count() == times
        });
    }
    let errors = |reason: &str, count: u32| {
        format!("tollgate_upstream_errors_total{{upstream=\"up\",reason=\"{reason}\"}} {count}\n")
    };
    let server = |metric: &str, value: u32| {
        let server = upstream.address;
        format!(
            "tollgate_upstream_server_{metric}{{upstream=\"up\",server=\"{server}\"}} {value}\n"
        )
    };
    let metrics = gateway.app.metrics();
    let parts = [
        errors("idle timeout", 4),
        errors("total timeout", 1),
        errors("server broke off", 1),
        server("up", 1),
        server("ejections_total", 0),
    ];
    assert_contains(&metrics, &parts.each_ref().map(String::as_str));
    // Neither is the upstream's.
    assert!(!metrics.contains("reason=\"tunnel timeout\""));
    assert!(!metrics.contains("reason=\"client left\""));
}
