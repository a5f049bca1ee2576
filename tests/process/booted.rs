//! The shipped units under a systemd of their own, in namespaces (`systemd.sh`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use rustix::process::geteuid;
use tempfile::TempDir;

use super::common::child::{Guard, program};
use super::common::wait_until;
use super::systemd::UNITS;
use super::text;

/// A system that runs until this is dropped.
struct System {
    unshare: Guard,
    /// The number of its first process outside.
    first: u32,
    /// Its control group.
    group: PathBuf,
    _folder: TempDir,
}

/// Mounts what a system needs, in namespaces that end with it.
const PROBE: [&str; 10] = [
    "--mount",
    "--pid",
    "--fork",
    "--uts",
    "--ipc",
    "--net",
    "--cgroup",
    "bash",
    "-ec",
    "mount -t tmpfs tmpfs /mnt; mkdir /mnt/upper /mnt/work
     mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
     umount --recursive --lazy /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup",
];

/// The folder of control groups, if this machine lets its user run a system in namespaces: most containers do not. The
/// lines of the units are checked everywhere, in `systemd.rs`.
fn control_groups() -> Option<PathBuf> {
    let mounts = text(Path::new("/proc/mounts"));
    let mut unified = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let at = fields.next()?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(at))
    });
    let probed = Command::new("unshare").args(PROBE).output().unwrap();
    let groups = unified.next().filter(|_| geteuid().is_root());
    groups.filter(|_| probed.status.success()).or_else(|| {
        eprintln!("no system can be run here: {probed:?}");
        None
    })
}

impl System {
    fn start(groups: &Path) -> System {
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

        let group = groups.join(format!("tollgate-test-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/systemd.sh");
        let command = format!(
            "echo $$ >{}/cgroup.procs; exec unshare --mount --pid --fork --uts --ipc --net --cgroup \
             --mount-proc --kill-child bash {script} {} {UNITS} {}",
            group.display(),
            folder.path().display(),
            env!("CARGO_BIN_EXE_tollgate"),
        );
        let unshare = program("bash", folder.path(), &["-c", &command])
            .spawn()
            .unwrap();
        let unshare = Guard(unshare);
        let parent = unshare.0.id();
        let mut first = None;
        wait_until("the system starts", || {
            let children = text(Path::new(&format!("/proc/{parent}/task/{parent}/children")));
            first = children.trim().parse().ok();
            first.is_some_and(|first: u32| {
                text(Path::new(&format!("/proc/{first}/comm"))).trim() == "systemd"
            })
        });
        System {
            unshare,
            first: first.unwrap(),
            group,
            _folder: folder,
        }
    }

    /// What a command inside says, and whether it succeeds.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args([
            "-t",
            &self.first.to_string(),
            "-m",
            "-p",
            "-n",
            "-C",
            "-u",
            "-i",
        ]);
        command.args(arguments).output().unwrap()
    }

    fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// A property of the service.
    fn property(&self, name: &str) -> String {
        let said = self.said(&[
            "systemctl",
            "show",
            "--value",
            "-p",
            name,
            "tollgate.service",
        ]);
        said.trim().to_owned()
    }

    fn journal(&self) -> String {
        self.said(&[
            "journalctl",
            "--no-pager",
            "--output=cat",
            "--unit=tollgate.service",
        ])
    }

    fn status(&self) -> String {
        let url = "http://127.0.0.1:8080/GPL-3";
        self.said(&[
            "curl",
            "-s",
            "-m",
            "5",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            url,
        ])
    }

    fn serves(&self, when: &str) {
        wait_until(when, || {
            self.property("ActiveState") == "active" && self.status() == "200"
        });
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = self.unshare.0.kill();
        let _ = self.unshare.0.wait();
        // Groups can be removed once their processes have ended.
        if !thread::panicking() {
            wait_until("the system has ended", || remove(&self.group));
        }
    }
}

fn remove(group: &Path) -> bool {
    let Ok(entries) = fs::read_dir(group) else {
        return true;
    };
    let inside = entries.flatten().filter(|entry| entry.path().is_dir());
    for entry in inside {
        remove(&entry.path());
    }
    fs::remove_dir(group).is_ok()
}

#[test]
fn the_units_run_under_systemd() {
    let Some(groups) = control_groups() else {
        return;
    };
    let system = System::start(&groups);
    system.serves("it is ready and serves the passed socket");
    let reload = system.run(&["systemctl", "reload", "tollgate.service"]);
    assert!(reload.status.success(), "{reload:?}");
    assert_eq!(system.status(), "200");

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
    system.serves("it serves after the hand-over");
    for path in [
        "/var/lib/tollgate/record",
        "/var/lib/tollgate/counts",
        "/var/log/tollgate/access.log",
    ] {
        assert!(system.run(&["test", "-e", path]).status.success(), "{path}");
    }

    // A process that systemd has not started itself gets its time to drain too.
    system.said(&["systemctl", "stop", "tollgate.socket", "tollgate.service"]);
    let journal = system.journal();
    assert_eq!(system.property("Result"), "success", "{journal}");
    assert!(journal.matches("draining").count() == 2, "{journal}");
    assert!(!journal.contains("SIGKILL"), "{journal}");

    system.said(&["systemctl", "start", "tollgate.socket", "tollgate.service"]);
    system.serves("it starts again");
    let before = system.property("MainPID");
    system.said(&["systemctl", "kill", "--signal=SIGKILL", "tollgate.service"]);
    wait_until("it is restarted", || {
        !["0", &before].contains(&&*system.property("MainPID"))
    });
    system.serves("it serves after the restart");
}
