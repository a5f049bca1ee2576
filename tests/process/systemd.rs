//! The units that ship, as far as systemd can be asked about them without running them, and sockets that it passes.

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use command_fds::{CommandFdExt, FdMapping};
use tempfile::TempDir;

use super::common::child::{self, Server};
use super::common::{Client, Upstream, assert_contains};

pub const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd");

/// The units, with a program that is there.
fn units() -> (TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let units = ["tollgate.service", "tollgate.socket"].map(|name| {
        let text = fs::read_to_string(Path::new(UNITS).join(name)).unwrap();
        let program = env!("CARGO_BIN_EXE_tollgate");
        let path = folder.path().join(name);
        fs::write(&path, text.replace("/usr/local/bin/tollgate", program)).unwrap();
        path
    });
    (folder, units.into())
}

fn analyze(arguments: &[&str], units: &[PathBuf]) -> String {
    let mut command = Command::new("/usr/bin/systemd-analyze");
    let output = command.args(arguments).args(units).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn the_units_are_sound_and_give_little_away() {
    let (_folder, units) = units();
    let said = analyze(&["verify", "--man=no"], &units);
    assert!(
        !said.contains("tollgate.so") && !said.contains("tollgate.service:"),
        "{said}"
    );
    let said = analyze(
        &["security", "--offline=yes", "--no-pager", "--threshold=25"],
        &units[..1],
    );
    let line = said
        .lines()
        .find(|line| line.contains("Overall exposure level"));
    let level = line.and_then(|line| line.split(':').next_back()?.split_whitespace().next());
    let level: f64 = level.and_then(|level| level.parse().ok()).expect(&said);
    assert!(level <= 2.5, "{said}");
}

/// The configuration beside them writes only where the service may.
#[test]
fn the_configuration_uses_the_folders_of_the_service() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(
        Path::new(UNITS).join("tollgate.yaml"),
        folder.path().join("tollgate.yaml"),
    )
    .unwrap();
    fs::create_dir(folder.path().join("policies")).unwrap();
    fs::write(
        folder.path().join("policies/api.yaml"),
        "match: /**\nupstream: api\n",
    )
    .unwrap();
    let [state, logs] = ["state", "logs"].map(|name| folder.path().join(name));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&logs).unwrap();
    let unit = fs::read_to_string(Path::new(UNITS).join("tollgate.service")).unwrap();
    for line in [
        "StateDirectory=tollgate",
        "LogsDirectory=tollgate",
        "LoadCredential=tollgate.key.pem",
    ] {
        assert!(unit.lines().any(|of_unit| of_unit == line), "{line}");
    }
    let mut command = child::command(folder.path(), &["check", "--offline", "--json"]);
    command
        .env("STATE_DIRECTORY", &state)
        .env("LOGS_DIRECTORY", &logs);
    let ended = child::finish(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// Runs with `socket` as systemd passes it.
pub fn with_socket(folder: &Path, socket: OwnedFd) -> Command {
    let mut command = child::command(folder, &["run", "--config", "tollgate.yaml"]);
    command.env("LISTEN_FDS", "1").env("LISTEN_PID", "");
    let mapping = FdMapping {
        parent_fd: socket,
        child_fd: 3,
    };
    command.fd_mappings(vec![mapping]).unwrap();
    command
}

fn listening_on(upstream: &Upstream, address: &str) -> TempDir {
    let folder = super::folder(upstream, "admin: off\n");
    let file = folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("listen: 127.0.0.1:0", &format!("listen: \"{address}\""));
    fs::write(file, text).unwrap();
    folder
}

/// What `ListenStream=8080` makes serves both families.
#[test]
fn a_socket_for_both_families_is_taken_for_all_addresses_of_one() {
    let upstream = Upstream::plain();
    let socket = TcpListener::bind("[::]:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let folder = listening_on(&upstream, &format!("0.0.0.0:{port}"));
    let mut command = with_socket(folder.path(), socket.into());
    let server = Server::of(&mut command, false);
    drop(command);
    assert_eq!(server.address.port(), port);
    for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        assert_eq!(
            Client::connect(address.parse().unwrap()).get("/").status(),
            200
        );
    }
}

/// A configuration that says loopback does not get a socket that everybody reaches.
#[test]
fn a_socket_that_does_not_fit_is_named() {
    let upstream = Upstream::plain();
    let socket = TcpListener::bind("[::]:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let folder = listening_on(&upstream, &format!("127.0.0.1:{port}"));
    let ended = child::finish(&mut with_socket(folder.path(), socket.into()));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let passed = format!("the passed socket on [::]:{port} occupies the port");
    let cure = format!("`listen: \"[::]:{port}\"`, or `ListenStream=127.0.0.1:{port}`");
    assert_contains(&ended.err, &[&passed, &cure]);
    // One of another kind, too.
    let folder = listening_on(&upstream, "127.0.0.1:0");
    let path = folder.path().join("own.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let server = Server::of(&mut with_socket(folder.path(), socket.into()), false);
    let said = server.early.join("\n");
    assert_contains(&said, &[path.to_str().unwrap(), "closed a passed socket"]);
}
