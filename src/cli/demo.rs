//! The command `tollgate demo`: runs the gateway, an upstream, a sample policy and traffic in one process. Its files
//! are in a temporary folder, which it removes at the end, unless it is killed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::signals::EndSignals;
use super::{internal_listeners, output};
use crate::app::Gateway;
use crate::base::clock::Clock;
use crate::base::telemetry::{Label, Metric};
use crate::serve::admin::{self, Control};

/// The largest number of admitted requests before the first refusal. With one more the demo ends with an error.
const MAX_ADMITTED_REQUESTS: usize = 100;
/// The longest time between two parts of a response of the gateway.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of requests of the traffic in about a second, enough for the limits of [`POLICY`] to refuse some.
const REQUESTS_PER_SECOND: usize = 8;
/// The pause between two requests of the traffic.
const REQUEST_PAUSE: Duration = Duration::from_millis(1_000 / REQUESTS_PER_SECOND as u64);

/// The policy file, which the demo also prints.
const POLICY: &str = "\
match: GET /api/**
upstream: echo
limits:
  per-ip: { key: ip, rate: [5/s, 60/m], throttle: hard }
  per-user: { key: user, rate: 20/m, throttle: soft 10% }
";

#[derive(clap::Args)]
pub struct Arguments {
    /// Address for clients; another port if it is in use.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address of the admin listener; another port if it is in use.
    #[arg(long, default_value = "127.0.0.1:9900")]
    admin: SocketAddr,
    /// Seconds to run; default: until interrupted.
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<u64>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    output::exit_code(demo(arguments), ExitCode::SUCCESS)
}

/// Runs the demo until its time is over, or a signal ends it.
fn demo(arguments: &Arguments) -> io::Result<()> {
    let should_end = watch_end_signals()?;
    let upstream = start_echo_upstream()?;
    let folder = std::env::temp_dir().join(format!("tollgate-demo-{}", std::process::id()));
    let result = start_gateway(arguments, upstream, &folder)
        .and_then(|gateway| show_gateway(&gateway, &folder, arguments, &should_end));
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// Writes the configuration into the folder, and starts a gateway with it.
fn start_gateway(
    arguments: &Arguments,
    upstream: SocketAddr,
    folder: &Path,
) -> io::Result<Arc<Gateway>> {
    std::fs::create_dir_all(folder.join("policies"))?;
    std::fs::write(folder.join("policies/api.yaml"), POLICY)?;
    let gateway_file = format!(
        "version: 1\nworkers: 1\nlisten: {}\nadmin: {}\npolicies: policies\n\
         upstreams: {{ echo: [\"http://{upstream}\"] }}\n\
         identity: {{ user: {{ header: x-user, from: [127.0.0.0/8] }} }}\naccess_log: off\n",
        free_or_any_port(arguments.listen),
        free_or_any_port(arguments.admin),
    );
    let config_path = folder.join("tollgate.yaml");
    std::fs::write(&config_path, gateway_file)?;
    let (gateway, _) = Gateway::start(&config_path, Clock::system()).map_err(io::Error::other)?;
    Ok(Arc::new(gateway))
}

/// Returns the address, with port 0 if it cannot be bound, mostly because its port is in use. With port 0 the system
/// chooses a free one.
fn free_or_any_port(address: SocketAddr) -> SocketAddr {
    match TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::new(address.ip(), 0),
    }
}

/// Prints the addresses, and shows an admitted and a refused request. Then it sends traffic, and reloads the policies
/// when their files change.
fn show_gateway(
    gateway: &Arc<Gateway>,
    folder: &Path,
    arguments: &Arguments,
    should_end: &AtomicBool,
) -> io::Result<()> {
    // The admin listener ends when this function drops the sender.
    let (_stop_sender, stop) = oneshot::channel();
    let admin_setting = gateway.process_settings().admin;
    let admin_listener = TcpListener::bind(admin_setting.unwrap_or(arguments.admin))?;
    let router = admin::router(gateway.clone());
    let (admin, _) = internal_listeners::serve_on_thread(admin_listener, router, "admin", stop)?;
    let address = gateway.addresses()[0]
        .tcp()
        .ok_or_else(|| io::Error::other("the demo listens on TCP"))?;
    let policy = folder.join("policies/api.yaml");
    output::print(format_args!(
        "tollgate demo\n\n  \
         gateway   http://{address}    in front of an upstream that answers everything\n  \
         admin     http://{admin}    limits, metrics, policies\n  \
         policy    {}\n\n{}\n\n\
         1. A request that its limits admit\n\n    \
         GET /api/hello   x-user: alice\n\n{}\n\n\
         2. Requests in quick succession, until a limit refuses one\n\n",
        policy.display(),
        indent(POLICY),
        indent(&get_as_user(address, "alice")?)
    ))?;
    let mut admitted = 1;
    let refused = loop {
        let response = get_as_user(address, "alice")?;
        if response.starts_with("HTTP/1.1 429") {
            break response;
        }
        admitted += 1;
        if admitted > MAX_ADMITTED_REQUESTS {
            return Err(io::Error::other("no limit refused"));
        }
    };
    output::print(format_args!(
        "{}\n\n   after {admitted} admitted: the body names the limit, Retry-After says when.\n\n\
         3. Try it yourself\n\n    \
         curl -i http://{address}/api/hello -H 'x-user: bob'\n    \
         curl -s http://{admin}/v1/limits/per-ip/keys/ip=127.0.0.1\n    \
         tollgate explain GET /api/hello -H 'x-user: bob' --admin {admin}\n    \
         edit the policy file above: it is read again when it changes\n    \
         open http://{admin}/ in a browser, and policies/ for more samples\n\n\
         4. Traffic: three users, {REQUESTS_PER_SECOND} requests a second, until you press Ctrl-C\n\n",
        indent(&refused)
    ))?;
    let gateway_to_reload = gateway.clone();
    let config_path = gateway.config_path().to_owned();
    let _watch = crate::policy::watch(config_path, gateway.fingerprint(), move || {
        reload(&gateway_to_reload);
    })?;
    send_traffic(gateway, address, arguments.seconds, should_end)
}

