//! Addresses to listen on, names to look up, the store that gateways share.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::{Found, hosts_of};
use crate::policy::Loaded;
use crate::serve::listen;

/// Longest wait for all names, and for a server of the store.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most names that are looked up.
const MOST: usize = 256;

/// Whether this user may listen where the file says. A gateway that runs already holds its addresses, and systemd may
/// hold them for one that is to come, so none of this is a mistake.
pub fn addresses(found: &mut Found<'_>, loaded: &Loaded) {
    let process = &loaded.process;
    let listeners = process
        .listen
        .iter()
        .map(|listen| ("listen", listen.address));
    let internal = [process.admin, process.probes].into_iter().flatten();
    for (field, address) in listeners.chain(internal.map(|address| ("admin", address))) {
        let Err(error) = listen::probe(address) else {
            continue;
        };
        let help = match error.kind() {
            ErrorKind::AddrInUse => {
                "this is as it should be if it is the gateway itself, which a reload goes on with; else stop the other process, or choose another port"
            }
            ErrorKind::PermissionDenied => {
                "ports below 1024 need a privilege: `AmbientCapabilities=CAP_NET_BIND_SERVICE` or a socket of systemd, see examples/systemd"
            }
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; `0.0.0.0` and `[::]` are all that it has"
            }
            _ => "choose another address",
        };
        let message = format!("cannot listen on {address}: {error}");
        found.warn((field, &address.to_string()), message, help);
    }
}

/// Whether names have addresses.
pub fn names(found: &mut Found<'_>, loaded: &Loaded) {
    let mut names: BTreeSet<(&str, String, u16)> = BTreeSet::new();
    for upstream in &loaded.ruleset.upstreams {
        let servers = upstream.servers.iter();
        names.extend(servers.map(|server| ("upstreams", server.host.to_string(), server.port)));
    }
    for push in &loaded.process.push {
        if let Some(host) = push.url.host() {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            names.insert((
                "record",
                host.to_owned(),
                push.url.port_u16().unwrap_or(443),
            ));
        }
    }
    if let Some(shared) = &loaded.process.shared {
        let hosts = hosts_of(&shared.place).into_iter();
        names.extend(hosts.map(|(host, port)| ("store", host, port)));
    }
    let (send, looked_up) = channel();
    let mut waiting = BTreeSet::new();
    for (field, host, port) in names.into_iter().take(MOST) {
        if host.parse::<std::net::IpAddr>().is_ok() || !waiting.insert((field, host.clone())) {
            continue;
        }
        let send = send.clone();
        // The system's resolver cannot be told to give up; a thread that waits for it ends with the process.
        thread::spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            let why = match found.map(|mut addresses| addresses.next()) {
                Ok(Some(_)) => None,
                Ok(None) => Some(String::from("it has no address")),
                Err(error) => Some(error.to_string()),
            };
            // Nobody waits any more.
            let _ = send.send((field, host, why));
        });
    }
    drop(send);
    let mut failed = Vec::new();
    while let Ok((field, host, why)) = looked_up.recv_timeout(PATIENCE) {
        waiting.remove(&(field, host.clone()));
        failed.extend(why.map(|why| (field, host, why)));
    }
    let silent = waiting.into_iter();
    failed.extend(silent.map(|(field, host)| (field, host, "no answer within 5 s".to_owned())));
    failed.sort();
    for (field, host, why) in failed {
        let message = format!("the name `{host}` cannot be looked up: {why}");
        let help =
            "correct it, or check the resolver of this machine; `--offline` looks up nothing";
        found.warn((field, &host), message, help);
    }
}

/// Whether a server of the store takes connections.
pub fn store(found: &mut Found<'_>, loaded: &Loaded) {
    let Some(shared) = &loaded.process.shared else {
        return;
    };
    for (host, port) in hosts_of(&shared.place) {
        let Ok(addresses) = (host.as_str(), port).to_socket_addrs() else {
            // Told as a name.
            continue;
        };
        let addresses: Vec<SocketAddr> = addresses.collect();
        let mut last = None;
        let reached = addresses.iter().any(|address| {
            let connected = TcpStream::connect_timeout(address, PATIENCE);
            last = connected.err();
            last.is_none()
        });
        if let (false, Some(error)) = (reached, last) {
            let message = format!("the store at {host}:{port} cannot be reached: {error}");
            let help = "start it, or correct the address; without it the gateway goes on by `on_store_error`; `--offline` does not ask it";
            found.warn(("store", &host), message, help);
        }
    }
}
