//! Programs that are not ours: run to their end, or serving until the test is over. One that is missing fails
//! the test that needs it, with the package that has it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::Receiver;

use crate::common::child::{self, Guard};

/// What a test runs, and what it needs beside itself.
pub struct Program {
    path: &'static str,
    /// Debian's packages of it and of the modules that its scripts use.
    packages: &'static str,
}

pub const CURL: Program = Program::of("curl", "curl");
pub const H2LOAD: Program = Program::of("h2load", "nghttp2-client");
pub const NGHTTP: Program = Program::of("nghttp", "nghttp2-client");
pub const NGINX: Program = Program::of("/usr/sbin/nginx", "nginx-light");
pub const NODE: Program = Program::of("node", "nodejs node-ws");
/// By its path, for the packages' modules are found by the system's own alone.
pub const PYTHON: Program = Program::of(
    "/usr/bin/python3",
    "python3-grpcio python3-httpx python3-h2 python3-hypercorn python3-websockets",
);

impl Program {
    const fn of(path: &'static str, packages: &'static str) -> Program {
        Program { path, packages }
    }

    /// It with these arguments, in a folder of the test's own.
    pub fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        let found = Command::new(self.path).arg("--version").output();
        if found.is_err() && !Path::new(self.path).exists() {
            panic!("`{}` is missing: {}", self.path, self.cure());
        }
        let mut command = child::program(self.path, folder, arguments);
        // Nothing of the machine's settings; the modules of Debian's packages.
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(name);
            command.env_remove(name.to_uppercase());
        }
        command
            .env("NODE_PATH", "/usr/share/nodejs")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1")
            .env_remove("PYTHONPATH");
        command
    }

    /// One of this folder's scripts.
    pub fn script(&self, folder: &Path, name: &str, arguments: &[&str]) -> Command {
        let script = scripts().join(name);
        let script = script.to_str().unwrap();
        self.command(folder, &[&[script], arguments].concat())
    }

    /// Runs a command of it to its end, which must be good; what it said.
    #[track_caller]
    pub fn succeeds(&self, command: &mut Command) -> String {
        let ended = child::finish(command);
        assert_eq!(
            ended.code,
            Some(0),
            "{command:?}\n{}\n{}{}",
            ended.out,
            ended.err,
            self.lacks(&ended.err)
        );
        ended.out
    }

    fn lacks(&self, text: &str) -> String {
        let lacks = ["No module named", "Cannot find module", "cannot import"];
        match lacks.iter().any(|lack| text.contains(lack)) {
            true => format!("\nA module is missing: {}", self.cure()),
            false => String::new(),
        }
    }

    fn cure(&self) -> String {
        format!(
            "run `make tools` or `apt-get install {}`; clients are tested, never skipped",
            self.packages
        )
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// A script that serves. It says `listening PORT` when it does.
pub struct Server {
    child: Guard,
    pub address: SocketAddr,
    /// What else it says.
    pub out: Receiver<String>,
}

impl Server {
    pub fn start(program: &Program, folder: &Path, name: &str, arguments: &[&str]) -> Server {
        let mut command = program.script(folder, name, arguments);
        let mut child = Guard(command.spawn().unwrap());
        let out = child::lines(child.0.stdout.take().unwrap());
        let err = child::lines(child.0.stderr.take().unwrap());
        let port = out.recv_timeout(crate::common::MAX_WAIT).ok();
        let port = port.and_then(|line| line.strip_prefix("listening ")?.parse().ok());
        let Some(port) = port else {
            // Its end ends its words.
            let _ = child.0.kill();
            let text: Vec<String> = err.iter().collect();
            let text = text.join("\n");
            panic!("{name} does not listen:\n{text}{}", program.lacks(&text));
        };
        Server {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            out,
        }
    }

    /// Ends it now.
    pub fn stop(&mut self) -> ExitStatus {
        let _ = self.child.0.kill();
        self.child.ended()
    }
}
