//! The configuration of each proxy: one worker or more, its limiter on, X-Forwarded-For added, and
//! no log but tollgate's own of what it refuses.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;
use crate::case::Case;
use crate::floor::Task;
use crate::options::Subject;
use crate::shape::Shape;

const TOLLGATE: &str = env!("CARGO_BIN_EXE_tollgate");

/// A rate that this load never reaches, per hour.
const NEVER: u32 = 1_000_000_000;

/// Connections that clients of tollgate may have: more than any client here opens.
const CONNECTIONS_MAX: usize = 10_100;

/// What a proxy is configured for.
pub struct Place<'a> {
    /// Its own folder.
    pub folder: &'a Path,
    /// What it is asked to do.
    pub case: Case,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where requests go.
    pub upstream: SocketAddr,
    /// How large everything is.
    pub shape: Shape,
}

impl Place<'_> {
    fn many_addresses(&self) -> bool {
        self.case == Case::Addresses
    }

    fn refuses(&self) -> bool {
        self.case == Case::Refused
    }
}

/// Writes the files that a proxy reads; how it is started.
pub fn command(subject: Subject, place: &Place) -> Result<Command, Failure> {
    match subject {
        Subject::Nginx => nginx(place),
        Subject::Haproxy => haproxy(place),
        Subject::Envoy => envoy(place),
        Subject::Floor => floor(place),
        Subject::Tollgate => tollgate(place, "refused"),
        Subject::Unlogged => tollgate(place, "off"),
    }
}

/// A port that was free a moment ago.
pub fn free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn nginx(place: &Place) -> Result<Command, Failure> {
    let (rate, burst) = match place.refuses() {
        false => (format!("{NEVER}r/s"), format!(" burst={NEVER} nodelay")),
        true => ("1r/m".to_owned(), String::new()),
    };
    let (address, upstream, workers) = (place.address, place.upstream, place.shape.workers);
    let mut text = format!(
        "daemon off;\nuser root;\npid nginx.pid;\nerror_log error.log crit;\nworker_processes {workers};\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  tcp_nodelay on;\n"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(text, "  {kind}_temp_path temp;")?;
    }
    let mut zone = "10m";
    if place.many_addresses() {
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
    fs::write(place.folder.join("nginx.conf"), text)?;
    let mut command = Command::new(debian("nginx"));
    command
        .arg("-p")
        .arg(place.folder)
        .args(["-c", "nginx.conf", "-e", "error.log"]);
    Ok(command)
}

fn haproxy(place: &Place) -> Result<Command, Failure> {
    let most = if place.refuses() { 1 } else { NEVER };
    let source = match place.many_addresses() {
        true => "  http-request set-src req.hdr_ip(x-forwarded-for)\n",
        false => "",
    };
    let (address, upstream, workers) = (place.address, place.upstream, place.shape.workers);
    let text = format!(
        "global\n  nbthread {workers}\n\
         defaults\n  mode http\n  http-reuse always\n  option forwardfor\n\
         \x20 timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         frontend bench\n  bind {address}\n{source}\
         \x20 stick-table type ip size 1m expire 1h store http_req_rate(1h)\n\
         \x20 http-request track-sc0 src\n\
         \x20 http-request deny deny_status 429 if {{ sc0_http_req_rate gt {most} }}\n\
         \x20 default_backend bench\n\
         backend bench\n  server one {upstream} pool-max-conn 512\n"
    );
    let path = place.folder.join("haproxy.cfg");
    fs::write(&path, text)?;
    let mut command = Command::new(debian("haproxy"));
    command.args(["-db", "-f"]).arg(path);
    Ok(command)
}

/// The default bucket must be finite and full; the one of each address is what counts.
fn envoy(place: &Place) -> Result<Command, Failure> {
    let most = if place.refuses() { 1 } else { NEVER };
    let hops = u8::from(place.many_addresses());
    let kind = "type.googleapis.com/envoy.extensions.filters";
    let (address, upstream) = (place.address, place.upstream);
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
              token_bucket: {{ max_tokens: {NEVER}, tokens_per_fill: {NEVER}, fill_interval: 60s }}
              filter_enabled: {{ default_value: {{ numerator: 100 }} }}
              filter_enforced: {{ default_value: {{ numerator: 100 }} }}
              rate_limits: [{{ actions: [{{ remote_address: {{}} }}] }}]
              descriptors:
              - entries: [{{ key: remote_address }}]
                token_bucket: {{ max_tokens: {most}, tokens_per_fill: {most}, fill_interval: 60s }}
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
    let path = place.folder.join("envoy.yaml");
    fs::write(&path, text)?;
    let mut command = Command::new(envoy_program());
    command
        .args(["--disable-hot-restart", "--log-level", "error"])
        .args(["--concurrency", &place.shape.workers.to_string(), "-c"])
        .arg(path);
    Ok(command)
}

fn floor(place: &Place) -> Result<Command, Failure> {
    let task = Task {
        listen: place.address,
        upstream: (!place.refuses()).then_some(place.upstream),
        workers: place.shape.workers,
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("floor").args(task.words());
    Ok(command)
}

fn tollgate(place: &Place, log: &str) -> Result<Command, Failure> {
    let rate = match place.refuses() {
        false => format!("{NEVER}/h"),
        true => "1/h".to_owned(),
    };
    let trusted = match place.many_addresses() {
        true => "ip: { trusted_proxies: [127.0.0.0/8] }, ",
        false => "",
    };
    let (address, upstream, workers) = (place.address, place.upstream, place.shape.workers);
    // Not among the files of the configuration, whose folders the gateway watches.
    let logs = place.folder.join("logs");
    fs::create_dir(&logs)?;
    let gateway = format!(
        "version: 1\nworkers: {workers}\nlisten: [{address}]\nconnections: {{ total: {CONNECTIONS_MAX} }}\nadmin: {}\nrecord: memory\n\
         access_log: {{ requests: {log}, file: '{}' }}\n\
         policies: policies\nupstreams: {{ bench: [http://{upstream}] }}\n\
         identity: {{ {trusted}token: {{ bearer: true }} }}\n",
        free_address()?,
        logs.join("refused.log").display(),
    );
    fs::write(place.folder.join("tollgate.yaml"), gateway)?;
    let policies = place.folder.join("policies");
    fs::create_dir(&policies)?;
    let mut limits = String::new();
    for number in 0..place.shape.limits {
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
    for number in 1..place.shape.routes {
        let path = format!("/route-{number}/items/**");
        fs::write(policies.join(format!("{number}.yaml")), policy(&path))?;
    }
    let mut command = Command::new(TOLLGATE);
    command
        .arg("run")
        .arg("--config")
        .arg(place.folder.join("tollgate.yaml"));
    Ok(command)
}

/// Debian keeps servers where only root's search path leads.
fn debian(name: &str) -> PathBuf {
    let path = Path::new("/usr/sbin").join(name);
    if path.exists() { path } else { name.into() }
}

/// Where `make bench-tools` puts it, or one that is installed.
fn envoy_program() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/envoy/envoy/_bin/envoy");
    if path.exists() { path } else { "envoy".into() }
}

/// What a proxy says of its version.
pub fn version(subject: Subject) -> Result<String, Failure> {
    let (program, flag) = match subject {
        Subject::Nginx => (debian("nginx"), "-v"),
        Subject::Haproxy => (debian("haproxy"), "-v"),
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
