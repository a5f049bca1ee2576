//! The stack in request order, the connections that feed it, and the admin listener.

pub mod access;
pub mod admin;
pub mod http1;
pub mod http2;
pub mod stack;
pub mod worker;
