//! The stack: what happens to a request, in order. [`gateway`] shows the order, [`stages`] the types that the layers hand on.
//!
//! | layer | file | beside it |
//! |---|---|---|
//! | observe | `observe.rs` | `note.rs`, `outcome.rs`, `verdict.rs`, `counted_key.rs`, `sampling.rs` |
//! | route | `routing.rs` | `target.rs`, `matched.rs`, `overrides.rs`, `query_path.rs` |
//! | identify | `identify.rs` | `in_body.rs`, `reserve.rs` |
//! | throttle | [`crate::throttle`] | `denied.rs`, `refusal_cache.rs` |
//! | forward | `forward.rs` | `announce.rs`, `forwarded.rs`, `load.rs`, `detached.rs`, `pooled.rs`, `deadline.rs` |
//!
//! A request that the gateway answers itself is an `ending.rs`; why and how is in `refusal.rs`. `explain.rs` says what the
//! stack would do, by the same functions. `downstream.rs`, `peer.rs` and `body/` are what the layers see of a client.

pub mod announce;
pub mod body;
pub mod counted_key;
pub mod deadline;
pub mod denied;
pub mod detached;
pub mod downstream;
pub mod ending;
pub mod explain;
pub mod forward;
pub mod forwarded;
pub mod gateway;
pub mod identify;
pub mod in_body;
pub mod load;
pub mod matched;
pub mod note;
pub mod observe;
pub mod outcome;
pub mod overrides;
pub mod peer;
pub mod pooled;
pub mod query_path;
pub mod refusal;
pub mod refusal_cache;
pub mod reserve;
pub mod routing;
pub mod sampling;
pub mod stages;
pub mod target;
pub mod unreadable;
pub mod verdict;
