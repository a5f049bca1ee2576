//! The admin listener, where operators query and control a running gateway.
//!
//! It listens on loopback by default. If a token is set, everything but `/healthz` and the dashboard's assets needs it.
//! `routes.rs` lists the paths; `control.rs` is the interface to the gateway.

mod actions;
mod authorization;
mod connections;
mod control;
mod dashboard;
mod keys;
mod probes;
mod problem;
mod prometheus;
mod record;
mod routes;
mod status;
mod token;

pub use connections::serve;
pub use control::{Control, ReloadOutcome};
pub use probes::probes;
pub use routes::router;
