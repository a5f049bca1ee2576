//! The tower layer that decides about requests before they are forwarded, and how a verdict reads in HTTP.
//!
//! tower's own rate limit waits in `poll_ready`, before it sees a request, so it cannot count by key. This layer
//! decides in `call`. It takes any request that is a [`ThrottledRequest`], and passes those that are admitted to the
//! inner service.

pub mod admission;
pub mod headers;
pub mod reject;
mod request;
mod service;
pub mod settle;
#[cfg(test)]
mod tests;

pub use headers::{RateLimitHeaders, exceeded_limits};
pub use request::{
    AppliedLimits, DecisionObserver, Denied, FailedRequest, RequestEnd, ThrottledRequest,
};
pub use service::{PendingResponse, ThrottleFuture, ThrottleLayer, ThrottleService};
pub use settle::{PendingSettlement, Settle, Settling};
