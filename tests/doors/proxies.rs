//! Real proxies with the configurations of examples/doors: nginx, Caddy and HAProxy. Clients of each get exactly what the
//! limit admits, refusals with all fields, and in each failure of tollgate what the configuration says.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;

use rustix::process::Signal;

use super::common::child::{self, Guard, line_with, lines};
use super::common::redis::{Redis, free_port};
use super::common::{Client, Message, Upstream, wait_until};

/// What the limit of examples/doors admits in a minute.
const ADMITTED: usize = 40;
/// Clients that send requests at the same time, and how many each sends.
const CLIENTS: usize = 32;
const REQUESTS: usize = 4;

/// A proxy of which examples/doors has the configuration.
struct Kind {
    name: &'static str,
    /// The program and its arguments, in the folder of the configuration.
    command: &'static [&'static str],
    /// What clients get if tollgate does not listen, and if it is silent.
    away: u16,
    silent: u16,
    /// Whether the body of a refusal reaches the client.
    passes_body: bool,
}

const NGINX: Kind = Kind {
    name: "nginx.conf",
    command: &[
        "/usr/sbin/nginx",
        "-e",
        "stderr",
        "-p",
        ".",
        "-c",
        "nginx.conf",
    ],
    away: 500,
    silent: 500,
    passes_body: false,
};
const CADDY: Kind = Kind {
    name: "Caddyfile",
    command: &[
        "caddy",
        "run",
        "--config",
        "Caddyfile",
        "--adapter",
        "caddyfile",
    ],
    away: 502,
    silent: 504,
    passes_body: true,
};
const HAPROXY: Kind = Kind {
    name: "haproxy.cfg",
    command: &["/usr/sbin/haproxy", "-db", "-f", "haproxy.cfg"],
    away: 503,
    silent: 504,
    passes_body: true,
};

/// A proxy, the gateway that it asks, and the server behind it.
struct Scene {
    gateway: Guard,
    _proxy: Guard,
    server: Upstream,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Scene {
    /// Starts all with the files of examples/doors, on free ports. `more` is added to the gateway file.
    fn start(kind: &Kind, more: &str, limit: &str) -> Scene {
        Scene::with_change(kind, more, limit, &|_, text| text)
    }

    /// The same with a change of each file, by its name.
    fn with_change(
        kind: &Kind,
        more: &str,
        limit: &str,
        change_file: &dyn Fn(&str, String) -> String,
    ) -> Scene {
        let server = Upstream::plain();
        let folder = tempfile::tempdir().unwrap();
        let (door, clients) = (free_port(), free_port());
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/doors");
        let copy = |name: &str| {
            let text = std::fs::read_to_string(examples.join(name)).unwrap();
            let text = text
                .replace("127.0.0.1:8082", &format!("127.0.0.1:{door}"))
                .replace("127.0.0.1:8080", &format!("127.0.0.1:{clients}"))
                .replace("http://:8080", &format!("http://:{clients}"))
                .replace("127.0.0.1:3000", &server.address.to_string());
            let text = change_file(name, text);
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        std::fs::create_dir(folder.path().join("policies")).unwrap();
        for name in [
            "tollgate.yaml",
            "policies/api.yaml",
            "tollgate.lua",
            kind.name,
        ] {
            copy(name);
        }
        let change = |name: &str, change: &dyn Fn(String) -> String| {
            let path = folder.path().join(name);
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(path, change(text)).unwrap();
        };
        change("tollgate.yaml", &|text| {
            format!("{text}admin: off\naccess_log: off\nworkers: 2\n{more}")
        });
        change("policies/api.yaml", &|text| {
            text.replace("rate: 40/m", limit)
        });
        let gateway = start_gateway(folder.path());
        let mut command = child::program(kind.command[0], folder.path(), &kind.command[1..]);
        if kind.name == NGINX.name {
            // Debian's nginx has paths of its own, which a user other than root cannot write.
            let temporary = "pid nginx.pid;\nerror_log stderr;\ndaemon off;\nmaster_process off;\n";
            change("nginx.conf", &|text| {
                let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|name| format!("    {name}_temp_path {name};\n"))
                    .concat();
                format!(
                    "{temporary}{}",
                    text.replace(
                        "http {\n",
                        &format!("http {{\n    access_log off;\n{paths}")
                    )
                )
            });
        }
        command.env("HOME", folder.path());
        let mut proxy = Guard(command.spawn().unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], clients));
        let said = proxy.said();
        wait_until("the proxy listens", || {
            if let Ok(Some(status)) = proxy.0.try_wait() {
                let said: Vec<String> = said.try_iter().collect();
                panic!("{}: {status}\n{}", kind.name, said.join("\n"));
            }
            TcpStream::connect(address).is_ok()
        });
        Scene {
            gateway,
            _proxy: proxy,
            server,
            address,
            folder,
        }
    }

    fn get(&self, fields: &str) -> Message {
        let mut client = Client::connect(self.address);
        client.send(format!(
            "GET /a?b HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"
        ));
        client.answer()
    }

    /// The statuses of all requests of many clients at once, sorted.
    fn storm(&self) -> Vec<u16> {
        let address = self.address;
        let clients = (0..CLIENTS).map(|number| {
            thread::spawn(move || {
                let ask = |_| {
                    let mut client = Client::connect(address);
                    // What clients send of the description must not matter.
                    client.send(format!(
                        "GET /{number} HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 192.0.2.{number}\r\n\r\n"
                    ));
                    client.answer().status()
                };
                (0..REQUESTS).map(ask).collect::<Vec<u16>>()
            })
        });
        let clients: Vec<_> = clients.collect();
        let statuses = clients
            .into_iter()
            .flat_map(|client| client.join().unwrap());
        let mut statuses: Vec<u16> = statuses.collect();
        statuses.sort_unstable();
        statuses
    }
}

