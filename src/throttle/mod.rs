//! The tower layer that decides about requests before they are forwarded, and how a verdict reads in HTTP.
//!
//! tower's own rate limit waits in `poll_ready`, before it sees a request, so it cannot count by key. This layer
//! decides in `call`. It takes any request that is a [`ThrottledRequest`], and passes admitted requests to the inner
//! service.
//!
//! | file | what it is |
//! |---|---|
//! | `request` | the traits of requests, limits and errors that the layer works with |
//! | `service` | the layer, its service and its future |
//! | `settle` | the response body that settles reservations and holds permits |
//! | `headers` | the rate-limit headers of a response |
//! | `reject` | the response to a request that a limit refuses |
//! | `admission` | the decision: one request in, one verdict out |

pub mod admission;
pub mod headers;
pub mod reject;
#[cfg(feature = "gateway")]
mod request;
#[cfg(feature = "gateway")]
mod service;
#[cfg(feature = "gateway")]
pub mod settle;
#[cfg(feature = "gateway")]
#[cfg(test)]
mod tests;

pub use headers::{RateLimitHeaders, exceeded_limits};
#[cfg(feature = "gateway")]
pub use request::{
    AppliedLimits, DecisionObserver, Denied, FailedRequest, RequestEnd, ThrottledRequest,
};
#[cfg(feature = "gateway")]
pub use service::{
    DelayedRequest, PendingResponse, ThrottleFuture, ThrottleLayer, ThrottleService,
    UndecidedRequest,
};
#[cfg(feature = "gateway")]
pub use settle::{OutcomeBody, PendingSettlement, Settle, SettlingBody};
