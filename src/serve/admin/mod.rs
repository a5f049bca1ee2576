//! The admin listener, where operators query and control a running gateway.
//!
//! The listener is on loopback by default. If a token is set, everything but `/healthz` and the dashboard's assets needs
//! the token. The listener reaches the gateway only through [`Control`], and never serves requests of clients.
//!
//! | module | content |
//! |---|---|
//! | `routes` | the paths and their handlers |
//! | `control` | the interface to the gateway |
//! | `connections` | bounds connections and open requests |
//! | `authorization`, `token` | which requests are served; the check of the token |
//! | `problem` | errors as problem details |
//! | `probes` | health checks and metrics |
//! | `status`, `keys` | the state of limits, upstreams and the process; the count of one key |
//! | `tried` | what limits would have refused |
//! | `api_keys` | adds, lists and revokes API keys |
//! | `bans` | lists, orders and lifts bans |
//! | `grants` | lists and orders grants, and takes them back |
//! | `actions` | explains a request, reloads the configuration |
//! | `record`, `prometheus` | queries about the record, in its own API and in that of Prometheus |
//! | `dashboard` | the page for browsers |

mod actions;
mod api_keys;
mod authorization;
mod bans;
mod connections;
mod control;
mod dashboard;
mod grants;
mod keys;
mod probes;
mod problem;
mod prometheus;
mod record;
mod routes;
mod status;
mod token;
mod tried;

pub use connections::serve;
pub use control::{Control, GrantOrder, ReloadOutcome};
pub use probes::probes;
pub use routes::router;
