//! A service manager that starts a gateway and is told of the processes that take its place.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::MAX_WAIT;

/// What a service manager hears.
pub struct Manager(UnixDatagram);

impl Manager {
    pub fn new(folder: &Path) -> Manager {
        let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
        socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
        Manager(socket)
    }

    pub fn command(folder: &Path) -> Command {
        let mut command = super::child::command(folder, &["run", "--config", "tollgate.yaml"]);
        command.env("NOTIFY_SOCKET", folder.join("notify"));
        command
    }

    pub fn hears(&self) -> String {
        let mut text = [0; 256];
        let length = self.0.recv(&mut text).expect("the manager is told");
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    }

    /// Waits until a process is in the place of another; gives its number.
    pub fn hears_of_successor(&self) -> Successor {
        assert_eq!(self.hears(), "READY=1");
        let told = self.hears();
        let number = told.strip_prefix("MAINPID=").expect(&told);
        Successor(Pid::from_raw(number.parse().unwrap()).unwrap())
    }
}

/// A process that nobody but the test ends.
pub struct Successor(pub Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process(self.0, Signal::KILL);
    }
}
