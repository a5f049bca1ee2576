//! Serves queries about the record, below `/v1/record`. Nothing here writes to the record.
//!
//! | file | what it is |
//! |---|---|
//! | `query`, `span` | runs a query on a thread of its own; parses its span |
//! | `range` | values of series over time |
//! | `notes` | top keys, samples and events |
//! | `explain`, `span_counts` | why requests were refused, and the counts behind that |
//! | `live`, `status` | an event for each new second; the size of the record |

mod explain;
mod live;
mod notes;
mod query;
mod range;
mod span;
mod span_counts;
mod status;

pub use explain::explain;
pub use live::live;
pub use notes::{events, key, samples, top};
pub use range::{range, series};
pub use status::describe_record;
