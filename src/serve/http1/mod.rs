//! A connection of HTTP/1.1: its bytes, heads of requests and responses.

pub mod exchanges;
pub mod lead;
pub mod repeat;
pub mod reply;
pub mod request;
pub mod wire;
