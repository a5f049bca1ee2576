//! One server: each address of a name is one of its own.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::health::ServerHealth;
use crate::net::Address;

/// See the module.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its location as configured, the same for all addresses of a name.
    pub name: Arc<str>,
    /// The configured server that it belongs to, by index.
    pub server: usize,
    /// None until its name is resolved.
    pub address: Option<Address>,
    /// Whether it may be asked.
    pub health: Arc<ServerHealth>,
}

impl Endpoint {
    /// An endpoint of which nothing is known yet.
    pub fn new(server: usize, name: &Arc<str>, address: Option<Address>) -> Endpoint {
        Endpoint {
            name: name.clone(),
            server,
            address,
            health: Arc::default(),
        }
    }

    /// The address that its name resolves to; none if it is configured as an address.
    pub fn resolved_ip(&self) -> Option<IpAddr> {
        let named = |address: &SocketAddr| *address.to_string() != *self.name;
        let address = self.address.as_ref().and_then(Address::tcp);
        address.filter(named).map(|address| address.ip())
    }

    /// Whether both are the same endpoint, maybe of different times.
    pub fn is_same(&self, other: &Endpoint) -> bool {
        Arc::ptr_eq(&self.health, &other.health)
    }
}

/// Its location, and the address that a name resolves to.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.resolved_ip()
            .map_or(Ok(()), |ip| write!(f, " at {ip}"))
    }
}
