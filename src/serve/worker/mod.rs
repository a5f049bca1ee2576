//! Workers: threads that each have their own client connections, upstream connections and copy of the configuration, and
//! as a rule their own listening sockets. Requests never move between workers; only a new connection may be handed over
//! once.
//!
//! | file | what it is |
//! |---|---|
//! | `run` | the thread: starts, accepts, follows orders, works periodically, drains |
//! | `connection` | one client connection: PROXY header, TLS, choice of the HTTP version |
//! | `worker_state` | what the tasks of a worker share |
//! | `running_config`, `generation` | the configuration as all workers get it, and as one worker runs it |
//! | `listen`, `inherited_sockets` | listening sockets: bound by this process, or passed to it |
//! | `placement` | which worker serves a connection |
//! | `pending_tickets` | tickets of requests that other proxies serve, until these say how they ended |
//! | `occupancy` | how many client connections are open, in all and by address |
//! | `client_socket`, `deadlines` | a client's socket, and the deadlines of its connection |
//! | `identity_counters` | counters of requests by the values of identities |
//! | `date_line` | the `Date` field of responses |
//! | `load_meter` | how busy the gateway itself is |

pub mod client_socket;
pub mod connection;
pub mod date_line;
pub mod deadlines;
pub mod generation;
pub mod identity_counters;
pub mod inherited_sockets;
pub mod listen;
pub mod load_meter;
pub mod occupancy;
pub mod pending_tickets;
pub mod placement;
pub mod run;
pub mod running_config;
pub mod worker_state;
