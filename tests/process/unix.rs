//! Unix sockets that clients connect to: who may, who they are taken for, and what becomes of their files.

use std::fs;
use std::io::{BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;

use super::common::child::{self, Server, line_with};
use super::common::{MAX_WAIT, Message, Upstream, assert_contains, ok, read_body, read_head};
use super::folder;

/// A gateway file that listens on `in.sock` of its folder too, where `listener` says more of it.
fn listening(upstream: &Upstream, listener: &str, more: &str) -> (TempDir, PathBuf) {
    let folder = folder(upstream, &format!("admin: off\n{more}"));
    let path = folder.path().join("in.sock");
    let file = folder.path().join("tollgate.yaml");
    let unix = format!("{{ address: \"unix:{}\"{listener} }}", path.display());
    let listen = format!("listen: [127.0.0.1:0, {unix}]\n");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("listen: 127.0.0.1:0\n", &listen)).unwrap();
    (folder, path)
}

/// One request over a connection of its own.
fn ask(path: &Path, before: &str, fields: &str) -> Message {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let text = format!("{before}GET / HTTP/1.1\r\nhost: test\r\n{fields}\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut message = read_head(&mut reader).unwrap();
    read_body(&mut reader, &mut message).unwrap();
    message
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|file| file.file_type().is_socket())
}

#[test]
fn the_file_has_its_permissions_and_the_client_is_loopback() {
    let upstream = Upstream::plain();
    for (listener, mode) in [
        ("", 0o660),
        (", mode: 0606", 0o606),
        (", mode: \"600\"", 0o600),
    ] {
        let (folder, path) = listening(&upstream, listener, "access_log: stdout\n");
        let server = Server::start(folder.path(), false);
        line_with(
            &server.err,
            &format!("listening on unix:{}", path.display()),
        );
        assert_eq!(path.metadata().unwrap().mode() & 0o777, mode, "{listener}");
        let answer = ask(&path, "", "x-forwarded-for: 192.0.2.1\r\n");
        assert_eq!((answer.status(), answer.text()), (200, "fine".into()));
        let request = upstream.next();
        assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
        line_with(&server.out, "\"ip\":\"127.0.0.1\"");
    }
}

const PER_IP: &str = "limits: { per-ip: { key: ip, rate: 1/h } }\n";

/// The addresses in a row that get through.
fn admitted(path: &Path, addresses: &[&str]) -> Vec<u16> {
    let ask = |address: &&str| ask(path, "", &format!("x-forwarded-for: {address}\r\n")).status();
    addresses.iter().map(ask).collect()
}

/// A network of loopback says nothing of clients of a Unix socket.
#[test]
fn a_proxy_on_a_unix_socket_is_believed_only_where_unix_is_trusted() {
    let upstream = Upstream::plain();
    let addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.1"];
    for (trusted, expected) in [
        ("unix", [200, 200, 429]),
        ("[127.0.0.0/8, unix]", [200, 200, 429]),
        ("[127.0.0.0/8, \"::/0\", 0.0.0.0/0]", [200, 429, 429]),
    ] {
        let identity = format!("identity: {{ ip: {{ trusted_proxies: {trusted} }} }}\n{PER_IP}");
        let (folder, path) = listening(&upstream, "", &identity);
        let server = Server::start(folder.path(), false);
        assert_eq!(admitted(&path, &addresses), expected, "{trusted}");
        drop(server);
    }
}

/// Nor does it spare them; what a trusted proxy says of a client does.
#[test]
fn a_network_exempts_clients_of_a_unix_socket_only_behind_a_proxy() {
    let upstream = Upstream::plain();
    let limits = PER_IP.replace("1/h", "1/h, exempt: [127.0.0.0/8, 192.0.2.0/24]");
    for (trusted, address, expected) in [
        ("127.0.0.0/8", "192.0.2.1", [200, 429]),
        ("unix", "none", [200, 429]),
        ("unix", "192.0.2.1", [200, 200]),
        ("unix", "198.51.100.1", [200, 429]),
    ] {
        let identity = format!("identity: {{ ip: {{ trusted_proxies: {trusted} }} }}\n{limits}");
        let (folder, path) = listening(&upstream, "", &identity);
        let server = Server::start(folder.path(), false);
        let statuses = admitted(&path, &[address; 2]);
        assert_eq!(statuses, expected, "{trusted} {address}");
        drop(server);
    }
}

#[test]
fn a_user_is_named_only_by_peers_that_may() {
    let upstream = Upstream::plain();
    for (from, named) in [("unix", true), ("127.0.0.0/8", false)] {
        let identity = format!("identity: {{ user: {{ header: x-user, from: {from} }} }}\n");
        let (folder, path) = listening(&upstream, "", &identity);
        let _server = Server::start(folder.path(), false);
        assert_eq!(ask(&path, "", "x-user: ann\r\n").status(), 200);
        let request = upstream.next();
        assert_eq!(request.field("tollgate-user").is_some(), named, "{from}");
    }
}

