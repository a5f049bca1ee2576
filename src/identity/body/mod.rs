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

mod batch_items;
mod body_field;
mod body_format;
mod field_name;
mod field_prefilter;
mod field_search;
mod first_bytes;
mod header_parameters;
mod json;
mod json_prefix;
mod multipart;
mod search_limits;

pub use batch_items::count_items;
pub use body_field::BodyField;
pub(super) use body_format::is_read_as_utf8;
pub use field_name::FieldName;
pub(super) use field_name::is_blank;
pub use field_prefilter::{is_stream, may_have_field};
pub use field_search::{find_field, has_searchable_format, visit_json_values};
pub use search_limits::is_unsearchable;
pub(super) use search_limits::{exceeds_length, has_content_coding};
