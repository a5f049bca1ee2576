//! Serves queries about the record, below `/v1/record`. Nothing here writes to the record.
//!
//! | module | content |
//! |---|---|
//! | `query`, `span` | runs a query on a thread of its own; parses the span of a query |
//! | `range` | the values of series over time |
//! | `notes` | top keys, samples and events |
//! | `explain`, `span_counts` | why requests were refused; the counts from which that is inferred |
//! | `near` | the keys that have used most of a limit |
//! | `gateways` | the last minute of this gateway and its peers |
//! | `live` | a stream with an event for each new second |
//! | `status` | the size of the record |

mod explain;
mod gateways;
mod live;
mod near;
mod notes;
mod query;
mod range;
mod span;
mod span_counts;
mod status;

pub use explain::explain;
pub use gateways::gateways;
pub use live::live;
pub use near::near;
pub use notes::{events, key, samples, top};
pub use range::{range, series};
pub use status::describe_record;
