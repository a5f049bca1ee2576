//! Real stores: a `redis-server` or `valkey-server` on a free port of the loopback. It is killed when its value is
//! dropped.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::child::Guard;
use super::wait_until;

/// A running server.
pub struct Redis {
    program: PathBuf,
    child: Guard,
    folder: TempDir,
    arguments: Vec<String>,
    pub port: u16,
}

/// A port on which no process listens.
pub fn free_port() -> u16 {
    free_ports(&[0])
}

/// A free port `p` for which `p + 10000` is free too.
pub fn free_ports_of_two() -> u16 {
    free_ports(&[0, 10_000])
}

/// A port for which all these ports above it are free. It is below the range of ephemeral ports, or a connection might
/// take it before the server does.
fn free_ports(above: &[u16]) -> u16 {
    loop {
        let mut number = [0; 2];
        getrandom::fill(&mut number).unwrap();
        let port = 10_000 + u16::from_le_bytes(number) % 12_000;
        if above
            .iter()
            .all(|above| TcpListener::bind(("127.0.0.1", port + above)).is_ok())
        {
            return port;
        }
    }
}

impl Redis {
    /// Starts a Redis without persistence.
    pub fn start() -> Redis {
        Redis::with(&[])
    }

    /// Starts a Valkey: the system's, or the one that `make tools` has put beside the build.
    pub fn valkey() -> Redis {
        let folders = env::var_os("PATH").unwrap_or_default();
        let mut named = env::split_paths(&folders).map(|folder| folder.join("valkey-server"));
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/valkey/valkey-server");
        let program = named.find(|path| path.exists()).unwrap_or(beside);
        assert!(
            program.exists(),
            "no valkey-server: `make tools` installs it"
        );
        Redis::of(
            program,
            tempfile::tempdir().unwrap(),
            free_port(),
            Vec::new(),
        )
    }

    /// Starts a Redis with more arguments.
    pub fn with(arguments: &[&str]) -> Redis {
        Redis::on(free_port(), arguments)
    }

    /// Starts a Redis on this port.
    pub fn on(port: u16, arguments: &[&str]) -> Redis {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        Redis::in_folder(tempfile::tempdir().unwrap(), port, arguments)
    }

    /// Starts a Redis in this folder, whose files it may use.
    pub fn in_folder(folder: TempDir, port: u16, arguments: Vec<String>) -> Redis {
        Redis::of(PathBuf::from("redis-server"), folder, port, arguments)
    }

    fn of(program: PathBuf, folder: TempDir, port: u16, arguments: Vec<String>) -> Redis {
        let child = spawn(&program, port, folder.path(), &arguments);
        Redis {
            program,
            child,
            folder,
            arguments,
            port,
        }
    }

    /// The address as configurations write it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends one command with the words of `text`, and returns the reply as it came.
    pub fn ask(&self, text: &str) -> String {
        ask(self.port, text).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Kills the server. Its data is lost.
    pub fn kill(&mut self) {
        self.child.signal(Signal::KILL);
        self.child.ended();
    }

    /// Starts the server again on the same port, without data.
    pub fn revive(&mut self) {
        self.child = spawn(
            &self.program,
            self.port,
            self.folder.path(),
            &self.arguments,
        );
    }

    /// The number of script calls so far.
    pub fn scripts(&self) -> u64 {
        let info = self.ask("INFO commandstats");
        let of = |line: &str| {
            let rest = line.strip_prefix("cmdstat_eval")?;
            let calls = rest.split_once("calls=")?.1.split(',').next()?;
            calls.parse::<u64>().ok()
        };
        info.lines().filter_map(of).sum()
    }

    /// The number with this name in the reply to `INFO`.
    pub fn info(&self, name: &str) -> u64 {
        let info = self.ask("INFO everything");
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().trim().parse().unwrap()
    }
}

/// Sends one inline command to a server, and returns the reply as it came.
pub fn ask(port: u16, text: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(format!("{text}\r\n").as_bytes())?;
    let mut answer = Vec::new();
    read(&mut BufReader::new(stream), &mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn read(from: &mut impl BufRead, answer: &mut Vec<u8>) -> std::io::Result<()> {
    let start = answer.len();
    from.read_until(b'\n', answer)?;
    let line = String::from_utf8_lossy(&answer[start..]).into_owned();
    let count = || line[1..].trim().parse::<usize>().unwrap_or(0);
    match line.bytes().next() {
        Some(b'$') if !line.starts_with("$-") => {
            let mut text = vec![0; count() + 2];
            from.read_exact(&mut text)?;
            answer.extend(text);
        }
        Some(b'*') => {
            for _ in 0..count() {
                read(from, answer)?;
            }
        }
        Some(_) => {}
        None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
    Ok(())
}

fn spawn(program: &Path, port: u16, folder: &Path, arguments: &[String]) -> Guard {
    let mut command = Command::new(program);
    if arguments.iter().any(|argument| argument == "--sentinel") {
        // A sentinel keeps its state in its file, which must be the first argument.
        command.arg("sentinel.conf");
    } else {
        command.args(["--save", "", "--appendonly", "no"]);
    }
    command
        .args(["--bind", "127.0.0.1", "--loglevel", "warning"])
        .args(["--port", &port.to_string()])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = Guard(command.spawn().unwrap());
    wait_until("the store answers", || {
        let tls = arguments.iter().any(|argument| argument == "--tls-port");
        tls || ask(port, "PING").is_ok_and(|answer| {
            ["PONG", "NOAUTH", "LOADING", "MASTERDOWN"]
                .iter()
                .any(|word| answer.contains(word))
        })
    });
    child
}
