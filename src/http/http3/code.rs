//! The codes by which a stream or a connection ends: RFC 9114 section 8.1, RFC 9204 section 6.

/// The reason for which a stream is reset or a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// Nothing is wrong.
    pub const NO_ERROR: Code = Code(0x100);
    /// The response broke off.
    pub const INTERNAL_ERROR: Code = Code(0x102);
    /// The client has opened a stream that it must not open.
    pub const STREAM_CREATION_ERROR: Code = Code(0x103);
    /// A stream that the connection needs has ended.
    pub const CLOSED_CRITICAL_STREAM: Code = Code(0x104);
    /// A frame is not allowed where it stands.
    pub const FRAME_UNEXPECTED: Code = Code(0x105);
    /// A frame is incomplete, or has the wrong size.
    pub const FRAME_ERROR: Code = Code(0x106);
    /// The client sends too much that is without use.
    pub const EXCESSIVE_LOAD: Code = Code(0x107);
    /// A setting is not allowed.
    pub const SETTINGS_ERROR: Code = Code(0x109);
    /// The control stream does not begin with settings.
    pub const MISSING_SETTINGS: Code = Code(0x10a);
    /// The request was not processed, so the client may send it again.
    pub const REQUEST_REJECTED: Code = Code(0x10b);
    /// The rest of the request or of the response is not needed.
    pub const REQUEST_CANCELLED: Code = Code(0x10c);
    /// The client has ended its request before it was whole.
    pub const REQUEST_INCOMPLETE: Code = Code(0x10d);
    /// A message is malformed.
    pub const MESSAGE_ERROR: Code = Code(0x10e);
    /// A block of fields cannot be decoded.
    pub const QPACK_DECOMPRESSION_FAILED: Code = Code(0x200);
    /// An instruction for the gateway's table is not allowed.
    pub const QPACK_ENCODER_STREAM_ERROR: Code = Code(0x201);
}
