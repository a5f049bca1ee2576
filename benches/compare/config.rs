//! The configuration of each proxy: one worker or more, its limiter on, and `X-Forwarded-For` added. No proxy writes a
//! log, except tollgate's log of refused requests.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::case::Case;
use crate::floor::FloorTask;
use crate::options::Subject;
use crate::shape::Shape;

const TOLLGATE: &str = env!("CARGO_BIN_EXE_tollgate");

/// A rate that the load never reaches. Each proxy counts it in its own unit of time.
const UNREACHED_RATE: u32 = 1_000_000_000;

/// The most connections that tollgate accepts: more than any client here opens.
const MAX_CONNECTIONS: usize = 10_100;

/// The parameters of a proxy's configuration.
pub struct ProxySetup<'a> {
    /// The folder for the proxy's files.
    pub folder: &'a Path,
    pub case: Case,
    /// The address to listen on.
    pub address: SocketAddr,
    /// The address that requests are forwarded to.
    pub upstream: SocketAddr,
    pub shape: Shape,
}

impl ProxySetup<'_> {
    fn has_many_addresses(&self) -> bool {
        self.case == Case::Addresses
    }

    fn is_refused(&self) -> bool {
        self.case == Case::Refused
    }
}

/// Writes the files that a proxy reads, and returns the command that starts it.
pub fn proxy_command(subject: Subject, setup: &ProxySetup) -> Result<Command, Failure> {
    match subject {
        Subject::Nginx => nginx(setup),
        Subject::Haproxy => haproxy(setup),
        Subject::Envoy => envoy(setup),
        Subject::Floor => floor(setup),
        Subject::Tollgate => tollgate(setup, "refused"),
        Subject::Unlogged => tollgate(setup, "off"),
    }
}

/// A port that was free a moment ago.
pub fn free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn nginx(setup: &ProxySetup) -> Result<Command, Failure> {
    let (rate, burst) = match setup.is_refused() {
        false => (
            format!("{UNREACHED_RATE}r/s"),
            format!(" burst={UNREACHED_RATE} nodelay"),
        ),
        true => ("1r/m".to_owned(), String::new()),
    };
    let (address, upstream, workers) = (setup.address, setup.upstream, setup.shape.workers);
    let mut text = format!(
        "daemon off;\nuser root;\npid nginx.pid;\nerror_log error.log crit;\nworker_processes {workers};\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  tcp_nodelay on;\n"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(text, "  {kind}_temp_path temp;")?;
    }
    let mut zone = "10m";
    if setup.has_many_addresses() {
        zone = "100m";
        text.push_str("  set_real_ip_from 127.0.0.0/8;\n  real_ip_header X-Forwarded-For;\n");
    }
    write!(
        text,
        "  limit_req_zone $binary_remote_addr zone=per_ip:{zone} rate={rate};\n\
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
    fs::write(setup.folder.join("nginx.conf"), text)?;
    let mut command = Command::new(server_program("nginx"));
    command
        .arg("-p")
        .arg(setup.folder)
        .args(["-c", "nginx.conf", "-e", "error.log"]);
    Ok(command)
}

fn haproxy(setup: &ProxySetup) -> Result<Command, Failure> {
    let max_requests = if setup.is_refused() {
        1
    } else {
        UNREACHED_RATE
    };
    let source = match setup.has_many_addresses() {
        true => "  http-request set-src req.hdr_ip(x-forwarded-for)\n",
        false => "",
    };
    let (address, upstream, workers) = (setup.address, setup.upstream, setup.shape.workers);
    let text = format!(
        "global\n  nbthread {workers}\n\
         defaults\n  mode http\n  http-reuse always\n  option forwardfor\n\
         \x20 timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         frontend bench\n  bind {address}\n{source}\
         \x20 stick-table type ip size 1m expire 1h store http_req_rate(1h)\n\
         \x20 http-request track-sc0 src\n\
         \x20 http-request deny deny_status 429 if {{ sc0_http_req_rate gt {max_requests} }}\n\
         \x20 default_backend bench\n\
         backend bench\n  server one {upstream} pool-max-conn 512\n"
    );
    let path = setup.folder.join("haproxy.cfg");
    fs::write(&path, text)?;
    let mut command = Command::new(server_program("haproxy"));
    command.args(["-db", "-f"]).arg(path);
    Ok(command)
}

/// Envoy's default bucket must be finite and full. The bucket of each address is the one that limits.
fn envoy(setup: &ProxySetup) -> Result<Command, Failure> {
    let max_requests = if setup.is_refused() {
        1
    } else {
        UNREACHED_RATE
    };
    let hops = u8::from(setup.has_many_addresses());
    let kind = "type.googleapis.com/envoy.extensions.filters";
    let (address, upstream) = (setup.address, setup.upstream);
    let socket = |at: SocketAddr| {
        let (ip, port) = (at.ip(), at.port());
        format!("{{ socket_address: {{ address: {ip}, port_value: {port} }} }}")
    };
    let text = format!(
        "static_resources:
  listeners:
  - address: {listen}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          '@type': {kind}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          use_remote_address: true
          xff_num_trusted_hops: {hops}
          generate_request_id: false
          route_config:
            virtual_hosts:
            - {{ name: bench, domains: ['*'], routes: [{{ match: {{ prefix: / }}, route: {{ cluster: bench }} }}] }}
          http_filters:
          - name: limit
            typed_config:
              '@type': {kind}.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: bench
              max_dynamic_descriptors: 1000000
              token_bucket: {{ max_tokens: {UNREACHED_RATE}, tokens_per_fill: {UNREACHED_RATE}, fill_interval: 60s }}
              filter_enabled: {{ default_value: {{ numerator: 100 }} }}
              filter_enforced: {{ default_value: {{ numerator: 100 }} }}
              rate_limits: [{{ actions: [{{ remote_address: {{}} }}] }}]
              descriptors:
              - entries: [{{ key: remote_address }}]
                token_bucket: {{ max_tokens: {max_requests}, tokens_per_fill: {max_requests}, fill_interval: 60s }}
          - name: route
            typed_config: {{ '@type': {kind}.http.router.v3.Router }}
  clusters:
  - name: bench
    type: STATIC
    load_assignment:
      cluster_name: bench
      endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {server} }} }}] }}]
