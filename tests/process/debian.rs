//! The Debian package: what it holds, and what becomes of its files when it is installed, renewed and removed. It is
//! installed into a folder, so that the machine stays as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::common::assert_contains;

const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/debian/build.sh");

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
        &["cargo build --release"],
    );
}
