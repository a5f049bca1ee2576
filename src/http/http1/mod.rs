//! HTTP/1.1 (RFC 9112) as far as both sides of the gateway share it: fields, framing, and buffers for received and
//! unsent bytes.
//!
//! It parses strictly: bytes that two readers could understand differently are an error. It knows neither clients nor
//! upstreams.
//!
//! | file | what it is |
//! |---|---|
//! | `chunked` | decodes the chunked coding |
//! | `error` | why a message cannot be read, or its connection fails |
//! | `fields` | lines of header fields, read and written |
//! | `framing` | where the body of a message ends, and whether the connection lasts |
//! | `inbox` | received bytes that are not parsed yet |
//! | `outbox` | bytes that wait to be sent |
//! | `syntax` | the bounds of heads; versions and ends of lines |

pub mod chunked;
mod error;
pub mod fields;
pub mod framing;
pub mod inbox;
pub mod outbox;
mod syntax;

pub use error::{Malformed, MessageError};
pub use framing::{Framing, FramingFields, without_leading_zeros};
pub use outbox::Outbox;
pub use syntax::{MAX_FIELDS, MAX_HEAD_BYTES, MAX_TARGET_BYTES, ends_in_crlf, version_from_minor};
