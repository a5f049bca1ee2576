//! The bytes of HTTP/3 (RFC 9114): frames, and the fields that QPACK compresses. It reads no stream itself.
//!
//! | file | what it is |
//! |---|---|
//! | `code` | the codes by which streams and connections end |
//! | `frame` | the heads of frames, and the settings |
//! | `qpack` | fields, without a dynamic table |
//! | `qpack_table` | the static table that blocks of fields refer to |

pub mod code;
pub mod frame;
pub mod qpack;
mod qpack_table;

pub use code::Code;
