//! Finds one field in a request's body as every upstream would read it: in JSON, a form or `multipart/form-data`.
//!
//! Many upstreams look at a body's bytes instead of its type, so the type alone decides nothing here. A field that two
//! upstreams could read differently is ambiguous, and a body that cannot be searched hides it. No fields are looked for
//! in XML and other formats.

mod field;
mod find;
mod first_bytes;
mod header_parameters;
mod hidden;
mod json;
mod json_prefix;
mod media;
mod multipart;
mod name;
mod presence;

pub use field::BodyField;
pub use find::{find_field, visit_json_values};
pub use hidden::is_unsearchable;
pub(super) use hidden::{exceeds_length, has_content_coding};
pub(super) use media::is_read_as_utf8;
pub use name::FieldName;
pub(super) use name::is_blank;
pub use presence::{is_stream, may_have_field};
