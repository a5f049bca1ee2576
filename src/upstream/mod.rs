//! The servers behind the gateway and the connections to them.

pub mod pool;
pub mod socket;

use std::time::Duration;

pub use pool::{Connection, Error, Pool};
pub use socket::Socket;

/// One upstream: servers that can stand in for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What policies call it.
    pub name: String,
    /// Its servers, taken in turn.
    pub servers: Vec<Server>,
    /// How long to wait for a connection.
    pub connect: Duration,
    /// How long to wait for the first byte of an answer.
    pub first_byte: Duration,
    /// How long an unused connection is kept.
    pub idle: Duration,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Server {
    /// `host:port`, an IPv6 address in brackets: the `Host` of requests that have none.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}
