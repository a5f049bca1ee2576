//! Who asks whether the gateway is well: orchestrators, containers, scrapers.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tollgate::base::clock::{Clock, Nanos};

use super::common::child::{self, Ended, Server, line_with};
use super::common::{Client, Message, Upstream, assert_contains, wait_until};
use super::folder;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// An address that nobody listens on.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A folder whose gateway listens for clients on `address`.
fn folder_on(upstream: &Upstream, address: SocketAddr, gateway: &str) -> TempDir {
    let folder = folder(upstream, gateway);
    fs::write(folder.path().join("token"), TOKEN).unwrap();
    let file = folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("listen: 127.0.0.1:0", &format!("listen: {address}"));
    fs::write(file, text).unwrap();
    folder
}

/// What an orchestrator asks, by an address of its own choice.
fn probe(address: SocketAddr, method: &str, path: &str) -> Message {
    let mut client = Client::connect(address);
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nhost: pod-7.example\r\nconnection: close\r\n\r\n"
    ));
    client.answer()
}

#[test]
fn probes_need_no_token_and_give_nothing_else() {
    let upstream = Upstream::plain();
    let probes = free();
    let admin = format!("admin: {{ address: 127.0.0.1:0, token_file: token, probes: {probes} }}\n");
    let folder = folder_on(&upstream, free(), &admin);
    let server = Server::start(folder.path(), true);
    line_with(&server.err, "probes on http://");
    assert_eq!(probe(probes, "GET", "/healthz").text(), "ok\n");
    assert_eq!(probe(probes, "GET", "/readyz").text(), "ready\n");
    let metrics = probe(probes, "GET", "/metrics");
    assert_contains(&metrics.text(), &["tollgate_requests_total"]);
    assert_eq!(server.ask("GET", "/readyz", "").status(), 401);
    for path in [
        "/",
        "/v1/status",
        "/v1/limits",
        "/v1/policies",
        "/v1/record/top",
        "/prometheus/api/v1/labels",
    ] {
        assert_eq!(probe(probes, "GET", path).status(), 404, "{path}");
    }
    assert_eq!(probe(probes, "POST", "/v1/reload").status(), 404);
    assert_eq!(probe(probes, "POST", "/readyz").status(), 405);
}

fn ready(folder: &Path) -> Ended {
    child::run(folder, &["ready", "--config", "tollgate.yaml"])
}

