//! The stack: what happens to a request, in order. `gateway` shows the order.

pub mod announce;
pub mod body;
pub mod deadline;
pub mod ending;
pub mod explain;
pub mod forward;
pub mod forwarded;
pub mod gateway;
pub mod identify;
pub mod in_body;
pub mod left;
pub mod load;
pub mod matched;
pub mod observe;
pub mod overrides;
pub mod peer;
pub mod pooled;
pub mod query_path;
pub mod refusal;
pub mod refusal_cache;
pub mod reserve;
pub mod routing;
pub mod sampling;
pub mod source;
pub mod target;
pub mod unreadable;
