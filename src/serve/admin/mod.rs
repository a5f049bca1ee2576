//! The admin listener: what an operator asks a running gateway. Loopback by default; with a token
//! everything but `/healthz` needs it.

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

pub use connections::serve;
pub use control::{Control, ReloadOutcome};
pub use probes::probes;
pub use routes::router;
