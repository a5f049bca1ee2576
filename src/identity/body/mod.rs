//! One field of a request's body, read as every upstream reads it: JSON, a form, `multipart/form-data`.
//!
//! The type that the client writes decides only as far as it does for upstreams: many look at the bytes
//! instead. Where two of them could see different values the field is ambiguous, and a body that cannot be
//! looked at hides it. XML and other formats have no fields here.

mod field;
mod find;
mod first_bytes;
mod hidden;
mod json;
mod media;
mod multipart;
mod name;
mod presence;
mod sniff;

pub use field::BodyField;
pub use find::{each_in_json, find};
pub use hidden::hides_fields;
pub(super) use hidden::{is_coded, is_longer};
pub(super) use media::is_read_as_utf8;
pub use name::FieldName;
pub(super) use name::is_blank;
pub use presence::{is_stream, may_have_field};
