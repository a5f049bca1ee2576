//! The servers behind the gateway, the connections to them, and HTTP/1.1 spoken over these.
//!
//! The client of hyper runs each connection in a task of its own and hands requests over through
//! channels; measured beside nginx that made a proxied request a sixth dearer. Here both directions of
//! an exchange run in the request's own task.
//!
//! | file | what it is |
//! |---|---|
//! | `pool` | the unused connections of one worker |
//! | `exchange` | one request and its answer |
//! | `upload` | the request as bytes |
//! | `answer` | the head of the answer |

pub mod answer;
pub mod exchange;
pub mod pool;
pub mod upload;

use std::time::Duration;

use crate::net::Connector;

pub use exchange::{AnswerBody, Exchange, Failure, Lead};
pub use pool::{Connection, Error, Pool};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// How TLS is spoken to it, if it is.
    pub tls: Option<Connector>,
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
