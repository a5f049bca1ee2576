//! Everything that serves requests: the stack in request order, the connections that feed it, the workers that run them,
//! the access log and the admin listener.
//!
//! | module | what it is |
//! |---|---|
//! | [`stack`] | what happens to a request, in order; begin with `stack/layers.rs` |
//! | [`http1`], [`http2`], [`http3`] | connections of clients, by version of HTTP |
//! | [`worker`] | the threads, their connections and their copy of the configuration |
//! | [`access`] | the access log |
//! | [`decide`] | calls of gRPC by which other proxies ask for a decision |
//! | [`admin`] | the admin listener: probes, metrics, dashboard, record, limits, reload |

pub mod access;
pub mod admin;
pub mod decide;
pub mod http1;
pub mod http2;
pub mod http3;
pub mod stack;
pub mod worker;
