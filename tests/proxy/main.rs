//! What passes through the gateway, on the wire.

#[path = "../common/mod.rs"]
mod common;

mod bodies;
mod faults;
mod framing;
mod refusals;
