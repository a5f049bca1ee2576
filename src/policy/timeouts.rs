//! The section `timeouts` of the gateway file, which the running gateway uses as it is, and the section `timeouts` of
//! an upstream. `compile` replaces what an upstream leaves out by the value of the gateway file.

use std::time::Duration;

use super::decode::{DelayField, TimeoutField, word_fields};
use super::section::section;

section! {
    /// How long parts of a connection, of a request and of the end of the process may take.
    pub struct Timeouts, table TIMEOUTS_TABLE = "`timeouts`", "How long things may take.";
    header: TimeoutField = Duration::from_secs(10),
        "From a request's first byte to the end of its head. Also for the TLS handshake and the PROXY header before the first request.", "10s";
    body_idle: TimeoutField = Duration::from_secs(30),
        "Between two pieces of a request body.", "30s";
    idle: TimeoutField = Duration::from_secs(60),
        "For a connection without a request, also before its first one. Also how long an unused connection to a server is kept.", "60s";
    send: TimeoutField = Duration::from_secs(30),
        "For a client that reads nothing of what the gateway sends.", "30s";
    connect: TimeoutField = Duration::from_secs(2),
        "To connect to a server.", "2s";
    first_byte: TimeoutField = Duration::from_secs(60),
        "From the end of the request to the head of the response, and for each silence of the server within the response.", "60s";
    tunnel: TimeoutField = Duration::from_secs(3600),
        "Between two pieces, either way, of a WebSocket or another protocol that a connection changed to.", "1h";
    total: TimeoutField,
        "From the forwarding of a request to the end of its response. Default: no bound.", "5m";
    drain: DelayField = Duration::from_secs(30),
        "For open requests after the signal to stop.", "30s";
    drain_delay: DelayField = Duration::ZERO,
        "From the signal to stop to the beginning of `drain`. Connections are still accepted, but `/readyz` is 503, so that load balancers send no more.", "5s";
    half_close: HalfCloseField = HalfClose::Answered,
        "Whether an HTTP/1 client that closes its sending side after a whole request gets its response, or counts as gone.", "gone";
}

section! {
    /// How long parts of a request to one upstream may take.
    pub struct UpstreamTimeouts, table UPSTREAM_TIMEOUTS_TABLE = "an upstream's `timeouts`",
        "How long things may take with this upstream; what is left out is as in the gateway's timeouts.";
    connect: TimeoutField, "To connect to a server.", "2s";
    first_byte: TimeoutField, "From the end of the request to the head of the response, and for each silence within the response.", "60s";
    idle: TimeoutField, "How long an unused connection is kept.", "60s";
    total: TimeoutField, "From the forwarding of a request to the end of its response.", "5m";
}

/// What happens to a complete HTTP/1 request whose client closes its sending side before the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfClose {
    /// The client gets its response.
    Answered,
    /// The client counts as gone, and its request is cancelled.
    Gone,
}

word_fields! {
    /// A field that says what happens to a request whose client closes its sending side.
    pub struct HalfCloseField: HalfClose = "answered" => HalfClose::Answered, "gone" => HalfClose::Gone;
}
