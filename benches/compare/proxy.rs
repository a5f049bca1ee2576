//! Starts a proxy with a configuration of its own in a folder of its own, and stops it by its
//! process id whatever happens.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tollgate::clock::{Clock, Nanos};

use crate::Failure;
use crate::cpu::{Cores, family};
use crate::options::{Case, Subject};

const TOLLGATE: &str = env!("CARGO_BIN_EXE_tollgate");

/// How long a proxy may take to answer for the first time, and to stop.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// A rate that this load never reaches, per hour.
const NEVER: u32 = 1_000_000_000;

/// A running proxy; it ends with this value.
pub struct Proxy {
    subject: Subject,
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Proxy {
    /// Writes the configuration, starts the process and waits until it answers.
    pub fn start(
        subject: Subject,
        case: Case,
        upstream: SocketAddr,
        workers: usize,
        cores: &Cores,
    ) -> Result<Proxy, Failure> {
        let folder = tempfile::tempdir()?;
        let address = free_address()?;
        let mut command = match subject {
            Subject::Nginx => nginx(folder.path(), case, address, upstream, workers)?,
            Subject::Tollgate => tollgate(folder.path(), case, address, upstream, workers)?,
        };
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
        proxy.wait_until_it_answers()?;
        Ok(proxy)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it is.
    pub fn name(&self) -> &'static str {
        self.subject.name()
    }

    /// Its processes as they are now.
    pub fn processes(&self) -> Result<Vec<u32>, Failure> {
        family(self.child.id())
    }

    fn wait_until_it_answers(&mut self) -> Result<(), Failure> {
        let clock = Clock::system();
        let end = clock.now().after(PATIENCE);
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

    /// What it wrote.
    fn output(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        read("output") + &read("error.log")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let processes = self.processes().unwrap_or_else(|_| vec![self.child.id()]);
        signal(self.child.id(), Signal::TERM);
        let clock = Clock::system();
        let end = clock.now().after(PATIENCE);
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
}

fn signal(process: u32, signal: Signal) {
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(process, signal);
    }
}

/// A port that was free a moment ago.
fn free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The status line of one request.
fn first_status(address: SocketAddr) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: bench.example\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

/// A command whose process ends when this one is killed, where the system has the tool for it.
fn tied(program: &str) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        return Command::new(program);
    }
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "TERM", "--", program]);
    command
}

fn nginx(
    folder: &Path,
    case: Case,
    address: SocketAddr,
    upstream: SocketAddr,
    workers: usize,
) -> Result<Command, Failure> {
    let (rate, burst) = match case {
        Case::Proxied => (format!("{NEVER}r/s"), format!(" burst={NEVER} nodelay")),
        Case::Refused => ("1r/m".to_owned(), String::new()),
    };
    let mut text = format!(
        "daemon off;\npid nginx.pid;\nerror_log error.log crit;\nworker_processes {workers};\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  tcp_nodelay on;\n"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(text, "  {kind}_temp_path temp;")?;
    }
    write!(
        text,
        "  limit_req_zone $binary_remote_addr zone=per_ip:10m rate={rate};\n\
         \x20 limit_req_status 429;\n\
         \x20 upstream bench {{\n    server {upstream};\n    keepalive 128;\n\
         \x20   keepalive_requests 1000000000;\n  }}\n\
         \x20 server {{\n    listen {address};\n    location / {{\n\
         \x20     limit_req zone=per_ip{burst};\n\
         \x20     proxy_pass http://bench;\n\
         \x20     proxy_http_version 1.1;\n\
         \x20     proxy_set_header Host $host;\n\
         \x20     proxy_set_header Connection \"\";\n\
         \x20     proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         \x20   }}\n  }}\n}}\n"
    )?;
    fs::write(folder.join("nginx.conf"), text)?;
    let mut command = tied(nginx_program());
    command
        .arg("-p")
        .arg(folder)
        .args(["-c", "nginx.conf", "-e", "error.log"]);
    Ok(command)
}

fn tollgate(
    folder: &Path,
    case: Case,
    address: SocketAddr,
    upstream: SocketAddr,
    workers: usize,
) -> Result<Command, Failure> {
    let rate = match case {
        Case::Proxied => format!("{NEVER}/h"),
        Case::Refused => "1/h".to_owned(),
    };
    let gateway = format!(
        "version: 1\nworkers: {workers}\nlisten: [{address}]\nadmin: {}\naccess_log: off\n\
         policies: policies\nupstreams: {{ bench: [http://{upstream}] }}\n\
         identity: {{ token: {{ bearer: true }} }}\n",
        free_address()?
    );
    let policy = format!(
        "match: GET /**\nupstream: bench\nlimits:\n\
         \x20 per-ip: {{ key: ip, rate: {rate}, throttle: hard }}\n\
         \x20 per-token: {{ key: token, rate: {rate}, throttle: hard }}\n"
    );
    fs::write(folder.join("tollgate.yaml"), gateway)?;
    fs::create_dir(folder.join("policies"))?;
    fs::write(folder.join("policies/bench.yaml"), policy)?;
    let mut command = tied(TOLLGATE);
    command
        .arg("run")
        .arg("--config")
        .arg(folder.join("tollgate.yaml"));
    Ok(command)
}

/// Debian keeps nginx where only root's search path leads.
fn nginx_program() -> &'static str {
    const DEBIAN: &str = "/usr/sbin/nginx";
    if Path::new(DEBIAN).exists() {
        DEBIAN
    } else {
        "nginx"
    }
}

/// What a proxy says of its version.
pub fn version(subject: Subject) -> Result<String, Failure> {
    let (program, flag) = match subject {
        Subject::Nginx => (nginx_program(), "-v"),
        Subject::Tollgate => (TOLLGATE, "--version"),
    };
    let output = Command::new(program)
        .arg(flag)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned())
}

/// Cargo's target folder.
pub fn target_folder() -> Result<PathBuf, Failure> {
    let folder = Path::new(TOLLGATE).ancestors().nth(2);
    Ok(folder
        .ok_or("the program lies in no target folder")?
        .to_owned())
}
