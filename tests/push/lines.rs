//! A receiver of Graphite's lines that closes connections too early, as a proxy does that has no server behind it.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use socket2::SockRef;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::base::telemetry::{Label, Metric};
use tollgate::serve::admin::Control;

use crate::common::{Gateway, Upstream, wait_until, write};
use crate::flaky::ask_for;

/// The first connections it ends at once, with most of what is sent still on its way, the next one after some bytes. Of the
/// others it reads all.
fn receive(lines: &Arc<Mutex<Vec<String>>>) -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_recv_buffer_size(1).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (own, lines) = (listener.try_clone().unwrap(), lines.clone());
    let mut held = Vec::new();
    let mut read = move |mut stream: TcpStream, place: usize| match place {
        0..2 => {
            stream.shutdown(Shutdown::Write).unwrap();
            held.push(stream);
        }
        2 => {
            let _ = stream.read(&mut [0; 10]);
        }
        _ => {
            let socket = SockRef::from(&stream);
            socket.set_recv_buffer_size(1 << 20).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            let text = text.lines().map(str::to_owned);
            lines.lock().unwrap().extend(text);
        }
    };
    thread::spawn(move || {
        let streams = own.incoming().map_while(Result::ok).enumerate();
        streams.for_each(|(place, stream)| read(stream, place));
    });
    (listener, port)
}

#[test]
fn what_is_not_read_is_sent_again() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (_listener, port) = receive(&lines);
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    // Lines are so long that the receiver's buffer has no room for them.
    let long = "x".repeat(250);
    let labels = format!("labels: {{ a: {long}, b: {long} }}");
    let push = format!(
        "{{ to: graphite, name: lines, url: \"tcp://127.0.0.1:{port}\", every: 1s, {labels} }}"
    );
    let gateway = format!("admin: off\nrecord: {{ push: {push} }}\n");
    let policy = "match: /**\nupstream: up\n";
    write(&folder, upstream.address, &gateway, &[("all", policy)]);
    let clock = Clock::system();
    let gateway = Gateway::start_in(folder, clock.clone());
    let asked = ask_for(&gateway, &clock, Nanos::from_secs(1));
    wait_until("it is read", || !lines.lock().unwrap().is_empty());
    gateway.app.shut_down();
    let lines = lines.lock().unwrap();
    let of = |name: &str, labels: &[&str]| -> Vec<(f64, u64)> {
        let split = lines.iter().map(|line| line.split(' ').collect::<Vec<_>>());
        let own = split.filter(|line| {
            line[0].starts_with(name) && labels.iter().all(|label| line[0].contains(label))
        });
        own.map(|line| (line[1].parse().unwrap(), line[2].parse().unwrap()))
            .collect()
    };
    let open = of("tollgate_connections_open", &[]);
    let gap = open.windows(2).find(|pair| pair[0].1 + 1 < pair[1].1);
    assert!(gap.is_none(), "{open:?}");
    let admitted = of(
        "tollgate_requests_total",
        &["outcome=admitted", "route=all"],
    );
    assert_eq!(admitted.last().unwrap().0, asked as f64);
    // Nothing else was taken for read. What was on its way when the gateway was told to stop may be there twice.
    let labels = [(Label::Destination, "lines"), (Label::Result, "sent")];
    let sent = gateway.app.counter_total(Metric::PushSamples, &labels);
    let different: BTreeSet<&String> = lines.iter().collect();
    assert_eq!(sent, different.len() as u64);
}