#[test]
fn ready_asks_by_every_setting_of_admin() {
    let upstream = Upstream::plain();
    let (admin, probes) = (free(), free());
    let port = admin.port();
    for (setting, said) in [
        (format!("{admin}"), "ready"),
        (format!("{{ address: {admin} }}"), "ready"),
        (
            format!("{{ address: {admin}, token_file: token }}"),
            "ready",
        ),
        (
            format!("{{ address: 0.0.0.0:{port}, token_file: token }}"),
            "ready",
        ),
        (
            format!("{{ address: {admin}, token_file: token, probes: {probes} }}"),
            "ready",
        ),
        (String::from("off"), "connections are accepted"),
    ] {
        let folder = folder_on(&upstream, free(), &format!("admin: {setting}\n"));
        let before = ready(folder.path());
        assert_eq!(before.code, Some(1), "{setting}: {before:?}");
        assert_contains(&before.err, &["not ready: "]);
        let mut server = Server::start(folder.path(), setting != "off");
        let running = ready(folder.path());
        assert_eq!(running.code, Some(0), "{setting}: {running:?}");
        assert_contains(&running.out, &[said]);
        // Somebody edits the file; what runs is what stood there before.
        let file = folder.path().join("tollgate.yaml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text + "nonsense: 1\n").unwrap();
        assert_eq!(ready(folder.path()).code, Some(0), "{setting}");
        server.signal(Signal::TERM);
        assert_eq!(server.ended(), Some(0));
        assert_eq!(ready(folder.path()).code, Some(1), "{setting}");
    }
    let folder = folder(&upstream, "admin: nowhere\n");
    let mistaken = ready(folder.path());
    assert_eq!(mistaken.code, Some(2), "{mistaken:?}");
    assert_contains(&mistaken.err, &["tollgate.yaml", "`nowhere`"]);
}

/// It needs nothing of the file but where to ask.
#[test]
fn ready_needs_no_variable_that_it_does_not_use() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: 127.0.0.1:0\n");
    let server = Server::start(folder.path(), true);
    let text = format!(
        "listen: \"127.0.0.1:${{env:TOLLGATE_TEST_UNSET}}\"\nadmin: {}\nstore: \"${{env:TOLLGATE_TEST_UNSET}}\"\n",
        server.admin.unwrap()
    );
    fs::write(folder.path().join("tollgate.yaml"), text).unwrap();
    let ended = ready(folder.path());
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// Also where the other side sends a byte now and then.
#[test]
fn ready_waits_two_seconds_in_all() {
    let upstream = Upstream::scripted(|mut served, _| {
        let pause = Some(Duration::from_millis(100));
        served.stream.set_read_timeout(pause).unwrap();
        // Until the client has gone.
        while served.stream.write_all(b"H").is_ok()
            && !matches!(served.reader.read(&mut [0]), Ok(0))
        {}
    });
    let folder = folder(&upstream, &format!("admin: {}\n", upstream.address));
    let clock = Clock::system();
    let begun = clock.now();
    let ended = ready(folder.path());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_contains(&ended.err, &["no answer within 2 s"]);
    assert!(clock.now().since(begun) < Nanos::from_secs(8));
}

/// The image's check asks by the file that the image runs.
#[test]
fn the_image_checks_its_health_by_its_configuration() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Dockerfile")).unwrap();
    let words = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let list = &line[line.find('[').unwrap()..];
        serde_json::from_str::<Vec<String>>(list).unwrap()
    };
    let (health, arguments) = (words("HEALTHCHECK"), words("CMD"));
    assert_eq!(words("ENTRYPOINT"), ["/usr/bin/tollgate"]);
    assert_eq!(health[..2], ["tollgate", "ready"]);
    assert_eq!(arguments[..1], ["run"]);
    assert_eq!(health[2..], arguments[1..]);
}

/// As Kubernetes does: SIGTERM, and connections come until the endpoint is taken out everywhere.
#[test]
fn connections_are_accepted_while_nobody_should_send_them() {
    let upstream = Upstream::plain();
    let (address, probes) = (free(), free());
    let gateway = format!(
        "admin: {{ address: 127.0.0.1:0, probes: {probes} }}\ntimeouts: {{ drain_delay: 3s }}\n"
    );
    let folder = folder_on(&upstream, address, &gateway);
    let mut server = Server::start(folder.path(), true);
    assert_eq!(probe(probes, "GET", "/readyz").status(), 200);
    server.signal(Signal::TERM);
    let clock = Clock::system();
    let told = clock.now();
    wait_until("it is not ready", || {
        probe(probes, "GET", "/readyz").status() == 503
    });
    assert_eq!(server.ask("GET", "/readyz", "").status(), 503);
    assert_eq!(ready(folder.path()).code, Some(1));
    assert_eq!(probe(probes, "GET", "/healthz").status(), 200);
    let mut served = 0;
    while clock.now().since(told) < Nanos::from_secs(2) {
        assert_eq!(Client::connect(address).get("/").status(), 200);
        served += 1;
    }
    assert!(served > 20, "{served}");
    assert_eq!(server.ended(), Some(0));
    assert!(clock.now().since(told) > Nanos::from_secs(3));
    assert!(TcpStream::connect(address).is_err());
}

/// Whoever cannot wait says so again.
#[test]
fn a_second_signal_ends_the_delay() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\ntimeouts: { drain_delay: 1h }\n");
    let mut server = Server::start(folder.path(), false);
    server.signal(Signal::TERM);
    line_with(&server.err, "still accepting");
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(1));
}
