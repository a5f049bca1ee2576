//! Connections of clients that speak HTTP/1.0 or HTTP/1.1.
//!
//! The layers of the stack see none of these bytes: they get a head, a body and a `Downstream`.
//!
//! | file | what it is |
//! |---|---|
//! | `exchanges` | the loop of a connection: a request through the stack, then its response |
//! | `wire` | the bytes of a connection, in and out: its socket and buffers |
//! | `request` | parses the head of a request |
//! | `repeat_cache` | the cache of repeated requests |
//! | `send_response` | sends a response: head, body, trailers |
//! | `response_head` | writes the status line and the fields of a response |

pub mod exchanges;
pub mod repeat_cache;
pub mod request;
pub mod response_head;
pub mod send_response;
pub mod wire;
