//! Bodies on their way: what clients send, what upstreams respond, what the gateway says itself.

mod error;
mod request;
mod response;

pub use error::{CLIENT_LEFT, Error};
pub use request::{MAX_AHEAD, Peeked, RequestBody};
pub use response::{Relay, ReplyBody};
