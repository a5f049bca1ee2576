//! The tower layer that counts before it forwards, and how a verdict reads in HTTP.
//!
//! tower's own rate limit holds back in `poll_ready`, before it sees a request, and so cannot be
//! keyed; this one decides in `call`. It takes any request that can say what it asks ([`Candidate`])
//! and gives the inner service what admission makes of it.

pub mod admission;
mod candidate;
pub mod headers;
pub mod reject;
mod service;
pub mod settle;
#[cfg(test)]
mod tests;

pub use candidate::{Basis, Candidate, Denied, Ended, Failed};
pub use headers::{Headers, over_header};
pub use service::{Deciding, Pass, Throttle, ThrottleLayer};
pub use settle::{Open, Settle, Settling};
