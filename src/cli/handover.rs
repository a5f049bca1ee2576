//! Another process in place of this one: it gets the listening sockets as systemd passes them, so that what
//! waits in their queues is served by one or the other, and ends this one when it serves.

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

/// The process that passed its sockets on.
const PREDECESSOR: &str = "TOLLGATE_PREDECESSOR";

/// The first descriptor that is passed: `sd_listen_fds(3)`.
const FIRST_DESCRIPTOR: i32 = 3;

/// Knows how to start this program again, as it was started, from the same place: what stands there now may
/// be a newer one.
pub struct Starter {
    program: PathBuf,
    successor: Option<Child>,
}

impl Starter {
    /// To be made when the process starts.
    pub fn new() -> io::Result<Starter> {
        Ok(Starter {
            program: env::current_exe()?,
            successor: None,
        })
    }

    /// Starts the other process with these sockets, and with the files of theirs that it is to remove at its end.
    pub fn start(&mut self, sockets: Vec<Socket>, files: &[Arc<Path>]) -> io::Result<()> {
        if std::process::id() == 1 {
            let message = "the first process of a container takes all others with it when it ends";
            return Err(io::Error::other(message));
        }
        if self.successor.is_some() {
            return Err(io::Error::other("one has been started already"));
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
            // Only the child knows its number.
            .env("LISTEN_PID", "")
            .env(SOCKET_FILES, files)
            .env(PREDECESSOR, std::process::id().to_string())
            .fd_mappings(mapped)
            .map_err(io::Error::other)?;
        self.successor = Some(command.spawn()?);
        Ok(())
    }

    /// Says so when the other process has ended instead of serving.
    pub fn check_successor(&mut self) {
        let ended = |child: &mut Child| child.try_wait().ok().flatten();
        if let Some(status) = self.successor.as_mut().and_then(ended) {
            self.successor = None;
            tracing::error!(%status, "the new process ended; this one goes on");
        }
    }

    /// The process that has taken over, if it was not told otherwise to end.
    pub fn successor(&mut self) -> Option<u32> {
        self.check_successor();
        self.successor.as_ref().map(Child::id)
    }
}

/// Tells whoever waits for it that this process serves: the one that it replaces, and the service manager.
pub fn ready() {
    notify(&[NotifyState::Ready]);
    let predecessor = env::var(PREDECESSOR)
        .ok()
        .and_then(|text| text.parse().ok());
    let predecessor = predecessor.and_then(Pid::from_raw);
    // Once it has ended, its number may be another's.
    if let Some(process) = predecessor.filter(|process| getppid() == Some(*process))
        && let Err(error) = kill_process(process, Signal::TERM)
    {
        tracing::error!(%error, "the process before this one cannot be told to end");
    }
}

/// Tells the service manager that this process is about to end.
pub fn ending(successor: Option<u32>) {
    match successor {
        Some(process) => notify(&[NotifyState::MainPid(process)]),
        None => notify(&[NotifyState::Stopping]),
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