#[test]
fn a_proxy_header_names_the_client() {
    let upstream = Upstream::plain();
    let (folder, path) = listening(&upstream, ", proxy_protocol: unix", PER_IP);
    let _server = Server::start(folder.path(), false);
    for (address, status) in [("192.0.2.1", 200), ("192.0.2.2", 200), ("192.0.2.1", 429)] {
        let header = format!("PROXY TCP4 {address} 192.0.2.9 5 80\r\n");
        assert_eq!(ask(&path, &header, "").status(), status, "{address}");
    }
    assert_eq!(upstream.next().field("x-forwarded-for"), Some("192.0.2.1"));
}

/// A server on TCP is told an address, whatever the client came by.
#[test]
fn servers_that_want_a_proxy_header_get_one() {
    let upstream = Upstream::scripted(|mut served, report| {
        let header = read_head_line(&mut served.reader);
        while let Ok(mut request) = served.request() {
            request.start = header.clone();
            report(request);
            served.send(ok("fine"));
        }
    });
    let more = "upstreams: { up: { servers: [\"http://{upstream}\"], proxy_protocol: v1 } }\n";
    let (folder, path) = listening(&upstream, "", more);
    let _server = Server::start(folder.path(), false);
    assert_eq!(ask(&path, "", "").status(), 200);
    assert_eq!(upstream.next().start, "PROXY TCP4 127.0.0.1 127.0.0.1 0 0");
}

fn read_head_line(from: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn the_file_is_there_as_long_as_the_gateway() {
    let upstream = Upstream::plain();
    let (folder, path) = listening(&upstream, "", "");
    // One that a process left behind which was killed.
    drop(UnixListener::bind(&path).unwrap());
    let mut server = Server::start(folder.path(), false);
    assert_eq!(ask(&path, "", "").status(), 200);
    // A second gateway does not take it away.
    let file = folder.path().join("tollgate.yaml");
    let ended = child::run(folder.path(), &["run", "--config", "tollgate.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let named = format!("cannot listen on unix:{}: address in use", path.display());
    assert_contains(&ended.err, &[&named]);
    assert_eq!(ask(&path, "", "").status(), 200);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("admin: off\n", PER_IP)).unwrap();
    server.signal(Signal::HUP);
    line_with(&server.err, "policies reloaded");
    assert_eq!(ask(&path, "", "").status(), 200);
    assert_eq!(ask(&path, "", "").status(), 429);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    assert!(!path.exists(), "it is removed at the end");
}

/// As an orchestrator asks that knows nothing but the file.
#[test]
fn ready_asks_a_unix_socket() {
    let upstream = Upstream::plain();
    let (folder, _) = listening(&upstream, "", "");
    let file = folder.path().join("tollgate.yaml");
    let server = Server::start(folder.path(), false);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("[127.0.0.1:0, ", "[")).unwrap();
    let ready = || child::run(folder.path(), &["ready", "--config", "tollgate.yaml"]);
    assert_eq!(ready().code, Some(0));
    drop(server);
    let ended = ready();
    assert_eq!(ended.code, Some(1));
    assert_contains(&ended.err, &["nothing listens on unix:"]);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let upstream = Upstream::plain();
    let (folder, path) = listening(&upstream, "", "");
    let file = folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let (path, elsewhere) = (path.display().to_string(), "/nowhere/in.sock");
    fs::write(&file, text.replace(&path, elsewhere)).unwrap();
    let ended = child::run(folder.path(), &["run", "--config", "tollgate.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_contains(
        &ended.err,
        &["cannot listen on unix:/nowhere/in.sock: its folder does not exist"],
    );
}

#[test]
fn a_file_that_is_no_socket_is_not_touched() {
    let upstream = Upstream::plain();
    let (folder, path) = listening(&upstream, "", "");
    fs::write(&path, "text").unwrap();
    let ended = child::run(folder.path(), &["run", "--config", "tollgate.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_contains(&ended.err, &["cannot listen on unix:", "is no socket"]);
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

/// What another process made is that process's to remove.
#[test]
fn a_socket_of_systemd_is_taken_and_left() {
    let upstream = Upstream::plain();
    let (folder, path) = listening(&upstream, "", "");
    let socket = UnixListener::bind(&path).unwrap();
    let mut command = super::systemd::with_socket(folder.path(), socket.into());
    let mut server = Server::of(&mut command, false);
    drop(command);
    assert!(server.early.is_empty(), "{:?}", server.early);
    for _ in 0..8 {
        assert_eq!(ask(&path, "", "").status(), 200);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    assert!(is_socket(&path));
}
