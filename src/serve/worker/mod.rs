//! A worker: a thread with its listeners, its connections and its copy of the policies.

pub mod client_socket;
pub mod connection;
pub mod generation;
pub mod guard;
pub mod host;
pub mod listen;
pub mod occupancy;
pub mod run;
pub mod state;
