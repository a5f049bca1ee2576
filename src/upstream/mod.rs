//! The servers behind the gateway, the connections to them, and the HTTP that these connections carry. Nothing here
//! knows which client a request comes from, except for the PROXY header.
//!
//! The HTTP/1.1 client is the gateway's own. The client of hyper runs each connection in a task of its own and hands
//! requests over through channels; measured beside nginx, that made a proxied request a sixth dearer. Here both
//! directions of an exchange run in the request's own task.
//!
//! | file | what it is | one for each |
//! |---|---|---|
//! | `settings` | the configuration | upstream |
//! | `servers` | the state of an upstream's servers, and the addresses of their names | upstream |
//! | `server_state` | that state in one word, for operators | address |
//! | `endpoint` | one address of a server | address |
//! | `health` | whether a server gets requests, and how many | address |
//! | `gate` | fails requests at once while no server accepts connections | upstream |
//! | `watch` | health checks and name lookups | process |
//! | `balance` | the choice of the next server | worker and upstream |
//! | `budget` | the retry budget | worker and upstream |
//! | `pool` | the connections | worker and upstream |
//! | `connection` | a connection of HTTP/1.1, or a place on one of HTTP/2 | request |
//! | `search` | makes a new connection, to the first server that accepts one | request |
//! | `mux` | the connections of HTTP/2 | worker and address |
//! | `exchange` | one request and its response | request |
//! | `received` | what an exchange receives | request |
//! | `error` | why there is no response, or only a part of one | request |
//! | `http1`, `http2` | the exchange in each version | request |
//! | `upload` | the sending of a request over HTTP/1.1 | request |
//! | `response_head` | the head of a response of HTTP/1.1 | request |
//! | `websocket` | the fields of a WebSocket handshake that only HTTP/1.1 has | request |

pub mod balance;
pub mod budget;
mod connection;
pub mod endpoint;
pub mod error;
pub mod exchange;
pub mod gate;
pub mod health;
mod http1;
mod http2;
mod mux;
pub mod pool;
mod received;
pub mod response_head;
mod search;
pub mod server_state;
pub mod servers;
pub mod settings;
mod upload;
pub mod watch;
mod websocket;

pub use endpoint::Endpoint;
pub use error::{Error, ExchangeError};
pub use exchange::{Exchange, UpstreamBody};
pub use pool::{Caller, LeasedConnection, UpstreamPool};
pub use received::ReceivedHead;
pub use servers::Servers;
pub use settings::{Balance, Bounds, Ejection, HealthCheck, Location, Server, Settings};
pub use watch::ServerWatch;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A server without TLS, of weight 1.
    pub fn server(host: &str, port: u16) -> Server {
        Server {
            location: Location::Host(host.into(), port),
            tls: None,
            weight: 1,
        }
    }

    /// An upstream with this number of servers, to which no test connects.
    pub fn settings(servers: usize) -> Settings {
        let ports = 9_001_u16..;
        Settings {
            name: "up".into(),
            servers: ports
                .take(servers)
                .map(|port| server("10.0.0.1", port))
                .collect(),
            http2: false,
            proxy: None,
            balance: Balance::default(),
            check: None,
            eject: Some(Ejection {
                after: 3,
                span: Duration::from_secs(10),
            }),
            slow_start: None,
            bounds: Bounds::default(),
            load_metric: None,
            pressure: None,
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            total: None,
        }
    }
}