",
        listen = socket(address),
        server = socket(upstream),
    );
    let path = setup.folder.join("envoy.yaml");
    fs::write(&path, text)?;
    let mut command = Command::new(envoy_program());
    command
        .args(["--disable-hot-restart", "--log-level", "error"])
        .args(["--concurrency", &setup.shape.workers.to_string(), "-c"])
        .arg(path);
    Ok(command)
}

fn floor(setup: &ProxySetup) -> Result<Command, Failure> {
    let task = FloorTask {
        listen: setup.address,
        upstream: (!setup.is_refused()).then_some(setup.upstream),
        workers: setup.shape.workers,
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("floor").args(task.words());
    Ok(command)
}

fn tollgate(setup: &ProxySetup, log: &str) -> Result<Command, Failure> {
    let rate = match setup.is_refused() {
        false => format!("{UNREACHED_RATE}/h"),
        true => "1/h".to_owned(),
    };
    let trusted = match setup.has_many_addresses() {
        true => "ip: { trusted_proxies: [127.0.0.0/8] }, ",
        false => "",
    };
    let (address, upstream, workers) = (setup.address, setup.upstream, setup.shape.workers);
    // The log is in a folder of its own, because the gateway watches the folder of its configuration.
    let logs = setup.folder.join("logs");
    fs::create_dir(&logs)?;
    let gateway = format!(
        "version: 1\nworkers: {workers}\nlisten: [{address}]\nconnections: {{ total: {MAX_CONNECTIONS} }}\nadmin: {}\nrecord: memory\n\
         access_log: {{ requests: {log}, file: '{}' }}\n\
         policies: policies\nupstreams: {{ bench: [http://{upstream}] }}\n\
         identity: {{ {trusted}token: {{ bearer: true }} }}\n",
        free_address()?,
        logs.join("refused.log").display(),
    );
    fs::write(setup.folder.join("tollgate.yaml"), gateway)?;
    let policies = setup.folder.join("policies");
    fs::create_dir(&policies)?;
    let mut limits = String::new();
    for number in 0..setup.shape.limits {
        let key = if number % 2 == 0 { "ip" } else { "token" };
        writeln!(
            limits,
            "  limit-{number}: {{ key: {key}, rate: {rate}, throttle: hard }}"
        )?;
    }
    if !limits.is_empty() {
        limits.insert_str(0, "limits:\n");
    }
    let policy = |path: &str| format!("match: {path}\nupstream: bench\n{limits}");
    fs::write(policies.join("bench.yaml"), policy("/**"))?;
    for number in 1..setup.shape.routes {
        let path = format!("/route-{number}/items/**");
        fs::write(policies.join(format!("{number}.yaml")), policy(&path))?;
    }
    let mut command = Command::new(TOLLGATE);
    command
        .arg("run")
        .arg("--config")
        .arg(setup.folder.join("tollgate.yaml"));
    Ok(command)
}

/// The path of a server's program. Debian installs servers in a folder that only root's search path has.
fn server_program(name: &str) -> PathBuf {
    let path = Path::new("/usr/sbin").join(name);
    if path.exists() { path } else { name.into() }
}

/// The path of Envoy's program: where `make bench-tools` puts it, else one that is installed.
fn envoy_program() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/envoy/envoy/_bin/envoy");
    if path.exists() { path } else { "envoy".into() }
}

/// The name and version of a proxy, as it prints them.
pub fn program_version(subject: Subject) -> Result<String, Failure> {
    let (program, flag) = match subject {
        Subject::Nginx => (server_program("nginx"), "-v"),
        Subject::Haproxy => (server_program("haproxy"), "-v"),
        Subject::Envoy => (envoy_program(), "--version"),
        Subject::Floor => return Ok("floor: copies bytes, understands nothing".to_owned()),
        Subject::Tollgate | Subject::Unlogged => (TOLLGATE.into(), "--version"),
    };
    let output = Command::new(&program)
        .arg(flag)
        .output()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or_default();
    Ok(match subject {
        Subject::Envoy => {
            let build = line.split_once("version: ").unwrap_or_default().1;
            format!("envoy {}", build.split('/').nth(1).unwrap_or(line))
        }
        _ => line.split(" - ").next().unwrap_or_default().to_owned(),
    })
}

/// Cargo's target folder.
pub fn target_folder() -> Result<PathBuf, Failure> {
    let folder = Path::new(TOLLGATE).ancestors().nth(2);
    Ok(folder
        .ok_or("the program lies in no target folder")?
        .to_owned())
}
