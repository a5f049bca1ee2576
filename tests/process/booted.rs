//! The shipped units under a systemd of their own, in namespaces (`systemd.sh`). The lines of the units are checked
//! everywhere, in `systemd.rs`.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::common::system::{System, control_groups};
use super::common::wait_until;
use super::systemd::UNITS;

const PATH: &str = "/GPL-3";

fn start(groups: &Path) -> (System, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("own")).unwrap();
    let configuration = folder.path().join("etc");
    fs::create_dir_all(configuration.join("policies")).unwrap();
    fs::copy(
        Path::new(UNITS).join("tollgate.yaml"),
        configuration.join("tollgate.yaml"),
    )
    .unwrap();
    let policy = "match: /**\nupstream: api\n";
    fs::write(configuration.join("policies/all.yaml"), policy).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/systemd.sh");
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate"));
    let words = [folder.path(), Path::new(UNITS), program];
    (System::start(groups, "units", script, &words), folder)
}

fn journal(system: &System) -> String {
    system.said(&[
        "journalctl",
        "--no-pager",
        "--output=cat",
        "--unit=tollgate.service",
    ])
}

fn serves(system: &System, when: &str) {
    wait_until(when, || {
        system.property("ActiveState") == "active" && system.status(PATH) == "200"
    });
}

#[test]
fn the_units_run_under_systemd() {
    let Some(groups) = control_groups() else {
        return;
    };
    let (system, _folder) = start(&groups);
    serves(&system, "it is ready and serves the passed socket");
    let reload = system.run(&["systemctl", "reload", "tollgate.service"]);
    assert!(reload.status.success(), "{reload:?}");
    assert_eq!(system.status(PATH), "200");

    let before = system.property("MainPID");
    system.said(&[
        "systemctl",
        "kill",
        "--signal=SIGUSR2",
        "--kill-whom=main",
        "tollgate.service",
    ]);
    wait_until("another process takes over", || {
        system.property("MainPID") != before
    });
    serves(&system, "it serves after the hand-over");
    for path in [
        "/var/lib/tollgate/record",
        "/var/lib/tollgate/counts",
        "/var/log/tollgate/access.log",
    ] {
        assert!(system.run(&["test", "-e", path]).status.success(), "{path}");
    }

    // A process that systemd has not started itself gets its time to drain too.
    system.said(&["systemctl", "stop", "tollgate.socket", "tollgate.service"]);
    let journal = journal(&system);
    assert_eq!(system.property("Result"), "success", "{journal}");
    assert!(journal.matches("draining").count() == 2, "{journal}");
    assert!(!journal.contains("SIGKILL"), "{journal}");

    system.said(&["systemctl", "start", "tollgate.socket", "tollgate.service"]);
    serves(&system, "it starts again");
    let before = system.property("MainPID");
    system.said(&["systemctl", "kill", "--signal=SIGKILL", "tollgate.service"]);
    wait_until("it is restarted", || {
        !["0", &before].contains(&&*system.property("MainPID"))
    });
    serves(&system, "it serves after the restart");
}
