//! Applications that a test starts, and that end with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::MAX_WAIT;
use crate::common::child::{Guard, program};

/// An application that listens.
pub struct Application {
    pub address: SocketAddr,
    _child: Guard,
}

impl Application {
    /// Starts a command and waits until it says where it listens.
    pub fn start(command: &mut Command) -> Application {
        let child = command.spawn();
        let child = child.unwrap_or_else(|e| panic!("{command:?}: {e}: run `make tools`"));
        let mut child = Guard(child);
        let said = child.said();
        let mut lines = String::new();
        let port = std::iter::from_fn(|| said.recv_timeout(MAX_WAIT).ok()).find_map(|line| {
            lines.push_str(&line);
            lines.push('\n');
            let (_, after) = line.split_once("127.0.0.1:")?;
            let digits = after.find(|c: char| !c.is_ascii_digit());
            after[..digits.unwrap_or(after.len())].parse().ok()
        });
        let port = port.unwrap_or_else(|| panic!("it does not listen: run `make tools`\n{lines}"));
        Application {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            _child: child,
        }
    }
}

/// Python with the modules of target/python alone, so that those of the system cannot take their place.
pub fn python(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = program("/usr/bin/python3", folder, &[&["-S"], arguments].concat());
    command
        .env("PYTHONPATH", root().join("target/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1");
    command
}

/// A script of this folder.
pub fn script(name: &str) -> String {
    let script = root().join("tests/applications").join(name);
    script.to_str().unwrap().to_owned()
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
