//! The Debian package: what it holds, and what becomes of its files when it is installed, renewed and removed: into a
//! folder, and in a bare Debian that boots with it. The machine itself stays as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ROOT;
use super::common::child::Guard;
use super::common::system::{System, control_groups};
use super::common::{assert_contains, wait_until};

const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/debian/build.sh");

/// Runs a command that must succeed, and returns what it prints.
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A `dpkg` for the system in this folder, without its scripts: no systemd runs there.
fn dpkg(root: &Path) -> Command {
    let mut command = Command::new("dpkg");
    command
        .arg(format!("--root={}", root.display()))
        .args(["--force-not-root", "--force-depends", "--force-bad-path"])
        .args(["--force-script-chrootless", "--force-confold"]);
    command
}

fn build_package(folder: &Path) -> PathBuf {
    let program = env!("CARGO_BIN_EXE_tollgate");
    let mut command = Command::new(BUILD);
    // The program of the tests is large, and it is compressed for this test alone.
    command
        .env("DPKG_DEB_COMPRESSOR_TYPE", "gzip")
        .env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    run(command.arg(program).arg(folder)).trim().into()
}

#[test]
fn the_package_installs_and_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let package = build_package(folder.path());
    let field = |name: &str| {
        run(Command::new("dpkg-deb")
            .arg("--field")
            .arg(&package)
            .arg(name))
    };
    assert_eq!(field("Package").trim(), "tollgate");
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    assert_contains(&field("Depends"), &["libc6 (>= 2."]);
    let holds = run(Command::new("dpkg-deb").arg("--contents").arg(&package));
    let parts = [
        "/usr/share/man/man1/tollgate.1.gz",
        "/usr/share/man/man1/tollgate-check.1.gz",
        "/usr/share/bash-completion/completions/tollgate",
        "/usr/share/zsh/vendor-completions/_tollgate",
        "/usr/share/fish/vendor_completions.d/tollgate.fish",
        "/etc/logrotate.d/tollgate",
    ];
    assert_contains(&holds, &parts);

    let root = folder.path().join("root");
    for part in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "usr/bin"] {
        fs::create_dir_all(root.join(part)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    run(dpkg(&root).arg("--install").arg(&package));
    let program = root.join("usr/bin/tollgate");
    let version = run(Command::new(&program).arg("--version"));
    assert_contains(&version, &[env!("CARGO_PKG_VERSION")]);
    let config = root.join("etc/tollgate/tollgate.yaml");
    let check = || {
        let mut command = Command::new(&program);
        command
            .args(["check", "--offline", "--config"])
            .arg(&config);
        let places = ["STATE_DIRECTORY", "LOGS_DIRECTORY"].map(|name| (name, folder.path()));
        run(command.envs(places))
    };
    assert_contains(&check(), &["per-ip"]);
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/tollgate.service")).unwrap();
    assert_contains(
        &unit,
        &["ExecStart=/usr/bin/tollgate run --config /etc/tollgate/tollgate.yaml"],
    );

    // What the operator has written outlives a renewal and a removal.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("per-ip", "per-address")).unwrap();
    run(dpkg(&root).arg("--install").arg(&package));
    assert_contains(&check(), &["per-address"]);
    run(dpkg(&root).args(["--remove", "tollgate"]));
    assert!(!program.exists());
    assert_contains(&fs::read_to_string(&config).unwrap(), &["per-address"]);
    run(dpkg(&root).args(["--purge", "tollgate"]));
    assert!(!config.exists());
}

#[test]
fn a_package_needs_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(BUILD)
        .arg(folder.path().join("none"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_contains(
        &String::from_utf8_lossy(&output.stderr),
        &["cargo build --profile production"],
    );
}

/// Runs a command inside that must succeed.
#[track_caller]
fn inside(system: &System, arguments: &[&str]) -> String {
    let output = system.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// From a bare Debian to the first 429, a log that is put aside, and nothing left behind.
#[test]
fn a_bare_system_installs_runs_and_purges_it() {
    let Some(groups) = control_groups() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    build_package(folder.path());
    let root = Path::new(ROOT).join("target/debian/root");
    assert!(root.join("usr").exists(), "run `make tools`");
    let script = format!("{ROOT}/tests/packages/debian.sh");
    let system = System::start(&groups, "debian", &script, &[&root, folder.path()]);
    wait_until("systemd answers", || {
        let state = system.said(&["systemctl", "is-system-running"]);
        ["running", "degraded"].contains(&state.trim())
    });
    let install = "dpkg --install /packages/*.deb";
    inside(&system, &["sh", "-c", install]);
    assert_eq!(system.property("ActiveState"), "inactive");
    let mut upstream = system.in_network(&["python3", "-m", "http.server", "--bind", "127.0.0.1"]);
    upstream.args(["--directory", "/usr/share/common-licenses", "3000"]);
    let upstream = upstream.stdout(Stdio::null()).stderr(Stdio::null());
    let _upstream = Guard(upstream.spawn().unwrap());
    let units = ["tollgate.socket", "tollgate.service"];
    inside(
        &system,
        &[&["systemctl", "enable", "--now"][..], &units].concat(),
    );
    wait_until("the gateway serves", || system.status("/GPL-3") == "200");
    wait_until("the first 429", || system.status("/GPL-3") == "429");
    assert_contains(&inside(&system, &["tollgate", "--version"]), &["tollgate"]);

    // Lines are collected for a moment before they are written.
    let log = "/var/log/tollgate/access.log";
    let lines = |file: &str| system.said(&["grep", "-c", "429", file]);
    wait_until("the refusal is logged", || {
        lines(log).trim().parse().is_ok_and(|lines: u32| lines > 0)
    });
    let file_number = || inside(&system, &["stat", "-L", "-c", "%i", log]);
    let first_log = file_number();
    inside(
        &system,
        &["logrotate", "--force", "/etc/logrotate.d/tollgate"],
    );
    wait_until("the gateway writes to a new log", || {
        system.status("/GPL-3");
        system.run(&["test", "-s", log]).status.success() && file_number() != first_log
    });
    let rotated = lines(&format!("{log}.1"));
    assert!(
        rotated.trim().parse().is_ok_and(|lines: u32| lines > 0),
        "{rotated}"
    );

    // A newer package takes over from the running process.
    let before = system.property("MainPID");
    inside(&system, &["sh", "-c", install]);
    wait_until("the new process has taken over", || {
        let now = system.property("MainPID");
        now != before && now != "0" && system.property("ActiveState") == "active"
    });
    wait_until("the new process serves", || {
        system.status("/GPL-3") == "200"
    });

    inside(&system, &["dpkg", "--remove", "tollgate"]);
    assert_eq!(system.property("ActiveState"), "inactive");
    assert!(
        system
            .run(&["test", "-e", "/var/lib/tollgate/record"])
            .status
            .success()
    );
    inside(&system, &["dpkg", "--purge", "tollgate"]);
    let left = inside(&system, &["find", "/", "-xdev", "-name", "*tollgate*"]);
    assert_eq!(left, "");
    assert!(
        !system
            .run(&["dpkg", "--status", "tollgate"])
            .status
            .success()
    );
}
