//! Stores that want to be spoken to in private, and by those who are allowed to.

use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;
use tollgate::base::clock::Clock;

use crate::common::certificate::Authority;
use crate::common::child::line_with;
use crate::common::redis::{Redis, free_port};
use crate::common::{Client, wait_until};
use crate::fleet::Fleet;
use crate::upstream::Upstream;

/// Strict, for a machine that stands still for a fiftieth of the window leaves units of a lease unused.
const LIMITS: &str = "  per-user: { key: user, rate: 20/60s, sharing: strict }\n";
/// What the script and the keeper need, and no more.
const COMMANDS: &str = "+eval +evalsha +get +set +setrange +pexpire +time +del +zadd +zrem +zrange \
                        +zremrangebyscore +hello +auth +select +ping";
const PASSWORD: &str = "p@ss:w/%rd?#é";
const ESCAPED: &str = "p%40ss%3Aw%2F%25rd%3F%23%C3%A9";

/// So many requests of one user, one after another to each gateway in turn; how many are admitted.
fn admitted(fleet: &Fleet, count: usize) -> usize {
    let each = fleet.gateways.iter().map(|gateway| gateway.address);
    let addresses: Vec<SocketAddr> = each.collect();
    let mut clients: Vec<Client> = addresses.iter().map(|at| Client::connect(*at)).collect();
    let turns = clients.len();
    let mut statuses = Vec::new();
    for number in 0..count {
        let client = &mut clients[number % turns];
        client.send("GET / HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n");
        statuses.push(client.answer().status());
    }
    assert!(
        statuses.iter().all(|status| [200, 429].contains(status)),
        "{statuses:?}"
    );
    statuses.iter().filter(|status| **status == 200).count()
}

/// Two gateways share what is at this address, and it is waited for so long that no answer is late.
fn shared(store: &str) {
    let upstream = Upstream::start(&Clock::system());
    let terms = format!("store: {{ address: {store}, budget: 1s }}");
    let fleet = Fleet::start(2, upstream.address, &terms, LIMITS);
    assert_eq!(admitted(&fleet, 60), 20, "{store}");
}

/// One gateway says what is wrong with what is at this address, in its log too, and counts for itself.
fn trouble(store: &str, words: &str) {
    let upstream = Upstream::start(&Clock::system());
    let fleet = Fleet::alone(1, upstream.address, &format!("store: {store}"), LIMITS);
    let mut said = Vec::new();
    wait_until("the gateway says what is wrong", || {
        said = fleet.ready();
        said[0].contains(words)
    });
    println!("{}", said[0].trim());
    let gateway = &fleet.gateways[0];
    let early = gateway.early.iter().find(|line| line.contains(words));
    let logged = early.cloned();
    println!(
        "  {}",
        logged.unwrap_or_else(|| line_with(&gateway.err, words))
    );
    assert_eq!(admitted(&fleet, 60), 20, "{store}");
}

fn guarded(more: &[&str]) -> Redis {
    let password = format!(">{PASSWORD}");
    let mut all = vec!["--user", "gate", "on", &password, "~tollgate:*"];
    all.extend(COMMANDS.split_whitespace());
    all.extend([
        "--user", "mute", "on", ">x", "~*", "+@all", "-evalsha", "-eval",
    ]);
    all.extend(["--user", "default", "off"]);
    all.extend(more);
    Redis::with(&all)
}

#[test]
fn a_user_with_a_password_and_a_database() {
    let store = guarded(&[]);
    let port = store.port;
    shared(&format!("\"redis://gate:{ESCAPED}@127.0.0.1:{port}/3\""));
    trouble(
        &format!("\"redis://gate:{ESCAPED}x@127.0.0.1:{port}\""),
        "WRONGPASS",
    );
    trouble(&format!("\"redis://127.0.0.1:{port}\""), "NOAUTH");
    trouble(
        &format!("\"redis://mute:x@127.0.0.1:{port}\""),
        "NOPERM this user has no permissions",
    );
    trouble(
        &format!("\"redis://gate:{ESCAPED}@127.0.0.1:{port}/99\""),
        "out of range",
    );
}

#[test]
fn a_password_for_all() {
    let store = Redis::with(&["--requirepass", PASSWORD]);
    shared(&format!("\"redis://:{ESCAPED}@127.0.0.1:{}\"", store.port));
}

/// A server that speaks TLS only, and the folder with who vouches for it.
fn private() -> (Redis, TempDir) {
    let authority = Authority::new();
    let server = authority.issue("store", |params| {
        let address = "127.0.0.1".parse().unwrap();
        params.subject_alt_names = vec![rcgen::SanType::IpAddress(address)];
    });
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("server.pem", &server.pem);
    write("server.key", &server.key);
    write("ca.pem", &authority.pem);
    write("other.pem", &Authority::new().pem);
    let at = |name: &str| file(folder.path(), name);
    let port = free_port();
    let (number, certificate, key, ca) = (
        port.to_string(),
        at("server.pem"),
        at("server.key"),
        at("ca.pem"),
    );
    let arguments = [
        "--port",
        "0",
        "--tls-port",
        &number,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
    ];
    (Redis::on(port, &arguments), folder)
}

fn file(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_store_that_speaks_tls() {
    let (store, folder) = private();
    let (port, ca) = (store.port, file(folder.path(), "ca.pem"));
    shared(&format!("\"rediss://127.0.0.1:{port}\", ca: {ca}"));
    let other = file(folder.path(), "other.pem");
    let wrong = format!("{{ address: \"rediss://127.0.0.1:{port}\", ca: {other} }}");
    trouble(&wrong, "certificate");
    let by_name = format!("{{ address: \"rediss://localhost:{port}\", ca: {ca} }}");
    trouble(&by_name, "certificate");
    trouble(&format!("\"redis://127.0.0.1:{port}\""), "not connected");
}
