//! HTTP/1.1 (RFC 9112) as far as both sides of the gateway share it: fields, framing, and buffers for received and unsent
//! bytes.
//!
//! It parses strictly: bytes that two readers could understand differently are an error. It knows neither clients nor
//! upstreams.

pub mod chunked;
mod error;
pub mod fields;
pub mod framing;
pub mod inbox;
pub mod outbox;
mod syntax;

pub use error::{Malformed, MessageError};
pub use framing::{Framing, FramingFields, without_zeros};
pub use outbox::Outbox;
pub use syntax::{MAX_FIELDS, MAX_HEAD_BYTES, MAX_TARGET_BYTES, ends_in_crlf, version_from_minor};
