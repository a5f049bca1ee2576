//! `check` tries what `run` will need of this machine.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use rcgen::date_time_ymd;
use tempfile::TempDir;
use tollgate::base::clock::{Clock, Nanos};

use super::common::certificate::{Authority, Certificate};
use super::common::child::{self, Ended, Guard, Server, line_with, lines};
use super::common::tls::put;
use super::common::{Upstream, assert_contains, wait_until};

const ROUTE: &str = "match: /**\nupstream: up\n";

/// A folder with these lines behind the first three of the gateway file.
fn with(lines: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let usual = "version: 1\npolicies: policies\nworkers: 1\n";
    let mut text = format!("{usual}{lines}\n");
    for (field, line) in [
        ("listen:", "listen: 127.0.0.1:0\n"),
        ("admin:", "admin: off\n"),
        ("access_log:", "access_log: off\n"),
        ("upstreams:", "upstreams: { up: http://127.0.0.1:9001 }\n"),
    ] {
        if !lines.contains(field) {
            text.push_str(line);
        }
    }
    fs::write(folder.path().join("tollgate.yaml"), text).unwrap();
    fs::create_dir(folder.path().join("policies")).unwrap();
    fs::write(folder.path().join("policies/all.yaml"), ROUTE).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    folder
}

fn check(folder: &Path, more: &[&str]) -> Ended {
    let arguments = [&["check", "--config", "tollgate.yaml"], more].concat();
    child::run(folder, &arguments)
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Without them there is no run.
#[test]
fn what_cannot_be_written_is_a_mistake() {
    for (line, parts) in [
        (
            "record: file",
            [
                "4:9: cannot write to the folder of the record",
                "`file`: it is no folder",
            ],
        ),
        (
            "record: { dir: file/below }",
            [
                "4:16: cannot write to the folder of the record",
                "Not a directory",
            ],
        ),
        (
            "store: { snapshots: /proc/nope }",
            [
                "4:21: cannot write to the folder of snapshots `/proc/nope`",
                "`/proc`: ",
            ],
        ),
        (
            "listen: { address: 127.0.0.1:0, tls: { acme: { domains: [a.example], dir: /proc/acme } } }",
            [
                "4:75: cannot write to the folder of certificates `/proc/acme`",
                "`/proc`: ",
            ],
        ),
        (
            "listen: { address: unix:/dev/null, mode: 0600 }",
            [
                "4:20: cannot listen on unix:/dev/null",
                "which is no socket",
            ],
        ),
        (
            "access_log: policies",
            [
                "4:13: cannot write the access log `policies`",
                "it is a folder",
            ],
        ),
        (
            "access_log: none/a.log",
            [
                "4:13: cannot write the access log `none/a.log`",
                "folder does not exist",
            ],
        ),
    ] {
        let folder = with(line);
        let before = entries(folder.path());
        let ended = check(folder.path(), &["--offline"]);
        assert_eq!(ended.code, Some(2), "{line}: {ended:?}");
        assert_contains(&ended.err, &parts);
        assert_contains(&ended.err, &["help: ", "1 mistake"]);
        assert_eq!(entries(folder.path()), before, "{line}");
    }
    let folder = with("record: data/record\nstore: { snapshots: data/counts }");
    let before = entries(folder.path());
    assert_eq!(check(folder.path(), &["--offline"]).code, Some(0));
    assert_eq!(entries(folder.path()), before, "nothing is left behind");
}

/// The gateway runs without them, or they are its own.
#[test]
fn what_may_be_otherwise_tomorrow_is_a_warning() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let in_use = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = in_use
        .local_addr()
        .map(|address| (in_use, address))
        .unwrap();
    let listen = format!("listen: [127.0.0.1:0, {}]", in_use.1);
    let sockets = tempfile::tempdir().unwrap();
    let path = sockets.path().join("in.sock");
    let _socket = UnixListener::bind(&path).unwrap();
    let unix = format!("listen: unix:{}", path.display());
    let admin = format!("admin: {{ address: 127.0.0.1:0, probes: {} }}", in_use.1);
    let store = format!("store: redis://{nobody}");
    let offline: &[&str] = &["--offline"];
    for (line, more, parts) in [
        (
            &*listen,
            offline,
            &[
                "4:23: warning: cannot listen on",
                "while the gateway itself runs",
            ][..],
        ),
        (
            &*unix,
            offline,
            &[
                "4:9: warning: cannot listen on unix:",
                "while the gateway itself runs",
            ],
        ),
        (
            "listen: unix:/proc/in.sock",
            offline,
            &[
                "4:9: warning: cannot listen on unix:/proc/in.sock",
                "where systemd passes the socket",
            ],
        ),
        (
            "listen: unix:/nowhere/in.sock",
            offline,
            &[
                "4:9: warning: cannot listen on unix:/nowhere/in.sock",
                "No such file",
            ],
        ),
        (&*admin, offline, &["4:40: warning: cannot listen on"]),
        (
            "listen: 192.0.2.1:8080",
            offline,
            &[
                "4:9: warning: cannot listen on 192.0.2.1:8080",
                "no such address",
            ],
        ),
        (
            "connections: { total: 10000000 }",
            offline,
            &[
                "4:23: warning: 10000000 connections need more file descriptors",
                "LimitNOFILE",
            ],
        ),
        (
            "upstreams: { up: http://nowhere.invalid:9001 }",
            &[],
            &["4:18: warning: the name `nowhere.invalid` cannot be looked up"],
        ),
        (
            "upstreams: { up: http://nowhere.invalid:9001 } # \u{a0}nowhere.invalid",
            &[],
            &["warning: the name `nowhere.invalid` cannot be looked up"],
        ),
        (
            &*store,
            &[],
            &[
                "4:8: warning: the store at 127.0.0.1:",
                "cannot be reached",
                "on_store_error",
            ],
        ),
        (
            "store: redis://127.0.0.1:1\nrecord: { push: [{ to: prometheus, url: http://127.0.0.1:1/w }] }",
            offline,
            &[
                "5:18: warning: gateways that share a store push the same series",
                "labels: { instance: ",
            ],
        ),
    ] {
        let folder = with(line);
        let ended = check(folder.path(), more);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        assert_contains(&ended.out, parts);
    }
    for quiet in [
        "upstreams: { up: http://nowhere.invalid:9001 }",
        &store,
        "store: redis://127.0.0.1:1\nrecord: { push: [{ to: prometheus, url: http://127.0.0.1:1/w, labels: { a: b } }] }",
    ] {
        let folder = with(quiet);
        let ended = check(folder.path(), offline);
        assert_eq!(ended.code, Some(0), "{quiet}");
        for word in ["nowhere.invalid", "cannot be", "warning"] {
            assert!(!ended.out.contains(word), "{quiet}: {}", ended.out);
        }
    }
}

