//! HTTP/2 in bytes: frames, RFC 9113 sections 4 and 6, and compressed fields, RFC 7541. Nothing here waits or
//! keeps streams; `serve/http2` does, for clients. Servers are spoken to through the `h2` crate.

pub mod frame;
pub mod hpack;
pub mod reader;

/// Why a stream or a connection ends: RFC 9113 section 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub u32);

impl Reason {
    /// All is well.
    pub const NO_ERROR: Reason = Reason(0x0);
    /// The other side broke a rule.
    pub const PROTOCOL_ERROR: Reason = Reason(0x1);
    /// This side could not go on.
    pub const INTERNAL_ERROR: Reason = Reason(0x2);
    /// The other side sent more than a window had room for.
    pub const FLOW_CONTROL_ERROR: Reason = Reason(0x3);
    /// A frame came on a stream that is over.
    pub const STREAM_CLOSED: Reason = Reason(0x5);
    /// A frame has a length that its kind does not have.
    pub const FRAME_SIZE_ERROR: Reason = Reason(0x6);
    /// The request was not looked at.
    pub const REFUSED_STREAM: Reason = Reason(0x7);
    /// Nobody wants the answer any more.
    pub const CANCEL: Reason = Reason(0x8);
    /// Fields cannot be decompressed.
    pub const COMPRESSION_ERROR: Reason = Reason(0x9);
    /// The other side asks too much.
    pub const ENHANCE_YOUR_CALM: Reason = Reason(0xb);
}

/// A rule that was broken so that the connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal(pub Reason);

/// Bytes of a frame's payload that both sides take without being asked: RFC 9113 section 4.2.
pub const MAX_FRAME: usize = 16 * 1024;

/// Bytes that each side may send on a stream, and on a connection, before windows are spoken of.
pub const FIRST_WINDOW: u32 = 65_535;

/// Largest window.
pub const MAX_WINDOW: u32 = (1 << 31) - 1;
