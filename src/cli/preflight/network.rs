//! Checks the network: addresses to bind; names of upstreams, push destinations and the store; servers of the store.
//! The checks of names and servers end after a fixed time, even if a resolver hangs.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::diagnostics::PreflightDiagnostics;
use super::files;
use crate::base::clock::Clock;
use crate::net::{Address, quic};
use crate::policy::LoadedConfig;
use crate::serve::worker::listen;
use crate::store::{redis, shared};
use crate::upstream::Location;

/// The longest time for the checks of all names and servers together.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time to connect to one address of a store server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest number of names and servers that are checked.
const MAX_TARGETS: usize = 256;

/// The largest number of names and servers that are checked at a time, each on a thread.
const MAX_CHECK_THREADS: usize = 32;

/// The help about a folder in which a Unix socket cannot be created.
const SOCKET_FOLDER_HELP: &str = "name a folder that the user who runs the gateway may write to, or make it and give it to this user; nothing is needed where systemd passes the socket";

/// Checks that this process may bind the addresses in the gateway file, and that nothing listens there.
///
/// A running gateway occupies its addresses, and systemd may create sockets for a later one, so most diagnostics are
/// warnings. Only a file that is no socket, at the path of a Unix socket, is an error, because it prevents both.
pub fn check_addresses(diagnostics: &mut PreflightDiagnostics<'_>, loaded: &LoadedConfig) {
    let process = &loaded.process;
    let listeners = process
        .listen
        .iter()
        .map(|listen| ("listen", listen.address.clone(), listen.http3));
    let internal_addresses = [process.admin, process.probes].into_iter().flatten();
    let internal_listeners = internal_addresses.map(|address| ("admin", address.into(), false));
    for (field, address, has_http3) in listeners.chain(internal_listeners) {
        let bind_check = listen::check_unused(&address);
        let folder = match &address {
            Address::Unix(path) if bind_check.is_ok() => path.parent(),
            _ => None,
        };
        if let Some(Err((_, cause))) = folder.map(files::check_writable) {
            let address_text = address.to_string();
            let shown = diagnostics.display_value(field, &address_text, &address_text);
            let message = format!("cannot listen on {shown}: {cause}");
            diagnostics.add_warning((field, &address_text), message, SOCKET_FOLDER_HELP);
        }
        let http3_address = address.tcp().filter(|_| has_http3);
        let udp_error = http3_address.and_then(|address| quic::check_unused(address).err());
        if let Err(error) = &bind_check {
            add_bind_diagnostic(diagnostics, field, &address, error, "");
        }
        // A running gateway has both, and one warning says so.
        let is_new =
            |error: &io::Error| bind_check.as_ref().map_err(io::Error::kind) != Err(error.kind());
        if let Some(error) = udp_error.filter(is_new) {
            add_bind_diagnostic(diagnostics, field, &address, &error, UDP_NOTE);
        }
    }
}

/// What is added to the text of an address where UDP is meant.
const UDP_NOTE: &str = " (UDP, for HTTP/3)";

/// Adds a diagnostic about an address that cannot be bound. `note` follows its text.
fn add_bind_diagnostic(
    diagnostics: &mut PreflightDiagnostics<'_>,
    field: &str,
    address: &Address,
    error: &io::Error,
    note: &str,
) {
    let address_text = address.to_string();
    let message = format!(
        "cannot listen on {}{note}: {error}",
        diagnostics.display_value(field, &address_text, &address_text)
    );
    let help = match error.kind() {
        ErrorKind::AlreadyExists => {
            let help = "remove it, or choose another path";
            return diagnostics.add_error((field, &address_text), message, help);
        }
        ErrorKind::AddrInUse => {
            "this is expected while the gateway itself runs; otherwise stop the other process, or choose another address"
        }
        ErrorKind::PermissionDenied if address.tcp().is_none() => {
            "another user listens there; stop that process, or choose another path"
        }
        ErrorKind::PermissionDenied => {
            "ports below 1024 need a privilege: `AmbientCapabilities=CAP_NET_BIND_SERVICE` or a socket of systemd, see packaging/systemd"
        }
        ErrorKind::AddrNotAvailable => {
            "this machine has no such address; use `0.0.0.0` or `[::]` for all of its addresses"
        }
        _ => "choose another address",
    };
    diagnostics.add_warning((field, &address_text), message, help);
}

/// A target that is checked over the network. In the derived order servers come first, so that [`MAX_TARGETS`] leaves
/// out names only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum NetworkTarget {
    /// A server of the store, by host and port, which must accept a connection.
    StoreServer { host: String, port: u16 },
    /// A host name in a field of the gateway file. The name must have an address.
    HostName { field: &'static str, host: String },
}

