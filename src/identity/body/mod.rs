//! Finds one field in a request's body as every upstream would read it: in JSON, a form or `multipart/form-data`.
//!
//! Many upstreams look at a body's bytes instead of its type, so both are examined here. A field that two upstreams could
//! read differently is ambiguous. A body of any other type, such as XML, is searched as a form and as JSON only.
//!
//! | file | what it does |
//! |---|---|
//! | `body_field`, `field_name` | the field that a policy names, and which spellings in requests resemble it |
//! | `search_limits` | decides by the head that a body cannot be searched |
//! | `field_prefilter`, `json_prefix` | decide by the head and the first bytes that a body cannot have the field |
//! | `field_search` | finds the field in a complete body, and all its values in a JSON body |
//! | `body_format`, `header_parameters` | the format of a body, by the value of `Content-Type` and its parameters |
//! | `first_bytes` | the format of a body, by its first bytes |
//! | `json`, `multipart` | find the field in one format; forms are in `identity/form.rs` |
//! | `batch_items` | counts the items of a batch: the elements of a JSON array |

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
