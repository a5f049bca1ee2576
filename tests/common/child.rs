//! The binary as a child process that runs to its end, or serves until a signal ends it. Every child is killed when its
//! value is dropped.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use super::{Client, MAX_WAIT, Message, wait_until};

/// The binary with these arguments, in this folder. `TOLLGATE_LOG` is not set, so it logs plain text.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_tollgate"), folder, arguments)
}

/// Any program, started as [`command`] starts the binary.
pub fn program(name: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command
        .args(arguments)
        .current_dir(folder)
        .env_remove("TOLLGATE_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The exit code and the output of a child that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs the binary to its end. Panics if it does not end in time.
pub fn run(folder: &Path, arguments: &[&str]) -> Ended {
    finish(&mut command(folder, arguments))
}

/// Runs a command to its end, as [`run`] does.
pub fn finish(command: &mut Command) -> Ended {
    let mut child = Guard(command.spawn().unwrap());
    let read = |mut from: Box<dyn Read + Send>| {
        thread::spawn(move || {
            let mut text = String::new();
            from.read_to_string(&mut text).unwrap();
            text
        })
    };
    let out = read(Box::new(child.0.stdout.take().unwrap()));
    let err = read(Box::new(child.0.stderr.take().unwrap()));
    let code = child.ended().code();
    Ended {
        code,
        out: out.join().unwrap(),
        err: err.join().unwrap(),
    }
}

/// Kills the child when it is dropped.
pub struct Guard(pub Child);

impl Guard {
    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// The lines of standard output and standard error, as they arrive. Both must be pipes that nobody reads.
    pub fn said(&mut self) -> Receiver<String> {
        let (send, said) = channel();
        let out = lines(self.0.stdout.take().unwrap());
        let err = lines(self.0.stderr.take().unwrap());
        for lines in [out, err] {
            let send = send.clone();
            thread::spawn(move || lines.iter().try_for_each(|line| send.send(line)));
        }
        said
    }

    /// Waits for the child's end. Panics if it does not end in time.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the child ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Both fail if the child has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `tollgate run` in a process of its own.
pub struct Server {
    child: Guard,
    /// The address for clients.
    pub address: SocketAddr,
    /// The address of the admin listener.
    pub admin: Option<SocketAddr>,
    /// Lines of standard output.
    pub out: Receiver<String>,
    /// Lines of standard error before the one that names the listener.
    pub early: Vec<String>,
    /// Lines of standard error after those that name the listeners.
    pub err: Receiver<String>,
}

impl Server {
    /// Runs a gateway with `tollgate.yaml` of a folder. Returns when it listens for clients and, with `admin`, for
    /// operators too.
    pub fn start(folder: &Path, admin: bool) -> Server {
        let mut command = command(folder, &["run", "--config", "tollgate.yaml"]);
        Server::of(&mut command, admin)
    }

    /// Runs this command as [`Server::start`] does.
    pub fn of(command: &mut Command, admin: bool) -> Server {
        let mut child = Guard(command.spawn().unwrap());
        let out = lines(child.0.stdout.take().unwrap());
        let err = lines(child.0.stderr.take().unwrap());
        let mut early = Vec::new();
        let listening = line_after(&err, "listening on http://", &mut early);
        let address = address(&listening);
        let admin = admin.then(|| self::address(&line_with(&err, "admin on http://")));
        Server {
            child,
            address,
            admin,
            out,
            early,
            err,
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// A connection of a client.
    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends a request to the admin listener over a new connection, and reads the response.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Message {
        self.ask_with(method, path, "", body)
    }

    /// Does the same as [`Server::ask`] with more fields, each ended by CRLF. One of them may be `host`. A body is JSON unless
    /// one of them is `content-type`.
    pub fn ask_with(&self, method: &str, path: &str, fields: &str, body: &str) -> Message {
        let admin = self.admin.unwrap();
        let host = if fields.contains("host:") {
            String::new()
        } else {
            format!("host: {admin}\r\n")
        };
        let kind = if body.is_empty() || fields.contains("content-type:") {
            ""
        } else {
            "content-type: application/json\r\n"
        };
        let length = body.len();
        let mut client = Client::connect(admin);
        client.send(format!(
            "{method} {path} HTTP/1.1\r\n{host}{kind}{fields}content-length: {length}\r\n\r\n{body}"
        ));
        client.answer()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Waits for the gateway's end, and returns the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.ended().code()
    }
}

/// The lines of a stream, as they arrive.
pub fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // Lines are read even if no test receives them any more, so that the child never blocks.
            let _ = send.send(line);
        }
    });
    lines
}

/// Waits for the next line that contains a text, and skips those before it.
#[track_caller]
pub fn line_with(lines: &Receiver<String>, text: &str) -> String {
    line_after(lines, text, &mut Vec::new())
}

#[track_caller]
fn line_after(lines: &Receiver<String>, text: &str, skipped: &mut Vec<String>) -> String {
    loop {
        match lines.recv_timeout(MAX_WAIT) {
            Ok(line) if line.contains(text) => return line,
            Ok(line) => skipped.push(line),
            Err(_) => panic!("no line with `{text}` among {skipped:#?}"),
        }
    }
}

fn address(line: &str) -> SocketAddr {
    line.rsplit("http://").next().unwrap().parse().unwrap()
}
