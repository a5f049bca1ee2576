//! A system with a systemd of its own, in namespaces that end with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use rustix::process::geteuid;

use super::child::{Guard, program};
use super::wait_until;

/// A system that runs until this is dropped.
pub struct System {
    unshare: Guard,
    /// The number of its first process outside.
    first: u32,
    /// Its control group.
    group: PathBuf,
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

/// The folder of control groups, if this machine lets its user run a system in namespaces: most containers do not.
pub fn control_groups() -> Option<PathBuf> {
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
    /// Runs a script with these words behind it, as the first process of namespaces of its own. It ends by becoming
    /// systemd. `name` tells this system apart from others of this process.
    pub fn start(groups: &Path, name: &str, script: &str, words: &[&Path]) -> System {
        let group = groups.join(format!("tollgate-test-{}-{name}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let words: Vec<String> = (words.iter())
            .map(|word| word.display().to_string())
            .collect();
        let command = format!(
            "echo $$ >{}/cgroup.procs; exec unshare --mount --pid --fork --uts --ipc --net --cgroup \
             --mount-proc --kill-child bash {script} {}",
            group.display(),
            words.join(" "),
        );
        let unshare = program("bash", Path::new("/"), &["-c", &command]);
        let unshare = Guard({ unshare }.spawn().unwrap());
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
        }
    }

    /// What a command inside says, and whether it succeeds.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.enter(&["-m", "-p", "-n", "-C", "-u", "-i", "-r", "-w"], arguments)
            .output()
            .unwrap()
    }

    /// A program of this machine in the network of the system.
    pub fn in_network(&self, arguments: &[&str]) -> Command {
        self.enter(&["-n"], arguments)
    }

    fn enter(&self, namespaces: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.first.to_string()])
            .args(namespaces);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Both outputs of a command inside.
    pub fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// A property of the service.
    pub fn property(&self, name: &str) -> String {
        let show = [
            "systemctl",
            "show",
            "--value",
            "-p",
            name,
            "tollgate.service",
        ];
        self.said(&show).trim().to_owned()
    }

    /// The status of a response to a request on the loopback of the system.
    pub fn status(&self, path: &str) -> String {
        let url = format!("http://127.0.0.1:8080{path}");
        let curl = [
            "curl",
            "-s",
            "-m",
            "5",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            &url,
        ];
        String::from_utf8(self.in_network(&curl).output().unwrap().stdout).unwrap()
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

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
