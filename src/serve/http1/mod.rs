//! A connection of HTTP/1.1: its bytes, heads of requests and responses.

pub mod connection;
pub mod repeat;
pub mod reply;
pub mod request;
pub mod wire;
