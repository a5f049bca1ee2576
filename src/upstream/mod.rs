//! The servers behind the gateway, the connections to them, and the HTTP that these connections carry. Nothing here
//! knows whose request it is: [`ClientContext`] has only addresses for the PROXY header, and a hash of identities.
//!
//! The HTTP/1.1 client is the gateway's own. The client of hyper runs each connection in a task of its own and hands
//! requests over through channels. That costs CPU time for each request. Here both directions of an exchange over
//! HTTP/1.1 run in the request's own task.
//!
//! | file | what it is | one for each |
//! |---|---|---|
//! | `settings` | the configuration | upstream |
//! | `servers` | the state of an upstream's servers, and the addresses of their names | upstream |
//! | `server_state` | the state of an endpoint in one word, for operators | address |
//! | `endpoint` | one address of a server | address |
//! | `server_health` | whether a server gets requests, and how many | address |
//! | `gate` | fails requests at once while no server accepts connections | upstream |
//! | `server_watch` | health checks and name lookups | process |
//! | `balancer` | the choice of the endpoint for a request | worker and upstream |
//! | `retry_budget` | how many requests may be sent again | worker and upstream |
//! | `upstream_pool` | the connections, and the assignment of requests to endpoints | worker and upstream |
//! | `transport` | the connection of HTTP/1.1, or the stream of an HTTP/2 connection, that a request uses | request |
//! | `connection_search` | makes a new connection, to the first endpoint that accepts one | request |
//! | `muxed_connections` | the connections of HTTP/2 | worker and address |
//! | `exchange` | one request and its response | request |
//! | `received` | the parts of a response that an exchange receives | request |
//! | `error` | why there is no response, or only a part of one | request |
//! | `http1_exchange`, `http2_exchange` | the exchange in each version | request |
//! | `upload` | the sending of a request over HTTP/1.1 | request |
//! | `head_reader` | the head of a response of HTTP/1.1 | request |
//! | `websocket` | the fields of a WebSocket handshake that only HTTP/1.1 has | request |

pub mod balancer;
mod connection_search;
pub mod endpoint;
pub mod error;
pub mod exchange;
pub mod gate;
pub mod head_reader;
mod http1_exchange;
mod http2_exchange;
mod muxed_connections;
mod received;
pub mod retry_budget;
pub mod server_health;
pub mod server_state;
pub mod server_watch;
pub mod servers;
pub mod settings;
mod transport;
mod upload;
pub mod upstream_pool;
pub mod websocket;

pub use endpoint::Endpoint;
pub use error::{Error, ExchangeError};
pub use exchange::{Exchange, UpstreamBody};
pub use received::ReceivedHead;
pub use server_watch::ServerWatch;
pub use servers::Servers;
pub use settings::{BalanceMethod, Bounds, Ejection, HealthCheck, Location, Server, Settings};
pub use upstream_pool::{CheckedOutConnection, ClientContext, UpstreamPool};

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

    /// The settings of an upstream with this number of servers, to which no test connects.
    pub fn settings(server_count: usize) -> Settings {
        let ports = 9_001_u16..;
        Settings {
            name: "up".into(),
            servers: ports
                .take(server_count)
                .map(|port| server("10.0.0.1", port))
                .collect(),
            host: None,
            uses_http2: false,
            proxy_protocol: None,
            balance_method: BalanceMethod::default(),
            health_check: None,
            ejection: Some(Ejection {
                failures: 3,
                first_duration: Duration::from_secs(10),
            }),
            slow_start: None,
            bounds: Bounds::default(),
            load_metric: None,
            pressure: None,
            connect_timeout: Duration::from_secs(2),
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            total_timeout: None,
        }
    }
}
