//! How requests are shared out: in turn, by weight, by open requests, by a key.

use crate::common::backend::{Backend, Mode};
use crate::common::{Client, Gateway, wait_until};
use crate::{ALL, answers, figure, gateway, goes_down, url};

#[test]
fn servers_are_taken_in_turn() {
    let backends = Backend::several(3);
    let gateway = gateway(&backends, "", "workers: 1\n");
    let counts = answers(&mut gateway.connect(), 30);
    assert!(
        counts.len() == 3 && counts.values().all(|n| *n == 10),
        "{counts:?}"
    );
}

#[test]
fn weights_are_kept_to() {
    let backends = Backend::several(2);
    let servers = format!(
        "[{}, {{ url: {}, weight: 3 }}]",
        url(&backends[0]),
        url(&backends[1])
    );
    for upstream in [servers.clone(), format!("{{ servers: {servers} }}")] {
        let text = format!("workers: 1\nupstreams: {{ up: {upstream} }}\n");
        let gateway = Gateway::start(backends[0].address(), &text, &[ALL]);
        let counts = answers(&mut gateway.connect(), 40);
        assert_eq!((counts["a"], counts["b"]), (10, 30));
    }
}

#[test]
fn the_busy_server_gets_less_by_least_requests() {
    let backends = Backend::several(2);
    let gateway = gateway(&backends, "balance: least_requests", "");
    backends[0].set(Mode::Hang);
    // Until it has one of them, it is as good as the other.
    let mut waiting = Vec::new();
    let open = |backend| figure(&gateway, "tollgate_upstream_server_open_requests", backend);
    while backends[0].asked() == 0 {
        let mut client = gateway.connect();
        client.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
        waiting.push(client);
        let asked = || backends.iter().map(Backend::asked).sum::<usize>();
        wait_until("it is at a server", || asked() == waiting.len());
        wait_until("the other has answered", || open(&backends[1]) == 0);
    }
    let counts = answers(&mut gateway.connect(), 100);
    assert_eq!(counts["b"], 100, "two drawn of two: the one with less");
    assert_eq!((backends[0].asked(), open(&backends[0])), (1, 1));
    backends[0].set(Mode::Well);
    for mut client in waiting {
        assert_eq!(client.answer().status(), 200);
    }
}

fn server_of(client: &mut Client, token: &str) -> String {
    client.send(format!(
        "GET / HTTP/1.1\r\nhost: t\r\nx-key: {token}\r\n\r\n"
    ));
    let answer = client.answer();
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.text()
}

#[test]
fn a_key_stays_at_its_server_and_only_those_of_a_lost_one_move() {
    let mut backends = Backend::several(4);
    let more = "identity: { token: { header: x-key } }\n";
    let upstream = "balance: { hash: token }, eject: { for: 2s }";
    let gateway = gateway(&backends, upstream, more);
    let all = |wanted: &str| -> Vec<String> {
        let keys = 0..200;
        let mut client = gateway.connect();
        let servers = keys.map(|key| server_of(&mut client, &format!("{wanted}{key}")));
        servers.collect()
    };
    let before = all("k");
    assert_eq!(
        all("k"),
        before,
        "from another connection, of whichever worker"
    );
    let of_first = before.iter().filter(|name| *name == "a").count();
    assert!(
        (20..80).contains(&of_first),
        "{of_first} of 200 at one of four"
    );
    backends[0].kill();
    let after = all("k");
    for (before, after) in before.iter().zip(&after) {
        assert!(before == "a" && after != "a" || before == after);
    }
    goes_down(&gateway, &backends[0]);
    backends[0].revive();
    wait_until("its keys come back", || all("k") == before);
}

#[test]
fn without_the_identity_servers_are_taken_in_turn() {
    let backends = Backend::several(2);
    let more = "workers: 1\nidentity: { token: { header: x-key } }\n";
    let gateway = gateway(&backends, "balance: { hash: token }", more);
    let counts = answers(&mut gateway.connect(), 20);
    assert_eq!((counts["a"], counts["b"]), (10, 10));
}

#[test]
fn a_name_is_as_good_as_an_address() {
    let backend = Backend::start("a");
    let server = format!("http://localhost:{}", backend.address().port());
    let text = format!("upstreams: {{ up: \"{server}\" }}\n");
    let gateway = Gateway::start(backend.address(), &text, &[ALL]);
    assert_eq!(answers(&mut gateway.connect(), 20)["a"], 20);
}
