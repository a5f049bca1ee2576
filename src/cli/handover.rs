//! Starts a successor of this process, and lets the successor end its predecessor, so that no connection is refused.
//! `run.rs` decides when. Also notifies the service manager.
//!
//! The successor inherits the listening sockets in the way in which systemd passes them. So each queued connection is
//! served by one of the two processes. The successor also gets the fetched key sets of issuers, on its standard input.
//! Once it serves, it ends its predecessor.

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Pid, Signal, getppid, kill_process};
use sd_notify::NotifyState;
use socket2::Socket;

use crate::app::PassedKeySets;
use crate::serve::worker::inherited_sockets::SOCKET_FILES_VARIABLE;

/// The environment variable with the id of the process that passed its sockets on.
const PREDECESSOR_VARIABLE: &str = "TOLLGATE_PREDECESSOR";

/// The environment variable that is set if the key sets of the predecessor come on the standard input.
const KEY_SETS_VARIABLE: &str = "TOLLGATE_KEY_SETS";

/// The number of the first passed file descriptor: see `sd_listen_fds(3)`.
const FIRST_PASSED_DESCRIPTOR: i32 = 3;

/// Starts a successor: the program at the path of this one, with the same arguments. A newer version may have replaced
/// the file at this path.
pub struct SuccessorStarter {
    /// The path of the program that this process runs.
    program: PathBuf,
    /// The successor; `None` before its start, and once it has ended.
    successor: Option<Child>,
}

impl SuccessorStarter {
    /// Looks up the path of this program. Must be called at the start of the process, before the file there can change.
    ///
    /// # Errors
    ///
    /// The operating system cannot tell the path.
    pub fn new() -> io::Result<SuccessorStarter> {
        Ok(SuccessorStarter {
            program: env::current_exe()?,
            successor: None,
        })
    }

    /// Starts the successor with these sockets, with the socket files that it must remove at its end, and with key
    /// sets.
    ///
    /// # Errors
    ///
    /// A successor was started already and has not been seen to end, this is the first process of a container, or the
    /// start fails. If only the thread that passes the key sets on cannot be started, the successor runs nevertheless.
    pub fn start(
        &mut self,
        sockets: Vec<Socket>,
        socket_files: &[Arc<Path>],
        key_sets: PassedKeySets,
    ) -> io::Result<()> {
        if std::process::id() == 1 {
            let message = "the first process of a container cannot be replaced, because its end ends the container";
            return Err(io::Error::other(message));
        }
        if self.successor.is_some() {
            return Err(io::Error::other("a new process has been started already"));
        }
        let fd_mappings = (FIRST_PASSED_DESCRIPTOR..)
            .zip(sockets)
            .map(|(child_fd, socket)| FdMapping {
                parent_fd: OwnedFd::from(socket),
                child_fd,
            });
        let socket_files = socket_files.iter().map(|path| &**path);
        let socket_files = env::join_paths(socket_files).map_err(io::Error::other)?;
        let fd_mappings: Vec<FdMapping> = fd_mappings.collect();
        let mut command = Command::new(&self.program);
        command
            .args(env::args_os().skip(1))
            .env("LISTEN_FDS", fd_mappings.len().to_string())
            // The parent does not know the id of the child yet, and the child accepts an empty text.
            .env("LISTEN_PID", "")
            .env(SOCKET_FILES_VARIABLE, socket_files)
            .env(PREDECESSOR_VARIABLE, std::process::id().to_string())
            .fd_mappings(fd_mappings)
            .map_err(io::Error::other)?;
        if key_sets.is_empty() {
            command.env_remove(KEY_SETS_VARIABLE);
        } else {
            command.env(KEY_SETS_VARIABLE, "1").stdin(Stdio::piped());
        }
        let successor = self.successor.insert(command.spawn()?);
        if let Some(mut stdin) = successor.stdin.take() {
            // A long set fills the pipe until the new process reads it, which it does before it serves.
            let pass_on = move || {
                if let Err(error) = key_sets.write(&mut stdin) {
                    tracing::warn!(%error, "passing the key sets on to the new process failed");
                }
            };
            thread::Builder::new()
                .name("key-sets-out".into())
                .spawn(pass_on)?;
        }
        Ok(())
    }

    /// Logs an error if the successor has ended instead of taking over. Another one may be started then.
    pub fn check_successor(&mut self) {
        let exit_status = |child: &mut Child| child.try_wait().ok().flatten();
        if let Some(status) = self.successor.as_mut().and_then(exit_status) {
            self.successor = None;
            tracing::error!(%status, "the new process ended; this one goes on");
        }
    }

    /// The id of the successor; `None` unless one was started and still runs. Also does what
    /// [`SuccessorStarter::check_successor`] does.
    pub fn successor_id(&mut self) -> Option<u32> {
        self.check_successor();
        self.successor.as_ref().map(Child::id)
    }
}

/// Reads the key sets of the predecessor, and waits until it has written all. Empty if there is no predecessor, or if
/// it has none. Also empty if they cannot be read, which is logged.
pub fn read_key_sets() -> PassedKeySets {
    if env::var_os(KEY_SETS_VARIABLE).is_none() {
        return PassedKeySets::default();
    }
    PassedKeySets::read(io::stdin().lock()).unwrap_or_else(|error| {
        tracing::warn!(%error, "reading the key sets of the previous process failed; no token verifies until they are fetched");
        PassedKeySets::default()
    })
}

/// Notifies the service manager that this process serves, and sends SIGTERM to the predecessor if there is one.
pub fn announce_ready() {
    notify(&[NotifyState::Ready]);
    let predecessor = env::var(PREDECESSOR_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok());
    let predecessor = predecessor.and_then(Pid::from_raw);
    // If the predecessor has ended, another process may have its id. Then it is not the parent any more.
    if let Some(process) = predecessor.filter(|process| getppid() == Some(*process))
        && let Err(error) = kill_process(process, Signal::TERM)
    {
        tracing::error!(%error, "ending the previous process failed");
    }
}

/// Notifies the service manager that this process is about to end, or that the successor with this id replaces it.
pub fn announce_end(successor_id: Option<u32>) {
    match successor_id {
        Some(id) => notify(&[NotifyState::MainPid(id)]),
        None => notify(&[NotifyState::Stopping]),
    }
}

/// Notifies the service manager, if there is one; a failure is only logged.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "notifying the service manager failed");
    }
}
