//! The admin listener, where operators query and control a running gateway.
//!
//! The listener is on loopback by default. If operators have tokens, everything but `/healthz` and the dashboard's assets
//! needs one that has the right for it. The listener reaches the gateway only through [`Control`], and never serves requests of clients.
//!
//! | module | content |
//! |---|---|
//! | `routes` | the paths and their handlers |
//! | `control` | the interface to the gateway |
//! | `connections` | bounds connections and open requests |
//! | `authorization`, `operator` | which requests are served, and who sent them |
//! | `rights` | the right that a route needs |
//! | `bodies` | reads the bodies of requests |
//! | `audit` | records what operators order |
//! | `whoami` | what an operator may do |
//! | `problem` | errors as problem details |
//! | `probes` | health checks and metrics |
//! | `status`, `keys` | the state of limits, upstreams and the process; the count of one key |
//! | `tried` | what limits would have refused |
//! | `api_keys` | adds, lists and revokes API keys |
//! | `bans` | lists, orders and lifts bans |
//! | `grants`, `accounts` | lists and orders grants, and takes them back; the same for accounts of credits |
//! | `actions` | explains a request, reloads the configuration |
//! | `record`, `prometheus` | queries about the record, in its own API and in that of Prometheus |
//! | `dashboard` | the page for browsers |

mod accounts;
mod actions;
mod api_keys;
mod audit;
mod authorization;
mod bans;
mod bodies;
mod connections;
mod control;
mod dashboard;
mod grants;
mod keys;
mod operator;
mod probes;
mod problem;
mod prometheus;
mod record;
mod rights;
mod routes;
mod status;
mod tried;
mod whoami;

pub use connections::serve;
pub use control::{Control, GrantOrder, Granted, ReloadOutcome};
pub use probes::probes;
pub use routes::router;
