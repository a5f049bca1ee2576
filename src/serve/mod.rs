//! The stack in request order, the connections that feed it, and the admin listener.

pub mod access;
pub mod admin;
pub mod answer;
pub mod body;
pub mod connection;
pub mod deadline;
pub mod explain;
pub mod forward;
pub mod gateway;
pub mod generation;
pub mod guard;
pub mod host;
pub mod http2;
pub mod identify;
pub mod known;
pub mod listen;
pub mod load;
pub mod occupancy;
pub mod peer;
pub mod record;
pub mod reply;
pub mod request;
pub mod routing;
pub mod source;
pub mod wire;
mod witness;
pub mod worker;
