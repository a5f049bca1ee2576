//! Starts a proxy with a configuration of its own in a folder of its own, and stops it by its
//! process id whatever happens.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tollgate::base::clock::{Clock, Nanos};

use crate::Failure;
use crate::case::Case;
use crate::config::{ProxySetup, free_address, proxy_command};
use crate::cpu::{Cores, process_tree};
use crate::options::Subject;
use crate::shape::Shape;

/// The longest time until a proxy responds for the first time, and until it stops. It is long because callgrind makes
/// proxies slow.
const PROXY_TIMEOUT: Nanos = Nanos::from_secs(60);

/// The program that runs the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Under {
    /// No program: the proxy runs by itself.
    Nothing,
    /// valgrind, which counts instructions and writes them to files in the proxy's folder.
    Callgrind,
}

/// A running proxy. It is stopped when this value is dropped.
pub struct Proxy {
    subject: Subject,
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Proxy {
    /// Writes the configuration, starts the process and waits until it responds.
    pub fn start(
        subject: Subject,
        case: Case,
        upstream: SocketAddr,
        shape: Shape,
        cores: &Cores,
        under: Under,
    ) -> Result<Proxy, Failure> {
        let folder = tempfile::tempdir()?;
        let address = free_address()?;
        let setup = ProxySetup {
            folder: folder.path(),
            case,
            address,
            upstream,
            shape,
        };
        let mut command = tied_command(&proxy_command(subject, &setup)?, under, folder.path());
        let output = File::create(folder.path().join("output"))?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let started = cores.on_proxy(|| command.spawn())?;
        let child = started.map_err(|e| format!("cannot start {}: {e}", subject.name()))?;
        let mut proxy = Proxy {
            subject,
            child,
            address,
            folder,
        };
        proxy.wait_until_ready()?;
        Ok(proxy)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name of the proxy in the report.
    pub fn name(&self) -> &'static str {
        self.subject.name()
    }

    /// The ids of its processes as they are now.
    pub fn processes(&self) -> Result<Vec<u32>, Failure> {
        process_tree(self.child.id())
    }

    /// Stops the proxy. Its folder stays until the value is dropped.
    pub fn stop(&mut self) {
        let processes = self.processes().unwrap_or_else(|_| vec![self.child.id()]);
        signal(self.child.id(), Signal::TERM);
        let clock = Clock::system();
        let end = clock.now().after(PROXY_TIMEOUT);
        while clock.now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            for process in processes {
                signal(process, Signal::KILL);
            }
            let _ = self.child.wait();
        }
    }

    /// The folder that it runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let clock = Clock::system();
        let end = clock.now().after(PROXY_TIMEOUT);
        let mut last = String::new();
        while clock.now() < end {
            if let Some(status) = self.child.try_wait()? {
                let why = format!("{} ended with {status}:\n{}", self.name(), self.output());
                return Err(why.into());
            }
            match first_status(self.address) {
                // The first request may be the one that the limit of the refused case admits.
                Ok(status) if status.contains(" 200 ") || status.contains(" 429 ") => return Ok(()),
                Ok(status) => last = format!("it answers `{status}`"),
                Err(failure) => last = failure.to_string(),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{} is not ready: {last}\n{}", self.name(), self.output()).into())
    }

    /// The text that it wrote to its output and its error log.
    fn output(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        read("output") + &read("error.log")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.stop();
        }
    }
}

/// Sends a signal to a process, which may have ended.
pub fn signal(process: u32, signal: Signal) {
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(process, signal);
    }
}

/// Sends one request, and returns the status line of the response.
fn first_status(address: SocketAddr) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: bench.example\r\nconnection: close\r\n\r\n")?;
    let mut response = [0; 1024];
    let length = stream.read(&mut response)?;
    let text = String::from_utf8_lossy(&response[..length]);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Wraps a command so that its process ends when this one is killed, where the system has the tool for it. Under
/// callgrind the command also counts instructions.
fn tied_command(command: &Command, under: Under, folder: &Path) -> Command {
    let mut words = Vec::new();
    if Path::new("/usr/bin/setpriv").exists() {
        words.extend(["setpriv", "--pdeathsig", "TERM", "--"].map(String::from));
    }
    if under == Under::Callgrind {
        let file = folder.join("callgrind.%p");
        let file = format!("--callgrind-out-file={}", file.display());
        words.extend(["valgrind", "-q", "--tool=callgrind", &file].map(String::from));
    }
    let program = command.get_program().to_os_string();
    let mut words = words.into_iter().map(Into::into).chain([program]);
    let mut tied = Command::new(words.next().unwrap_or_default());
    tied.args(words).args(command.get_args());
    tied
}
