//! Connections of clients that speak HTTP/1.0 or HTTP/1.1.
//!
//! The layers of the stack see none of these bytes: they get a head, a body and a `Downstream`.
//!
//! | file | what it is |
//! |---|---|
//! | `exchanges` | the loop of a connection: a request through the stack, then its response |
//! | `wire` | the bytes of a connection, in and out |
//! | `request` | parses the head of a request |
//! | `repeat` | the cache of repeated requests |
//! | `reply`, `response_head` | sends a response |

pub mod exchanges;
pub mod repeat;
pub mod reply;
pub mod request;
pub mod response_head;
pub mod wire;
