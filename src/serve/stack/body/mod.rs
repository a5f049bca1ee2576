//! Bodies on their way through the gateway: what clients send, what upstreams send back, and what the gateway sends
//! itself.

mod error;
mod request;
mod response;

pub use error::{CLIENT_LEFT, Error};
pub use request::{MAX_READ_AHEAD, ReadAhead, RequestBody};
pub use response::{Relay, RelaySettings, ReplyBody};