/// Returns a flag that becomes true when a signal to end the process comes.
fn watch_end_signals() -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let mut signals = {
        let _runtime_guard = runtime.enter();
        EndSignals::new()?
    };
    let should_end = Arc::new(AtomicBool::new(false));
    let flag_of_thread = should_end.clone();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(signals.next());
            flag_of_thread.store(true, Relaxed);
        })?;
    Ok(should_end)
}

/// Reloads the configuration, and prints the result.
fn reload(gateway: &Arc<Gateway>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let message = match runtime.map(|runtime| runtime.block_on(Gateway::reload(gateway))) {
        Ok(Ok(_)) => "    policies reloaded".to_owned(),
        Ok(Err(error)) => format!("{error}\n    the policies before still run"),
        Err(error) => format!("    cannot reload: {error}"),
    };
    // If printing fails, the next line of traffic fails too and ends the demo.
    let _ = output::print_line(message);
}

/// Sends requests of three users in turn, and prints the decisions after each second. Ends after `seconds`, if there
/// are any, and at the end of a second in which `should_end` became true.
fn send_traffic(
    gateway: &Gateway,
    address: SocketAddr,
    seconds: Option<u64>,
    should_end: &AtomicBool,
) -> io::Result<()> {
    let mut users = ["alice", "bob", "carol"].into_iter().cycle();
    let decision_count = |limit, outcome| {
        gateway.counter_total(
            Metric::LimitDecisions,
            &[(Label::Limit, limit), (Label::Outcome, outcome)],
        )
    };
    let total_count =
        |outcome| decision_count("per-ip", outcome) + decision_count("per-user", outcome);
    for second in 0_u64.. {
        if seconds.is_some_and(|seconds| second >= seconds) || should_end.load(Relaxed) {
            break;
        }
        let mut admitted = 0;
        let mut refused = 0;
        for user in users.by_ref().take(REQUESTS_PER_SECOND) {
            let is_refused = get_as_user(address, user)?.starts_with("HTTP/1.1 429");
            if is_refused {
                refused += 1;
            } else {
                admitted += 1;
            }
            thread::sleep(REQUEST_PAUSE);
        }
        output::print_line(format_args!(
            "    {admitted} admitted {} {refused} refused {}   per-ip refused {}, per-user refused {} \
             and over {} so far ({} decisions)",
            "#".repeat(admitted),
            "-".repeat(refused),
            decision_count("per-ip", "refused"),
            decision_count("per-user", "refused"),
            decision_count("per-user", "over"),
            total_count("within") + total_count("over") + total_count("refused"),
        ))?;
    }
    Ok(())
}

/// Indents each line of a text by four blanks.
fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Requests `/api/hello` as this user, and returns the whole response. The message of an error says that the gateway
/// sent no response.
fn get_as_user(address: SocketAddr, user: &str) -> io::Result<String> {
    send_request(address, user)
        .map_err(|error| io::Error::other(format!("no answer from the gateway: {error}")))
}

/// Sends the request on a connection of its own, and reads until the gateway closes that connection.
fn send_request(address: SocketAddr, user: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    let request = format!(
        "GET /api/hello HTTP/1.1\r\nhost: {address}\r\nx-user: {user}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// Starts an upstream on a free port, and returns its address. Its responses contain the request line. Its threads end
/// with the process.
fn start_echo_upstream() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("echo".into()).spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = move || serve_echo(stream);
            if thread::Builder::new().spawn(serve).is_err() {
                return;
            }
        }
    })?;
    Ok(address)
}

/// Responds to requests on one connection until the gateway closes it or the connection fails.
fn serve_echo(stream: TcpStream) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut request_line = String::new();
        if reader.read_line(&mut request_line)? == 0 {
            return Ok(());
        }
        let body_length = read_body_length(&mut reader)?;
        io::copy(&mut (&mut reader).take(body_length), &mut io::sink())?;
        let body = format!("upstream saw: {}\n", request_line.trim_end());
        let body_bytes = body.len();
        write!(
            writer,
            "HTTP/1.1 200 OK\r\ncontent-length: {body_bytes}\r\n\r\n{body}"
        )?;
    }
}

/// Reads the header fields of a request, up to the empty line behind them. Returns the length of the body in bytes; 0
/// if they state none.
fn read_body_length(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            return Ok(length);
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
}