/// Checks that names have addresses, and that servers of the store accept connections. Targets without a result after
/// [`CHECK_TIMEOUT`] count as failed. All diagnostics are warnings.
pub fn check_reachable(diagnostics: &mut PreflightDiagnostics<'_>, loaded: &LoadedConfig) {
    let mut targets = network_targets(loaded);
    if let Some(skipped @ 1..) = targets.len().checked_sub(MAX_TARGETS) {
        let message =
            format!("{skipped} names and servers are not tried, beyond the first {MAX_TARGETS}");
        diagnostics.add_warning(("upstreams", ""), message, "look them up yourself");
    }
    targets.truncate(MAX_TARGETS);
    let results = run_in_parallel(targets.clone(), check_target);
    let timeout_error = || Some(format!("no answer within {} s", CHECK_TIMEOUT.as_secs()));
    for (target, result) in targets.into_iter().zip(results) {
        let Some(error) = result.unwrap_or_else(timeout_error) else {
            continue;
        };
        let (subject, message, help) = match &target {
            NetworkTarget::HostName { field, host } => {
                let shown = diagnostics.display_value(field, host, host);
                let message = format!("the name `{shown}` cannot be looked up: {error}");
                let help = "correct it, or check the resolver of this machine; `--offline` looks up nothing";
                ((*field, host.as_str()), message, help)
            }
            NetworkTarget::StoreServer { host, port } => {
                let shown = diagnostics.display_value("store", &format!("{host}:{port}"), host);
                let message = format!("the store at {shown} cannot be reached: {error}");
                let help = "start it, or correct the address; without it the gateway goes on by `on_store_error`; `--offline` does not ask it";
                (("store", host.as_str()), message, help)
            }
        };
        diagnostics.add_warning(subject, message, help);
    }
}

/// The distinct names and servers in a configuration, in the order in which they are checked.
fn network_targets(loaded: &LoadedConfig) -> Vec<NetworkTarget> {
    let mut hosts: Vec<(&str, String)> = Vec::new();
    for upstream in &loaded.ruleset.upstreams {
        for server in &upstream.servers {
            if let Location::Host(host, _) = &server.location {
                hosts.push(("upstreams", host.clone()));
            }
        }
    }
    for push in &loaded.process.push {
        let host = push.url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        hosts.push(("record", host.to_owned()));
    }
    let mut targets = BTreeSet::new();
    if let Some(shared) = &loaded.process.shared {
        for (host, port) in store_servers(&shared.backend) {
            hosts.push(("store", host.clone()));
            targets.insert(NetworkTarget::StoreServer { host, port });
        }
    }
    let host_names = hosts
        .into_iter()
        .filter(|(_, host)| host.parse::<IpAddr>().is_err());
    targets.extend(host_names.map(|(field, host)| NetworkTarget::HostName { field, host }));
    targets.into_iter().collect()
}

/// Checks one target, and returns the error if it cannot be reached. `None` if it can, and for a server whose name
/// cannot be looked up.
fn check_target(target: NetworkTarget) -> Option<String> {
    match target {
        NetworkTarget::HostName { host, .. } => {
            let addresses = (host.as_str(), 0).to_socket_addrs();
            match addresses.map(|mut addresses| addresses.next()) {
                Ok(Some(_)) => None,
                Ok(None) => Some(String::from("it has no address")),
                Err(error) => Some(error.to_string()),
            }
        }
        NetworkTarget::StoreServer { host, port } => {
            // The name is a target too, with a diagnostic of its own.
            let addresses = (host.as_str(), port).to_socket_addrs().ok()?;
            let mut last_error = None;
            for address in addresses {
                match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                    Ok(_) => return None,
                    Err(error) => last_error = Some(error.to_string()),
                }
            }
            last_error
        }
    }
}

/// Runs `run` with each input, on at most [`MAX_CHECK_THREADS`] threads. The result is `None` for inputs that are not
/// done after [`CHECK_TIMEOUT`].
fn run_in_parallel<T: Send + 'static, R: Send + 'static>(
    inputs: Vec<T>,
    run: fn(T) -> R,
) -> Vec<Option<R>> {
    let mut results: Vec<Option<R>> = inputs.iter().map(|_| None).collect();
    let thread_count = inputs.len().min(MAX_CHECK_THREADS);
    let pending_inputs = Arc::new(Mutex::new(inputs.into_iter().enumerate()));
    let (result_sender, result_receiver) = channel();
    // A lookup by the resolver of the system cannot be stopped; its thread ends with the process.
    for _ in 0..thread_count {
        let pending_inputs = pending_inputs.clone();
        let result_sender = result_sender.clone();
        thread::spawn(move || {
            loop {
                let next_input = pending_inputs.lock().next();
                let Some((index, input)) = next_input else {
                    break;
                };
                // The receiver may be gone after the timeout.
                let _ = result_sender.send((index, run(input)));
            }
        });
    }
    drop(result_sender);
    let clock = Clock::system();
    let deadline = clock.now().after(CHECK_TIMEOUT.into());
    while let Ok((index, result)) = result_receiver.recv_timeout(deadline.since(clock.now()).into())
    {
        results[index] = Some(result);
    }
    results
}

/// The host and the port of each server of the store.
fn store_servers(backend: &shared::Backend) -> Vec<(String, u16)> {
    match backend {
        shared::Backend::Redis(redis) => redis.address.hosts.clone(),
        shared::Backend::Memcached(memcached) => {
            // Each server has a port already, so the default is never used.
            let servers = memcached.servers.iter();
            let hosts = servers.map(|server| redis::parse_host(server, 0));
            hosts.filter_map(Result::ok).collect()
        }
    }
}
