//! Checks addresses to listen on, names to look up, and the shared store.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::files;
use super::findings::Findings;
use crate::base::clock::Clock;
use crate::net::Address;
use crate::policy::LoadedConfig;
use crate::serve::worker::listen;
use crate::store::{redis, shared};
use crate::upstream::Location;

/// Longest time for all checks of the network.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time to connect to one address of the store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of targets that are checked.
const MAX_TARGETS: usize = 256;

/// Maximum number of targets at a time.
const MAX_THREADS: usize = 32;

const FOLDER_HELP: &str = "name a folder that the user who runs the gateway may write to, or make it and give it to this user; nothing is needed where systemd passes the socket";

/// Checks that this user may listen on the addresses of the file.
///
/// A running gateway occupies its addresses, and systemd may create sockets for a later one, so most findings are warnings.
/// Only a file in the place of a socket is an error, because it stops both.
pub fn addresses(findings: &mut Findings<'_>, loaded: &LoadedConfig) {
    let process = &loaded.process;
    let listeners = process
        .listen
        .iter()
        .map(|listen| ("listen", listen.address.clone()));
    let internal = [process.admin, process.probes].into_iter().flatten();
    let internal = internal.map(|address| ("admin", address.into()));
    for (field, address) in listeners.chain(internal) {
        let probed = listen::check_unused(&address);
        let folder = match &address {
            Address::Unix(path) if probed.is_ok() => path.parent(),
            _ => None,
        };
        if let Some(Err((_, cause))) = folder.map(files::writable) {
            let written = address.to_string();
            let shown = findings.shown(field, &written, &written);
            let message = format!("cannot listen on {shown}: {cause}");
            findings.warn((field, &written), message, FOLDER_HELP);
        }
        let Err(error) = probed else {
            continue;
        };
        let help = match error.kind() {
            ErrorKind::AddrInUse => {
                "this is expected while the gateway itself runs; otherwise stop the other process, or choose another address"
            }
            ErrorKind::PermissionDenied if address.tcp().is_none() => {
                "another user listens there; stop that process, or choose another path"
            }
            ErrorKind::PermissionDenied => {
                "ports below 1024 need a privilege: `AmbientCapabilities=CAP_NET_BIND_SERVICE` or a socket of systemd, see examples/systemd"
            }
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; use `0.0.0.0` or `[::]` for all of its addresses"
            }
            _ => "choose another address",
        };
        let written = address.to_string();
        let message = format!(
            "cannot listen on {}: {error}",
            findings.shown(field, &written, &written)
        );
        if error.kind() == ErrorKind::AlreadyExists {
            findings.error(
                (field, &written),
                message,
                "remove it, or choose another path",
            );
            continue;
        }
        findings.warn((field, &written), message, help);
    }
}

/// A target that is checked over the network, in this order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum NetworkTarget {
    /// A server of the store: does it accept connections?
    Store(String, u16),
    /// A name in this field: does it have an address?
    Name(&'static str, String),
}

/// Checks that names have addresses, and that servers of the store accept connections. Ends after [`TIMEOUT`].
pub fn reachable(findings: &mut Findings<'_>, loaded: &LoadedConfig) {
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
        for (host, port) in hosts_of(&shared.backend) {
            hosts.push(("store", host.clone()));
            targets.insert(NetworkTarget::Store(host, port));
        }
    }
    let names = hosts
        .into_iter()
        .filter(|(_, host)| host.parse::<IpAddr>().is_err());
    targets.extend(names.map(|(field, host)| NetworkTarget::Name(field, host)));
    if let Some(left @ 1..) = targets.len().checked_sub(MAX_TARGETS) {
        let message =
            format!("{left} names and servers are not tried, beyond the first {MAX_TARGETS}");
        findings.warn(("upstreams", ""), message, "look them up yourself");
    }
    let targets: Vec<NetworkTarget> = targets.into_iter().take(MAX_TARGETS).collect();
    let results = in_parallel(targets.clone(), reach);
    let late = || Some(format!("no answer within {} s", TIMEOUT.as_secs()));
    for (target, why) in targets.into_iter().zip(results) {
        let Some(why) = why.unwrap_or_else(late) else {
            continue;
        };
        let (place, message, help) = match &target {
            NetworkTarget::Name(field, host) => {
                let shown = findings.shown(field, host, host);
                let message = format!("the name `{shown}` cannot be looked up: {why}");
                let help = "correct it, or check the resolver of this machine; `--offline` looks up nothing";
                ((*field, host.as_str()), message, help)
            }
            NetworkTarget::Store(host, port) => {
                let shown = findings.shown("store", &format!("{host}:{port}"), host);
                let message = format!("the store at {shown} cannot be reached: {why}");
                let help = "start it, or correct the address; without it the gateway goes on by `on_store_error`; `--offline` does not ask it";
                (("store", host.as_str()), message, help)
            }
        };
        findings.warn(place, message, help);
    }
}

/// Checks one target; returns the reason if it fails.
fn reach(target: NetworkTarget) -> Option<String> {
    match target {
        NetworkTarget::Name(_, host) => {
            let addresses = (host.as_str(), 0).to_socket_addrs();
            match addresses.map(|mut all| all.next()) {
                Ok(Some(_)) => None,
                Ok(None) => Some(String::from("it has no address")),
                Err(error) => Some(error.to_string()),
            }
        }
        NetworkTarget::Store(host, port) => {
            // A name without an address has a finding of its own.
            let addresses = (host.as_str(), port).to_socket_addrs().ok()?;
            let mut last = None;
            for address in addresses {
                match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                    Ok(_) => return None,
                    Err(error) => last = Some(error.to_string()),
                }
            }
            last
        }
    }
}

/// Runs `each` on all tasks in parallel; `None` for those that are not done after [`TIMEOUT`].
fn in_parallel<T: Send + 'static, R: Send + 'static>(
    tasks: Vec<T>,
    each: fn(T) -> R,
) -> Vec<Option<R>> {
    let mut results: Vec<Option<R>> = tasks.iter().map(|_| None).collect();
    let threads = tasks.len().min(MAX_THREADS);
    let waiting = Arc::new(Mutex::new(tasks.into_iter().enumerate()));
    let (send, done) = channel();
    // A lookup by the resolver of the system cannot be stopped; its thread ends with the process.
    for _ in 0..threads {
        let (waiting, send) = (waiting.clone(), send.clone());
        thread::spawn(move || {
            loop {
                let next = waiting.lock().next();
                let Some((place, task)) = next else { break };
                // The receiver may be gone after the timeout.
                let _ = send.send((place, each(task)));
            }
        });
    }
    drop(send);
    let clock = Clock::system();
    let end = clock.now().after(TIMEOUT.into());
    while let Ok((place, result)) = done.recv_timeout(end.since(clock.now()).into()) {
        results[place] = Some(result);
    }
    results
}

/// Host and port of each server of the store.
fn hosts_of(place: &shared::Backend) -> Vec<(String, u16)> {
    match place {
        shared::Backend::Redis(redis) => redis.address.hosts.clone(),
        shared::Backend::Memcached(memcached) => {
            // Each has a port.
            let servers = memcached.servers.iter();
            let hosts = servers.map(|server| redis::host(server, 0));
            hosts.filter_map(Result::ok).collect()
        }
    }
}
