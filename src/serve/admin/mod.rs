//! The admin listener, where operators query and control a running gateway.
//!
//! The listener is on loopback by default. If a token is set, everything but `/healthz` and the dashboard's assets needs
//! the token. The listener reaches the gateway only through [`Control`], and never serves requests of clients.
//!
//! | file | what it is |
//! |---|---|
//! | `routes`, `control` | the paths, and the interface to the gateway |
//! | `connections` | bounds connections and open requests |
//! | `authorization`, `token` | who may do what |
//! | `probes`, `status`, `keys`, `actions` | health and metrics, state, one key, explain and reload |
//! | `record`, `prometheus` | queries about the record |
//! | `dashboard` | the page for browsers |

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
