//! What both sides of the gateway share of HTTP/1.1, RFC 9112: fields, framing, and buffers of bytes that come in and go
//! out. Read strictly: bytes that two readers could take for different messages are no message.

pub mod chunked;
mod error;
pub mod fields;
pub mod framing;
pub mod inbox;
pub mod outbox;
mod syntax;

pub use error::{Cause, Malformed};
pub use framing::{Framing, FramingFields, without_zeros};
pub use outbox::Outbox;
pub use syntax::{MAX_FIELDS, MAX_HEAD, MAX_TARGET, ends_in_crlf, version_of};
