//! The bytes of HTTP/2: frames (RFC 9113 sections 4 and 6) and compressed fields (RFC 7541).
//!
//! It keeps no streams and waits for nothing: `serve/http2` does that for connections of clients. Connections to
//! servers use the `h2` crate.
//!
//! | module | what it is |
//! |---|---|
//! | `frame` | writes frames |
//! | `frame_reader` | parses the frames of a client |
//! | `hpack` | compresses and decompresses fields |

pub mod frame;
pub mod frame_reader;
pub mod hpack;

/// An error code of RFC 9113 section 7: why a stream or a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub u32);

impl Reason {
    /// The stream or connection ends without an error.
    pub const NO_ERROR: Reason = Reason(0x0);
    /// The peer broke a rule of the protocol.
    pub const PROTOCOL_ERROR: Reason = Reason(0x1);
    /// The side that sends this code has failed.
    pub const INTERNAL_ERROR: Reason = Reason(0x2);
    /// The peer sent more than a flow-control window allows.
    pub const FLOW_CONTROL_ERROR: Reason = Reason(0x3);
    /// The peer sent a frame on a stream that was closed before.
    pub const STREAM_CLOSED: Reason = Reason(0x5);
    /// The length of a frame is invalid for its type.
    pub const FRAME_SIZE_ERROR: Reason = Reason(0x6);
    /// The request was not processed, so it can be sent again.
    pub const REFUSED_STREAM: Reason = Reason(0x7);
    /// The stream is no longer needed.
    pub const CANCEL: Reason = Reason(0x8);
    /// A block of fields cannot be decompressed.
    pub const COMPRESSION_ERROR: Reason = Reason(0x9);
    /// The peer causes excessive load.
    pub const ENHANCE_YOUR_CALM: Reason = Reason(0xb);
}

/// An error that ends the whole connection (RFC 9113 section 5.4.1), with the reason that GOAWAY tells the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError(pub Reason);

/// Maximum bytes of a frame's payload, in both directions. Settings could allow more (RFC 9113 section 4.2), but the
/// gateway sends none that do, and needs none of the peer's.
pub const MAX_FRAME_PAYLOAD: usize = 16 * 1024;

/// Flow-control window of each stream and of the connection, in bytes, until it is changed: RFC 9113 section 6.9.2.
pub const DEFAULT_WINDOW: u32 = 65_535;

/// Largest flow-control window, in bytes: RFC 9113 section 6.9.1.
pub const MAX_WINDOW: u32 = (1 << 31) - 1;
