//! Queries about the record: series, keys, samples, events and explanations.

mod explain;
mod live;
mod notes;
mod query;
mod range;
mod span;
mod status;

pub use explain::explain;
pub use live::live;
pub use notes::{events, key, samples, top};
pub use range::{range, series};
pub use status::status;
