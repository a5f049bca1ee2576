//! What a client may use of an HTTP/2 connection, as the first frames of the gateway say.

use crate::http::http1::MAX_HEAD;
use crate::http::http2::frame::setting;
use crate::http::http2::{FIRST_WINDOW, frame};

/// Requests under way on one connection.
pub const MAX_STREAMS: usize = 128;

/// Bytes of one request's body that a client may send before somebody asks for them.
pub const STREAM_WINDOW: u32 = 256 * 1024;
/// The same of all streams of a connection.
pub const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Writes the first frames: the settings, and the window of the connection.
pub fn write(out: &mut Vec<u8>) {
    let wanted = [
        (setting::MAX_CONCURRENT_STREAMS, MAX_STREAMS as u32),
        (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
        (setting::MAX_HEADER_LIST_SIZE, MAX_HEAD as u32),
        (setting::ENABLE_CONNECT_PROTOCOL, 1),
    ];
    frame::settings(out, &wanted);
    frame::window_update(out, 0, CONNECTION_WINDOW - FIRST_WINDOW);
}
