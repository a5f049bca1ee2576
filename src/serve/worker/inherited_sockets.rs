//! Listening sockets that the process was given when it started: by systemd, or by the process that it replaces.
//!
//! Listeners get them by their address. This file never binds an address of its own; `listen.rs` does.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use socket2::Socket;

use crate::net::Address;
use crate::net::unix_socket::SocketFile;

/// The variable in which a process lists the socket files that its successor must remove at its end, separated like the
/// folders in `PATH`.
pub const SOCKET_FILES_VARIABLE: &str = "TOLLGATE_SOCKET_FILES";

/// The inherited sockets, and the socket files that this process must remove.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    /// The sockets that no listener uses yet, each with its address.
    sockets: Vec<(Address, Socket)>,
    /// Paths of Unix sockets that this process must remove at its end.
    owned_paths: Vec<PathBuf>,
    /// The number of passed descriptors that no listener can use. They are no listening sockets, have neither a TCP
    /// address nor a path, or cannot be made non-blocking.
    unusable_count: usize,
}

impl InheritedSockets {
    /// The sockets that `LISTEN_FDS` announces, by the protocol of `sd_listen_fds(3)`, and the files that
    /// [`SOCKET_FILES_VARIABLE`] lists.
    pub fn from_environment() -> InheritedSockets {
        let mut passed_descriptors = listenfd::ListenFd::from_env();
        let mut inherited = InheritedSockets::default();
        for index in 0..passed_descriptors.len() {
            let tcp_listener = passed_descriptors.take_tcp_listener(index).ok().flatten();
            let mut unix_listener = || passed_descriptors.take_unix_listener(index).ok().flatten();
            let socket = tcp_listener
                .map(Socket::from)
                .or_else(|| unix_listener().map(Socket::from))
                .filter(|socket| socket.set_nonblocking(true).is_ok());
            let address_and_socket = socket.and_then(|socket| {
                Some((Address::from_socket(&socket.local_addr().ok()?)?, socket))
            });
            match address_and_socket {
                Some(address_and_socket) => inherited.sockets.push(address_and_socket),
                None => inherited.unusable_count += 1,
            }
        }
        if let Some(paths) = std::env::var_os(SOCKET_FILES_VARIABLE) {
            inherited.owned_paths = std::env::split_paths(&paths).collect();
        }
        inherited
    }

    /// Whether an inherited socket can serve `address`. Port 0 matches any port.
    pub fn has_socket_for(&self, address: &Address) -> bool {
        self.matching_address(address).is_some()
    }

    /// The address of an inherited TCP socket on the same port as `address`, for a message that the two do not match.
    /// `None` if there is no such socket, and for port 0.
    pub fn same_port_address(&self, address: SocketAddr) -> Option<SocketAddr> {
        let mut tcp_addresses = self.sockets.iter().filter_map(|(bound, _)| bound.tcp());
        tcp_addresses.find(|bound| bound.port() == address.port() && address.port() != 0)
    }

    /// Takes all sockets that can serve `address` and are bound to the same address; none if no socket can. Port 0
    /// matches the port of the first inherited socket with this IP address.
    pub fn take_sockets(&mut self, address: &Address) -> Vec<Socket> {
        let Some(matching_address) = self.matching_address(address) else {
            return Vec::new();
        };
        let sockets = std::mem::take(&mut self.sockets);
        let (matching_sockets, other_sockets): (Vec<_>, Vec<_>) = sockets
            .into_iter()
            .partition(|(bound, _)| *bound == matching_address);
        self.sockets = other_sockets;
        matching_sockets
            .into_iter()
            .map(|(_, socket)| socket)
            .collect()
    }

    /// The address of the inherited sockets that can serve `address`. That is the same address, with any port for port 0.
    /// Or for `0.0.0.0` it is the same port on `[::]`, if the socket accepts IPv4 too.
    fn matching_address(&self, address: &Address) -> Option<Address> {
        let Some(tcp_address) = address.tcp() else {
            let mut bound_addresses = self.sockets.iter().map(|(bound, _)| bound);
            return bound_addresses.find(|bound| *bound == address).cloned();
        };
        let tcp_sockets = || {
            let sockets = self.sockets.iter();
            sockets.filter_map(|(bound, socket)| Some((bound.tcp()?, socket)))
        };
        let exact_match = tcp_sockets().find(|(bound, _)| serves_address(*bound, tcp_address));
        let dual_stack_match = || {
            tcp_sockets().find(|(bound, socket)| {
                tcp_address.ip() == Ipv4Addr::UNSPECIFIED
                    && bound.ip() == Ipv6Addr::UNSPECIFIED
                    && bound.port() == tcp_address.port()
                    && socket.only_v6().is_ok_and(|is_only_v6| !is_only_v6)
            })
        };
        exact_match
            .or_else(dual_stack_match)
            .map(|(bound, _)| bound.into())
    }

    /// The file of the Unix socket at `path`, if it exists and this process must remove it at its end.
    pub(super) fn owned_file(&self, path: &Arc<Path>) -> Option<SocketFile> {
        let is_owned = self
            .owned_paths
            .iter()
            .any(|owned_path| **owned_path == **path);
        is_owned.then(|| SocketFile::at(path).ok()).flatten()
    }

    /// Removes the files of inherited Unix sockets that no listener uses and that this process must remove.
    pub fn remove_unused_files(&self) {
        for (address, _) in &self.sockets {
            if let Address::Unix(path) = address {
                let file = self.owned_file(path);
                file.into_iter().for_each(SocketFile::remove);
            }
        }
    }

    /// A description of each passed descriptor that no listener uses, for the log.
    pub fn describe_unused(&self) -> impl Iterator<Item = String> {
        let addresses = self.sockets.iter().map(|(address, _)| address.to_string());
        let unusable = || String::from("no listening socket of TCP or with a path");
        addresses.chain(std::iter::repeat_with(unusable).take(self.unusable_count))
    }
}

/// Whether a socket that is bound to `bound` serves the configured `address`, whose port 0 matches any port.
fn serves_address(bound: SocketAddr, address: SocketAddr) -> bool {
    bound.ip() == address.ip() && (address.port() == 0 || bound.port() == address.port())
}
