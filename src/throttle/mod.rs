//! The tower layer that decides about requests before they are forwarded, and how a verdict reads in HTTP.
//!
//! tower's own rate limit waits in `poll_ready`, before it sees a request, so it cannot count by key. This
//! layer decides in `call`. It takes any request that is a [`Candidate`] and calls the inner service with what
//! admission makes of it.

pub mod admission;
mod candidate;
pub mod headers;
pub mod reject;
mod service;
pub mod settle;
#[cfg(test)]
mod tests;

pub use candidate::{
    AppliedLimits, Candidate, DecisionObserver, Denied, FailedRequest, RequestEnd,
};
pub use headers::{RateLimitHeaders, exceeded_limits};
pub use service::{PendingResponse, Throttle, ThrottleFuture, ThrottleLayer};
pub use settle::{PendingSettlement, Settle, Settling};
