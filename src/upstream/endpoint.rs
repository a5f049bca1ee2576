//! An endpoint: one address of a configured server. A server whose name resolves to several addresses has as many
//! endpoints, each with a health of its own.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::server_health::ServerHealth;
use crate::net::Address;

/// One address of a configured server. Clones share their health.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The server's location as configured, the same for all addresses of a name.
    pub name: Arc<str>,
    /// The index of the configured server in the settings.
    pub server_index: usize,
    /// The address; `None` until the name is resolved.
    pub address: Option<Address>,
    /// Whether the endpoint gets requests, and how many are open.
    pub health: Arc<ServerHealth>,
}

impl Endpoint {
    /// An endpoint that is healthy and has no open request.
    pub fn new(server_index: usize, name: &Arc<str>, address: Option<Address>) -> Endpoint {
        Endpoint {
            name: name.clone(),
            server_index,
            address,
            health: Arc::default(),
        }
    }

    /// The address that the name resolves to. `None` until the name is resolved, and for a server that is configured as
    /// an address or a Unix socket.
    pub fn resolved_ip(&self) -> Option<IpAddr> {
        let differs_from_name = |address: &SocketAddr| *address.to_string() != *self.name;
        let address = self.address.as_ref().and_then(Address::tcp);
        address
            .filter(differs_from_name)
            .map(|address| address.ip())
    }

    /// Whether both are clones of one endpoint. A reload may have changed the index of one of them.
    pub fn is_same(&self, other: &Endpoint) -> bool {
        Arc::ptr_eq(&self.health, &other.health)
    }
}

/// Writes the location, and the IP address that a name resolves to: `app.internal:80 at 10.0.0.1`.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.resolved_ip()
            .map_or(Ok(()), |ip| write!(f, " at {ip}"))
    }
}