#[test]
fn the_udp_port_of_http3_is_tried() {
    // No other test has the port of this address for TCP.
    let in_use = UdpSocket::bind("127.83.1.7:0").unwrap();
    let address = in_use.local_addr().unwrap();
    let folder = with(&format!(
        "listen: {{ address: {address}, tls: {{ cert: 0.pem, key: 0.key }}, http3: true }}"
    ));
    put(&folder, 0, &Certificate::of(&["test"]));
    let ended = check(folder.path(), &["--offline"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let message = format!("4:20: warning: cannot listen on {address} (UDP, for HTTP/3): ");
    assert_contains(&ended.out, &[&message, "while the gateway itself runs"]);
    drop(in_use);
    let ended = check(folder.path(), &["--offline"]);
    assert!(!ended.out.contains("UDP"), "{}", ended.out);
}

/// What is filled in may be a secret.
#[test]
fn what_is_filled_in_is_not_shown() {
    for (line, value, shown) in [
        (
            "upstreams: { up: \"http://${env:FILLED}:9001\" }",
            "nowhere.invalid",
            "warning: the name `${env:FILLED}` cannot be looked up",
        ),
        (
            "store: \"redis://:x@${env:FILLED}:1\"",
            "127.0.0.1",
            "warning: the store at ${env:FILLED}:1 cannot be reached",
        ),
        (
            "listen: \"${env:FILLED}\"",
            "192.0.2.1:8080",
            "cannot listen on ${env:FILLED}: ",
        ),
        (
            "access_log: \"${env:FILLED}/access.log\"",
            "/none/such",
            "cannot write the access log `${env:FILLED}/access.log`: its folder",
        ),
        (
            "record: \"${env:FILLED}/record\"",
            "/proc/sesame",
            "cannot write to the folder of the record `${env:FILLED}/record`: ",
        ),
        (
            "connections: { total: \"${env:FILLED}\" }",
            "10000000",
            "warning: ${env:FILLED} connections need",
        ),
    ] {
        let folder = with(line);
        let mut command = child::command(folder.path(), &["check", "--config", "tollgate.yaml"]);
        let ended = child::finish(command.env("FILLED", value));
        let said = format!("{}{}", ended.out, ended.err);
        assert_contains(&said, &[shown]);
        let mut warnings = said
            .lines()
            .filter(|line| line.starts_with("tollgate.yaml:"));
        assert!(warnings.all(|line| !line.contains(value)), "{said}");
    }
}

#[test]
fn certificates_have_dates() {
    let year = |year| date_time_ymd(year, 1, 1);
    for (from, until, says_of_it) in [
        (year(2019), year(2020), Some("expired on Wed, 01 Jan 2020")),
        (
            year(2190),
            year(2200),
            Some("is not valid before Fri, 01 Jan 2190"),
        ),
        (year(2019), year(2200), None),
    ] {
        let folder = with("listen: { address: 127.0.0.1:0, tls: { cert: own.pem, key: own.key } }");
        let own = Authority::new().issue("api.example", |certificate| {
            (certificate.not_before, certificate.not_after) = (from, until);
        });
        fs::write(folder.path().join("own.key"), &own.key).unwrap();
        fs::write(folder.path().join("own.pem"), &own.pem).unwrap();
        let ended = check(folder.path(), &["--offline"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let told = ended.out.contains("warning: the certificate");
        assert_eq!(told, says_of_it.is_some(), "{}", ended.out);
        assert_contains(&ended.out, says_of_it.as_slice());
    }
}

/// However many names there are, and however long the resolver takes.
#[test]
fn what_is_tried_ends_after_ten_seconds() {
    let servers: Vec<String> = (0..254)
        .map(|n| format!("\"http://n{n}.test:1\""))
        .collect();
    let folder = with(&format!(
        "upstreams: {{ up: [{}] }}\nstore: redis+cluster://a.test,b.test,c.test",
        servers.join(", ")
    ));
    // Whoever reads it waits for a writer.
    let made = Command::new("mkfifo")
        .arg(folder.path().join("hosts"))
        .status();
    assert!(made.unwrap().success());
    let script = "mount --bind hosts /etc/hosts && exec \"$@\"";
    let tollgate = env!("CARGO_BIN_EXE_tollgate");
    let arguments = [
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
        tollgate,
        "check",
    ];
    let clock = Clock::system();
    let begun = clock.now();
    let mut command = child::program("unshare", folder.path(), &arguments);
    let mut child = Guard(command.spawn().unwrap());
    let out = lines(child.0.stdout.take().unwrap());
    let threads =
        || fs::read_dir(format!("/proc/{}/task", child.0.id())).map_or(0, Iterator::count);
    wait_until("it looks names up", || threads() > 10);
    assert!(threads() < 40, "{}", threads());
    line_with(&out, "warning: 4 names and servers are not tried");
    line_with(
        &out,
        "the name `n199.test` cannot be looked up: no answer within 10 s",
    );
    assert_eq!(child.ended().code(), Some(0));
    assert!(clock.now().since(begun) < Nanos::from_secs(15));
}

/// The admin listener has an address that nobody wrote.
#[test]
fn the_default_address_of_admin_is_taken() {
    for line in [
        "admin: { probes: 127.0.0.1:9900 }",
        "listen: 127.0.0.1:9900\nadmin: { probes: 127.0.0.1:9901 }",
    ] {
        let folder = with(line);
        let ended = check(folder.path(), &["--offline"]);
        assert_eq!(ended.code, Some(2), "{line}: {ended:?}");
        assert_contains(
            &ended.err,
            &[
                "`127.0.0.1:9900` is listened on twice",
                "admin: { address: ",
            ],
        );
    }
}

/// Few descriptors are told of at the start too.
#[test]
fn few_descriptors_are_told_of() {
    let upstream = Upstream::plain();
    let folder = super::folder(&upstream, "admin: off\n");
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "ulimit -n 256 && exec \"$0\" run --config tollgate.yaml",
        ])
        .arg(env!("CARGO_BIN_EXE_tollgate"))
        .current_dir(folder.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let server = Server::of(&mut command, false);
    assert_contains(
        &server.early.join("\n"),
        &["enough for 64 connections", "LimitNOFILE"],
    );
}
