//! The limits of an HTTP/2 connection, and the first frames of the gateway, which announce these limits to the client.
//!
//! The limits are the same for all clients, except that proxies may make more calls. `connection.rs` and
//! `connection_state.rs` enforce the number of streams and the windows; `head.rs` enforces the size of a head.

use crate::http::http1::MAX_HEAD_BYTES;
use crate::http::http2::frame::setting;
use crate::http::http2::{DEFAULT_WINDOW, frame};
use crate::policy::ListenerRole;

/// Maximum number of streams that a client may have open on one connection. RFC 9113 section 6.5.2 recommends at least
/// 100.
pub const MAX_CONCURRENT_STREAMS: usize = 128;

/// Maximum number of calls of a proxy that may be open on one connection. Envoy begins as many as wait before it has read
/// these settings, by default up to 1024, and each that is refused has failed.
const MAX_CONCURRENT_CALLS: usize = 1024;

/// Maximum number of streams on a connection of a listener with this role.
pub fn max_streams(role: ListenerRole) -> usize {
    match role {
        ListenerRole::RateLimitService => MAX_CONCURRENT_CALLS,
        _ => MAX_CONCURRENT_STREAMS,
    }
}

/// Flow-control window of each stream, in bytes. At most this much of a request's body is buffered and not read.
pub const STREAM_WINDOW: u32 = 256 * 1024;

/// Flow-control window of the connection, in bytes. At most this much of the bodies of all its streams is buffered.
pub const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Appends the first frames: the settings, and the window of the connection.
pub fn write_initial_frames(out: &mut Vec<u8>, max_streams: usize) {
    let settings = [
        (setting::MAX_CONCURRENT_STREAMS, max_streams as u32),
        (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
        (setting::MAX_HEADER_LIST_SIZE, MAX_HEAD_BYTES as u32),
        // Clients may open WebSockets: RFC 8441 section 3.
        (setting::ENABLE_CONNECT_PROTOCOL, 1),
    ];
    frame::write_settings(out, &settings);
    frame::write_window_update(out, 0, CONNECTION_WINDOW - DEFAULT_WINDOW);
}
