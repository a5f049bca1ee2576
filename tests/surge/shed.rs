//! What those who give way are told, and what is seen of it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::alone;
use crate::common::{Client, Gateway};
use crate::server::{Capacity, Server};

/// 50 requests a second.
const CAPACITY: Capacity = Capacity {
    workers: 1,
    millis: 20.0,
};
const GATEWAY: &str = "
admin: 127.0.0.1:0
identity:
  user: { header: x-user, from: [127.0.0.0/8] }
  plan: { header: x-plan, from: [127.0.0.0/8], default: free }
plans: { free: { multiply: 1, priority: low }, gold: { multiply: 1, priority: critical } }
";
const POLICY: &str = "match: /**\nupstream: up\nlimits: { all: { key: ip, rate: 100000/m } }\n";

/// Asks with a plan until the answer has this status, for 10 s at most.
fn until(client: &mut Client, more: &str, wanted: u16) -> crate::common::Message {
    for _ in 0..500 {
        client.send(format!("GET /x HTTP/1.1\r\nhost: test\r\n{more}\r\n"));
        let answer = client.answer();
        if answer.status() == wanted {
            return answer;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("no {wanted} within 10 s");
}

#[test]
fn low_plans_give_way_and_are_told() {
    let _alone = alone();
    let server = Server::start(CAPACITY, 1);
    let gateway = Gateway::start(server.address, GATEWAY, &[("all", POLICY)]);
    // What an idle upstream takes is learnt first.
    let mut client = gateway.connect();
    for _ in 0..100 {
        until(&mut client, "x-plan: gold\r\n", 200);
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..40 {
            let (gateway, stop) = (&gateway, &stop);
            scope.spawn(move || {
                let mut client = gateway.connect();
                while !stop.load(Relaxed) {
                    let user = format!("x-plan: free\r\nx-user: {number}\r\n");
                    client.send(format!("GET /x HTTP/1.1\r\nhost: test\r\n{user}\r\n"));
                    if client.answer().status() == 503 {
                        thread::sleep(Duration::from_millis(50));
                    }
                }
            });
        }
        let user = "x-plan: free\r\nx-user: 7\r\n";
        let shed = until(&mut client, user, 503);
        let retry: u64 = shed.field("retry-after").unwrap().parse().unwrap();
        assert!((1..=6).contains(&retry), "{retry}");
        let body = shed.text();
        assert!(body.contains("#temporary-reduced-capacity"), "{body}");
        let grpc = format!("{user}content-type: application/grpc\r\n");
        let shed = (0..500).find_map(|_| {
            client.send(format!("GET /x HTTP/1.1\r\nhost: test\r\n{grpc}\r\n"));
            let answer = client.answer();
            answer.field("grpc-status").map(str::to_owned)
        });
        assert_eq!(shed.as_deref(), Some("14"));
        // Those whose plan matters more are served meanwhile.
        for _ in 0..20 {
            client.send("GET /x HTTP/1.1\r\nhost: test\r\nx-plan: gold\r\nx-user: g\r\n\r\n");
            assert_eq!(client.answer().status(), 200);
        }
        stop.store(true, Relaxed);
    });
    let metrics = gateway.app.metrics();
    let shed = |class: &str| {
        let name = format!("tollgate_shed_total{{upstream=\"up\",priority=\"{class}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    assert!(shed("low") > 0 && shed("critical") == 0, "{metrics}");
}
