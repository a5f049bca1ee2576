//! The six frameworks: how each is started, and what it needs.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::Receiver;

use tempfile::TempDir;

use crate::common::MAX_WAIT;
use crate::common::child::{Guard, finish, program};

/// What tokens of users are signed with.
pub const SECRET: &str = "a secret of more than thirty-two bytes";

/// A framework that serves; it ends when this is dropped.
pub struct App {
    pub name: &'static str,
    pub address: SocketAddr,
    /// Path of the login handler.
    pub login: &'static str,
    /// Path of the report handler.
    pub report: &'static str,
    _child: Guard,
    _folder: TempDir,
}

impl App {
    pub fn express() -> App {
        App::start("express", "nodejs npm", |_| {
            let mut command = script("node", "express.cjs");
            command.env("NODE_PATH", root().join("target/node/node_modules"));
            command
        })
    }

    pub fn php() -> App {
        let app = App::start("php", "php-cli", |folder| {
            let put = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
            let site = scripts().join("site.php");
            for name in ["index.php", "login.php", "report.php"] {
                put(name, &format!("<?php require {:?};\n", site.display()));
            }
            let folder = folder.to_str().unwrap();
            // Without a `php.ini`, as in its usual image: cookies are among what `$_REQUEST` has.
            let settings = ["-n", "-d", "display_errors=0"];
            let serve = ["-S", "127.0.0.1:0", "-t", folder];
            command("php", &[&settings[..], &serve].concat())
        });
        App {
            login: "/login.php",
            report: "/report.php",
            ..app
        }
    }

    pub fn django() -> App {
        let packages = "python3-django python3-waitress python3-jwt";
        App::start("django", packages, |_| {
            script("/usr/bin/python3", "django_app.py")
        })
    }

    pub fn starlette() -> App {
        let packages = "python3-starlette python3-uvicorn python3-multipart python3-jwt";
        App::start("starlette", packages, |_| {
            script("/usr/bin/python3", "starlette_app.py")
        })
    }

    pub fn go() -> App {
        let packages = "golang-go golang-github-golang-jwt-jwt-dev";
        App::start("go", packages, |folder| {
            let program = folder.join("server");
            let program = program.to_str().unwrap();
            let source = scripts().join("server.go");
            let source = source.to_str().unwrap();
            let mut build = command("go", &["build", "-o", program, source]);
            build
                .env("GO111MODULE", "off")
                .env("GOPATH", "/usr/share/gocode")
                .env("GOCACHE", root().join("target/go"));
            let ended = finish(&mut build);
            assert_eq!(ended.code, Some(0), "{}{}", ended.err, cure(packages));
            command(program, &[])
        })
    }

    pub fn rack() -> App {
        let packages = "ruby ruby-rack ruby-jwt puma";
        App::start("rack", packages, |_| script("ruby", "rack_app.rb"))
    }

    fn start(name: &'static str, packages: &str, serve: impl FnOnce(&Path) -> Command) -> App {
        let folder = tempfile::tempdir().unwrap();
        let mut command = serve(folder.path());
        let child = command.spawn();
        let child = child.unwrap_or_else(|e| panic!("{command:?}: {e}{}", cure(packages)));
        let mut child = Guard(child);
        // PHP says on its standard error where it listens, the others on their standard output.
        let said = child.said();
        let port = port(&said).unwrap_or_else(|said| {
            panic!("{name} does not listen:\n{said}{}", cure(packages));
        });
        App {
            name,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            login: "/login",
            report: "/report",
            _child: child,
            _folder: folder,
        }
    }
}

/// The port in what a program says; all that it said when there is none.
fn port(said: &Receiver<String>) -> Result<u16, String> {
    let mut lines = String::new();
    while let Ok(line) = said.recv_timeout(MAX_WAIT) {
        let behind = line
            .strip_prefix("listening ")
            .or_else(|| line.split("(http://127.0.0.1:").nth(1)?.split(')').next());
        if let Some(port) = behind.and_then(|port| port.parse().ok()) {
            return Ok(port);
        }
        lines.push_str(&line);
        lines.push('\n');
    }
    Err(lines)
}

fn cure(packages: &str) -> String {
    format!("\nrun `make tools` or `apt-get install {packages}`")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scripts() -> PathBuf {
    root().join("tests/frameworks")
}

fn script(name: &str, file: &str) -> Command {
    command(name, &[scripts().join(file).to_str().unwrap()])
}

fn command(name: &str, arguments: &[&str]) -> Command {
    let mut command = program(name, root(), arguments);
    command
        .env("SECRET", SECRET)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("PYTHONPATH");
    command
}