fn start_gateway(folder: &Path) -> Guard {
    let mut gateway = Guard(
        child::command(folder, &["run", "--config", "tollgate.yaml"])
            .spawn()
            .unwrap(),
    );
    let said = lines(gateway.0.stderr.take().unwrap());
    line_with(&said, "HTTP checks on");
    gateway
}

fn check(kind: &Kind) {
    let mut scene = Scene::start(kind, "", "rate: 40/m");
    let statuses = scene.storm();
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(admitted, ADMITTED, "{statuses:?}");
    assert!(
        statuses[ADMITTED..].iter().all(|status| *status == 429),
        "{statuses:?}"
    );
    assert_eq!(scene.server.drain().len(), ADMITTED);
    let refused = scene.get("");
    assert_eq!(refused.status(), 429);
    for name in ["retry-after", "ratelimit", "ratelimit-policy"] {
        assert!(
            refused.field(name).is_some_and(|value| !value.is_empty()),
            "{name}: {refused:?}"
        );
    }
    if kind.passes_body {
        assert_eq!(
            refused.field("content-type"),
            Some("application/problem+json")
        );
        assert!(refused.text().contains("per-ip"), "{}", refused.text());
    }
    // Tollgate is silent.
    scene.gateway.signal(Signal::STOP);
    let state = format!("/proc/{}/stat", scene.gateway.0.id());
    wait_until("the gateway stands still", || {
        let state = std::fs::read_to_string(&state).unwrap();
        state.rsplit_once(") ").unwrap().1.starts_with('T')
    });
    assert_eq!(scene.get("").status(), kind.silent);
    scene.gateway.signal(Signal::CONT);
    // Tollgate has ended, and comes back.
    scene.gateway.signal(Signal::KILL);
    scene.gateway.ended();
    assert_eq!(scene.get("").status(), kind.away);
    assert!(scene.server.drain().is_empty());
    scene.gateway = start_gateway(scene.folder.path());
    wait_until("the proxy asks again", || scene.get("").status() == 200);
}

/// Without the store nothing is admitted where the limit says so, and a share of it by default.
fn check_store(kind: &Kind) {
    let mut redis = Redis::start();
    let more = format!("store: {{ address: \"{}\", budget: 1s }}\n", redis.url());
    let scene = Scene::start(kind, &more, "rate: 40/m, on_store_error: closed");
    wait_until("the store decides", || scene.get("").status() == 200);
    redis.kill();
    wait_until("nothing is admitted", || scene.get("").status() == 429);
    assert!(scene.get("").field("retry-after").is_some());
}

#[test]
fn nginx_asks() {
    check(&NGINX);
}

#[test]
fn nginx_asks_without_the_store() {
    check_store(&NGINX);
}

#[test]
fn caddy_asks() {
    check(&CADDY);
}

#[test]
fn caddy_asks_without_the_store() {
    check_store(&CADDY);
}

#[test]
fn haproxy_asks() {
    check(&HAPROXY);
}

/// An error in Lua ends no request by itself, and HAProxy has room for 101 fields.
#[test]
fn haproxy_admits_nothing_by_an_error() {
    let scene = Scene::start(&HAPROXY, "", "rate: 40/m");
    for count in [85, 91, 95, 98] {
        let fields: String = (0..count)
            .map(|number| format!("x-{number}: a\r\n"))
            .collect();
        let status = scene.get(&fields).status();
        let is_admitted = status == 200;
        assert_eq!(is_admitted, scene.server.drain().len() == 1);
        assert_eq!(is_admitted, count == 85, "{count}: {status}");
    }
    let break_lua = |name: &str, text: String| match name {
        "tollgate.lua" => text.replace("headers, count = {}, 0", "headers, count = {}, nil"),
        _ => text,
    };
    let scene = Scene::with_change(&HAPROXY, "", "rate: 40/m", &break_lua);
    assert_eq!(scene.get("").status(), 503);
    assert!(scene.server.drain().is_empty());
}

#[test]
fn haproxy_asks_without_the_store() {
    check_store(&HAPROXY);
}
