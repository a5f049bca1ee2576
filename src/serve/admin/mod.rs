//! The admin listener: what an operator asks a running gateway. Loopback by default; with a token
//! everything but `/healthz` needs it.

mod actions;
mod connections;
mod control;
mod dashboard;
mod door;
mod keys;
mod probes;
mod problem;
mod prometheus;
mod record;
mod routes;
mod status;

pub use connections::serve;
pub use control::{Control, Reload};
pub use probes::probes;
pub use routes::router;
