//! [`Throttle`]: limits for a service of your own, as a tower layer, without a gateway and without files.
//!
//! It decides as the gateway does: all limits of a request admit it, or none of them takes anything. Its responses have
//! the gateway's header fields and refusals. Counts are in the memory of this process, in a budget of bytes.
//!
//! | file | what it is |
//! |---|---|
//! | `builder` | names limits, and reports what is wrong with them |
//! | `key` | what a limit counts by, and the keyed hash of that |
//! | `decision` | the decision about one request |
//! | `service` | the layer, its service and its future |
//! | `body` | the body of a response, which holds the request's permits |

mod body;
mod builder;
mod decision;
mod key;
mod service;
#[cfg(test)]
mod tests;

pub use body::ThrottledBody;
pub use builder::{BuildError, ThrottleBuilder};
pub use key::{Key, KeyFunction};
pub use service::{Throttle, Throttled, ThrottledFuture};
