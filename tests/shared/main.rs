//! Several gateways with one store: what reaches the upstream, counted there.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;

mod brake;
mod buckets;
mod budgets;
mod cluster;
mod costs;
mod faults;
mod fleet;
mod greedy;
mod identities;
mod limits;
mod machine;
mod many;
#[path = "../memcached/server.rs"]
#[allow(dead_code)]
mod memcached;
mod open;
mod outages;
mod permit_changes;
mod permit_model;
mod permits;
mod proxy;
mod quotas;
mod replies;
mod scene;
mod secured;
mod sentinel;
mod stalls;
mod unreported;
mod upstream;
