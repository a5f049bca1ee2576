//! Replaces this process by a new one.
//!
//! The new process inherits the listening sockets as systemd passes them, so one of the two serves every queued
//! connection. It ends this one when it serves.

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Pid, Signal, getppid, kill_process};
use sd_notify::NotifyState;
use socket2::Socket;

use crate::serve::worker::listen::SOCKET_FILES;

/// The variable with the process that passed its sockets on.
const PREDECESSOR: &str = "TOLLGATE_PREDECESSOR";

/// The first passed descriptor: `sd_listen_fds(3)`.
const FIRST_DESCRIPTOR: i32 = 3;

/// Starts this program again with the same arguments, from the same path, where a newer version may be by then.
pub struct Starter {
    program: PathBuf,
    successor: Option<Child>,
}

impl Starter {
    /// Call it when the process starts, before the file at its path can change.
    pub fn new() -> io::Result<Starter> {
        Ok(Starter {
            program: env::current_exe()?,
            successor: None,
        })
    }

    /// Starts the new process with these sockets, and with the socket files that it must remove at its end.
    pub fn start(&mut self, sockets: Vec<Socket>, files: &[Arc<Path>]) -> io::Result<()> {
        if std::process::id() == 1 {
            let message = "the first process of a container cannot be replaced, because its end ends the container";
            return Err(io::Error::other(message));
        }
        if self.successor.is_some() {
            return Err(io::Error::other("a new process has been started already"));
        }
        let mapped = (FIRST_DESCRIPTOR..)
            .zip(sockets)
            .map(|(child_fd, socket)| FdMapping {
                parent_fd: OwnedFd::from(socket),
                child_fd,
            });
        let files = env::join_paths(files.iter().map(|path| &**path)).map_err(io::Error::other)?;
        let mapped: Vec<FdMapping> = mapped.collect();
        let mut command = Command::new(&self.program);
        command
            .args(env::args_os().skip(1))
            .env("LISTEN_FDS", mapped.len().to_string())
            // The parent does not know the number of the child yet.
            .env("LISTEN_PID", "")
            .env(SOCKET_FILES, files)
            .env(PREDECESSOR, std::process::id().to_string())
            .fd_mappings(mapped)
            .map_err(io::Error::other)?;
        self.successor = Some(command.spawn()?);
        Ok(())
    }

    /// Logs it if the new process has ended instead of serving.
    pub fn check_successor(&mut self) {
        let ended = |child: &mut Child| child.try_wait().ok().flatten();
        if let Some(status) = self.successor.as_mut().and_then(ended) {
            self.successor = None;
            tracing::error!(%status, "the new process ended; this one goes on");
        }
    }

    /// The process that has taken over, if one was started and still runs.
    pub fn successor(&mut self) -> Option<u32> {
        self.check_successor();
        self.successor.as_ref().map(Child::id)
    }
}

/// Notifies the service manager that this process serves, and ends the process that it replaces.
pub fn ready() {
    notify(&[NotifyState::Ready]);
    let predecessor = env::var(PREDECESSOR)
        .ok()
        .and_then(|text| text.parse().ok());
    let predecessor = predecessor.and_then(Pid::from_raw);
    // If the parent has ended, another process may have its number.
    if let Some(process) = predecessor.filter(|process| getppid() == Some(*process))
        && let Err(error) = kill_process(process, Signal::TERM)
    {
        tracing::error!(%error, "ending the previous process failed");
    }
}

/// Notifies the service manager that this process is about to end.
pub fn ending(successor: Option<u32>) {
    match successor {
        Some(process) => notify(&[NotifyState::MainPid(process)]),
        None => notify(&[NotifyState::Stopping]),
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "notifying the service manager failed");
    }
}
