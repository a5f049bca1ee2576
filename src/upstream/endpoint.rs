//! One server: each address of a name is one of its own.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::health::Health;

/// See the module.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `host:port` as it is written, the same for all addresses of a name.
    pub name: Arc<str>,
    /// Which of the settings' servers it belongs to.
    pub written: usize,
    /// None of a name that was not looked up yet.
    pub address: Option<SocketAddr>,
    /// Whether it may be asked.
    pub health: Arc<Health>,
}

impl Endpoint {
    /// Of which nothing is known but where it is.
    pub fn new(written: usize, name: &Arc<str>, address: Option<SocketAddr>) -> Endpoint {
        Endpoint {
            name: name.clone(),
            written,
            address,
            health: Arc::default(),
        }
    }

    /// Where its name leads to, if it is written as a name and that is known.
    pub fn leads_to(&self) -> Option<IpAddr> {
        let named = |address: &SocketAddr| *address.to_string() != *self.name;
        self.address.filter(named).map(|address| address.ip())
    }

    /// Both are the same place.
    pub fn is(&self, other: &Endpoint) -> bool {
        Arc::ptr_eq(&self.health, &other.health)
    }
}

/// `host:port`, and where a name leads to.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.leads_to().map_or(Ok(()), |ip| write!(f, " at {ip}"))
    }
}
